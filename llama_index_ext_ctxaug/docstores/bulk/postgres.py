"""Bulk read of Postgres: one SELECT outside a transaction, so that BEGIN costs no round trip."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from llama_index_ext_ctxaug.docstores.bulk.registry import Keys, Values, from_rows, private
from llama_index_ext_ctxaug.docstores.event_loops import own_loop

_initializing = threading.Lock()
"""The store creates its engines and table on first use, which must not happen in two threads at once."""


def read(kvstore: Any, keys: Keys) -> Values:
    """Read all keys in one round trip."""
    if not getattr(kvstore, "_is_initialized", False):
        initialize(kvstore)
    statement, values = _select(kvstore, keys)
    with private(kvstore, "_engine").connect() as connection, autocommit(connection):
        return from_rows(keys, connection.execute(statement, values))


async def aread(kvstore: Any, keys: Keys) -> Values:
    """Read all keys in one round trip with the async engine."""
    if not getattr(kvstore, "_is_initialized", False):
        await asyncio.to_thread(initialize, kvstore)
    statement, values = _select(kvstore, keys)
    engine = private(kvstore, "_async_engine")
    with own_loop(engine):
        async with engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")  # costs nothing with asyncpg
            return from_rows(keys, await connection.execute(statement, values))


def initialize(store: Any) -> None:
    """Create a store's engines and table."""
    with _initializing:
        private(store, "_initialize")()


@contextmanager
def autocommit(connection: Any) -> Iterator[None]:
    """Keep a SQLAlchemy connection from sending BEGIN and ROLLBACK, each a round trip.

    The driver is switched, because resetting SQLAlchemy's isolation level costs a round trip.
    """
    driver = connection.connection.driver_connection
    if getattr(driver, "autocommit", True):
        yield
        return
    driver.autocommit = True
    try:
        yield
    except BaseException:
        connection.invalidate()
        raise
    driver.autocommit = False


def _select(kvstore: Any, keys: Keys) -> tuple[Any, dict[str, Any]]:
    table = private(private(kvstore, "_table_class"), "__table__")
    values: dict[str, Any] = {}
    for place, (collection, ids) in enumerate(keys.items()):
        values[f"namespace_{place}"] = collection
        values[f"keys_{place}"] = list(ids)
    return _statement(table, len(keys)), values


@lru_cache(maxsize=64)
def _statement(table: Any, collections: int) -> Any:
    from sqlalchemy import ARRAY, String, Text, and_, any_, bindparam, cast, or_, select

    c = table.c
    each = (
        and_(
            c.namespace == bindparam(f"namespace_{place}"),
            c.key == any_(bindparam(f"keys_{place}", type_=ARRAY(String))),
        )
        for place in range(collections)
    )
    return select(c.namespace, c.key, cast(c.value, Text)).where(or_(*each))

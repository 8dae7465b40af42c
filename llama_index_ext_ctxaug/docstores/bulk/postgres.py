"""Bulk read of Postgres: one SELECT outside a transaction, so that BEGIN costs no round trip."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
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
    async with aconnection(private(kvstore, "_async_engine")) as connection:
        return from_rows(keys, await connection.execute(statement, values))


@asynccontextmanager
async def aconnection(engine: Any) -> AsyncIterator[Any]:
    """Connect an async engine; without a transaction, unless the engine is set up for a pooler."""
    with own_loop(engine):
        async with engine.connect() as connection:
            # A pooler in transaction mode may send each statement outside a transaction to another server,
            # where what asyncpg has prepared does not exist.
            if not _pooled(await connection.get_raw_connection()):
                await connection.execution_options(isolation_level="AUTOCOMMIT")  # no round trip in asyncpg
            yield connection


def _pooled(connection: Any) -> bool:
    """True if statements are not cached, as asyncpg and SQLAlchemy advise for pgbouncer."""
    cached = getattr(connection.dbapi_connection, "_prepared_statement_cache", True) is not None
    config = getattr(connection.driver_connection, "_config", None)
    return not cached or getattr(config, "statement_cache_size", 1) == 0


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

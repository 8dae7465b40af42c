"""The one-round-trip reads that particular key-value stores offer, found by the store's type.

Most docstores are a `KVDocumentStore` over a key-value store that has no read of many keys, so core
reads one key after another. A bulk read registered here reads all keys of a round at once: nodes and
documents' lists alike. Nothing is imported before a store of that type is in use.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.storage.kvstore.types import BaseKVStore

Keys = Mapping[str, Sequence[str]]
"""Keys to read, by the collection of the key-value store that holds them."""

Values = Mapping[str, Mapping[str, Any]]
"""What was found, by collection and key: a JSON value as text or parsed; keys not found are left out."""


class BulkRead(NamedTuple):
    """How to read many keys of one kind of key-value store in one round trip.

    Attributes:
        read: `read(kvstore, keys) -> values`.
        aread: the same without blocking the event loop; None where `read` in a thread does it.
    """

    read: Callable[[Any, Keys], Values]
    aread: Callable[[Any, Keys], Awaitable[Values]] | None = None


_registered: dict[str, BulkRead] = {}


def register_bulk_read(
    kvstore: type[BaseKVStore] | str,
    read: Callable[[Any, Keys], Values],
    aread: Callable[[Any, Keys], Awaitable[Values]] | None = None,
) -> None:
    """Tell how many keys of a kind of key-value store are read in one round trip.

    It serves every `KVDocumentStore` over that kind of store, unless the docstore or a subclass of the
    key-value store has a read of its own (`get_nodes`, `get_document`, `get` ...), which is then used.
    A docstore that is no `KVDocumentStore` needs no registration: its `get_nodes` is what is called.

    Args:
        kvstore: the class of the key-value store, or its qualified name, so that it need not be imported.
        read: `read(kvstore, keys) -> values`, both by collection; values are JSON, as text or parsed.
            It raises `NotImplementedError` where this very store cannot do it, and the store's own
            methods are used instead.
        aread: the same as a coroutine; without one, or where it raises `NotImplementedError`, `read`
            runs in a thread.

    Example:
        ```python
        def read(kvstore, keys):
            return {name: kvstore.client.get_many(name, ids) for name, ids in keys.items()}

        register_bulk_read(MyKVStore, read)
        ```
    """
    name = kvstore if isinstance(kvstore, str) else _name(kvstore)
    _registered[name] = BulkRead(read, aread)


def bulk_read_of(docstore: BaseDocumentStore) -> BulkRead | None:
    """The bulk read that gives what this docstore's own methods would give; None where there is none."""
    if not isinstance(docstore, KVDocumentStore) or not _inherits(docstore, KVDocumentStore, _READS):
        return None
    kvstore = getattr(docstore, "_kvstore", None)
    for base in type(kvstore).__mro__:
        bulk = _registered.get(_name(base))
        if bulk is not None:
            return bulk if _inherits(kvstore, base, ("get", "aget")) else None
    return None


_READS = (
    *("get_nodes", "get_node", "get_document", "get_ref_doc_info"),
    *("aget_nodes", "aget_node", "aget_document", "aget_ref_doc_info"),
)
"""The methods of a docstore that a bulk read stands in for."""


def _inherits(store: object, base: type, names: Iterable[str]) -> bool:
    """Whether neither a store nor its class, which may be patched at any time, has methods of its own."""
    own, kind = vars(store), type(store)
    return all(name not in own and getattr(kind, name) is getattr(base, name) for name in names)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def private(store: Any, name: str) -> Any:
    """A private attribute of a store, which another version of it may have moved.

    Raises:
        NotImplementedError: the store has no such attribute, or it is None.
    """
    value = getattr(store, name, None)
    if value is None:
        raise NotImplementedError(f"it has no {name}")
    return value


_loops: weakref.WeakKeyDictionary[Any, Callable[[], object]] = weakref.WeakKeyDictionary()
"""For async clients with a pool of connections: the event loop that those connections belong to."""


@contextmanager
def own_loop(client: Any) -> Iterator[None]:
    """Use an async client whose pooled connections belong to the event loop that opened them.

    A pool that serves a second loop hands out connections that hang in the first one. So the first
    loop seen here keeps the client, and the others are told to do without.

    Raises:
        NotImplementedError: the client's connections belong to another loop.
    """
    loop = asyncio.get_running_loop()
    if _loops.setdefault(client, weakref.ref(loop))() is not loop:
        raise NotImplementedError("its async client belongs to another event loop")
    try:
        yield
    except Exception as error:
        if not of_another_loop(error):
            raise
        _loops[client] = lambda: None
        raise NotImplementedError("its async client belongs to another event loop") from error


def of_another_loop(error: Exception) -> bool:
    """Whether an error says that a connection belongs to another event loop, closed or running."""
    text = str(error)
    return any(part in text for part in _LOOP_ERRORS)


_LOOP_ERRORS = (
    "Event loop is closed",
    "attached to a different loop",
    "bound to a different event loop",
    "another operation is in progress",  # asyncpg, of a connection that a first such error left behind
)


def _read_memory(kvstore: Any, keys: Keys) -> Values:
    return {
        name: _found(ids, [kvstore.get(id_, collection=name) for id_ in ids]) for name, ids in keys.items()
    }


async def _aread_memory(kvstore: Any, keys: Keys) -> Values:
    return _read_memory(kvstore, keys)


def _read_redis(kvstore: Any, keys: Keys) -> Values:
    client = private(kvstore, "_redis_client")
    if len(keys) == 1:
        [(collection, ids)] = keys.items()
        return {collection: _found(ids, client.hmget(collection, ids))}
    with client.pipeline(transaction=False) as pipe:
        for collection, ids in keys.items():
            pipe.hmget(collection, ids)
        return _each_found(keys, pipe.execute())


async def _aread_redis(kvstore: Any, keys: Keys) -> Values:
    client = private(kvstore, "_async_redis_client")
    with own_loop(client):
        if len(keys) == 1:
            [(collection, ids)] = keys.items()
            return {collection: _found(ids, await client.hmget(collection, ids))}
        async with client.pipeline(transaction=False) as pipe:
            for collection, ids in keys.items():
                pipe.hmget(collection, ids)
            return _each_found(keys, await pipe.execute())


def _each_found(keys: Keys, answers: Sequence[Sequence[Any]]) -> Values:
    return {name: _found(ids, found) for (name, ids), found in zip(keys.items(), answers, strict=True)}


def _found(ids: Sequence[str], values: Sequence[Any]) -> Mapping[str, Any]:
    return {id_: value for id_, value in zip(ids, values, strict=True) if value is not None}


_initializing = threading.Lock()
"""The Postgres store makes its engines and its table when first used: by one thread at a time."""


def _initialize(kvstore: Any) -> None:
    with _initializing:
        private(kvstore, "_initialize")()


def _read_postgres(kvstore: Any, keys: Keys) -> Values:
    if not getattr(kvstore, "_is_initialized", False):
        _initialize(kvstore)
    statement, values = _select_postgres(private(kvstore, "_table_class"), keys)
    with private(kvstore, "_engine").connect() as connection, _autocommit(connection):
        return _rows(keys, connection.execute(statement, values))


@contextmanager
def _autocommit(connection: Any) -> Iterator[None]:
    """Have a connection of SQLAlchemy send no BEGIN and ROLLBACK, which would be round trips.

    It is switched at the driver: SQLAlchemy's isolation level costs a round trip when it is taken back.
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


async def _aread_postgres(kvstore: Any, keys: Keys) -> Values:
    if not getattr(kvstore, "_is_initialized", False):
        await asyncio.to_thread(_initialize, kvstore)
    statement, values = _select_postgres(private(kvstore, "_table_class"), keys)
    engine = private(kvstore, "_async_engine")
    with own_loop(engine):
        async with engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")  # costs nothing with asyncpg
            return _rows(keys, await connection.execute(statement, values))


def _select_postgres(table_class: Any, keys: Keys) -> tuple[Any, dict[str, Any]]:
    values: dict[str, Any] = {}
    for place, (collection, ids) in enumerate(keys.items()):
        values[f"namespace_{place}"] = collection
        values[f"keys_{place}"] = list(ids)
    return _postgres_statement(private(table_class, "__table__"), len(keys)), values


@lru_cache(maxsize=64)
def _postgres_statement(table: Any, collections: int) -> Any:
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


def _read_duckdb(kvstore: Any, keys: Keys) -> Values:
    pairs = [(collection, id_) for collection, ids in keys.items() for id_ in ids]
    # A join with the keys: point queries and IN lists scan the table once for each key.
    rows = private(kvstore, "client").execute(
        f"SELECT collection, key, value FROM {private(kvstore, 'table_name')} "
        "WHERE (collection, key) IN (SELECT unnest(?), unnest(?))",
        [[collection for collection, _ in pairs], [id_ for _, id_ in pairs]],
    )
    return _rows(keys, rows.fetchall())


def _rows(keys: Keys, rows: Any) -> Values:
    values: dict[str, dict[str, Any]] = {collection: {} for collection in keys}
    for collection, key, value in rows:
        values[collection][key] = value
    return values


register_bulk_read(
    "llama_index.core.storage.kvstore.simple_kvstore.SimpleKVStore", _read_memory, _aread_memory
)
register_bulk_read("llama_index.storage.kvstore.redis.base.RedisKVStore", _read_redis, _aread_redis)
register_bulk_read(
    "llama_index.storage.kvstore.postgres.base.PostgresKVStore", _read_postgres, _aread_postgres
)
register_bulk_read("llama_index.storage.kvstore.duckdb.base.DuckDBKVStore", _read_duckdb)

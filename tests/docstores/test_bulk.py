"""Few round trips: bulk reads, the fallbacks without them, and stores without an async side."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import redis
from helpers import Postprocess, ids
from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.storage.kvstore import SimpleKVStore
from llama_index.storage.docstore.postgres import PostgresDocumentStore
from llama_index.storage.docstore.redis import RedisDocumentStore
from llama_index.storage.kvstore.redis import RedisKVStore
from sqlalchemy import create_engine
from sqlalchemy.exc import ProgrammingError

from llama_index_ext_ctxaug import PrevNextNodePostprocessor, register_bulk_read
from llama_index_ext_ctxaug.docstores import store_call, strategies
from llama_index_ext_ctxaug.docstores.bulk.registry import Keys, Values, bulk_read_of
from llama_index_ext_ctxaug.docstores.event_loops import own_loop
from llama_index_ext_ctxaug.testing import ObservedDocstore, Relay, hits, linked_document


@pytest.fixture(autouse=True)
def _log_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_call, "_logged", set())


class ManyKVStore(SimpleKVStore):
    """A key-value store with a read of many keys."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[dict[str, list[str]]] = []

    def get_many(self, keys: Keys) -> Values:
        """Return all values at once."""
        self.reads.append({name: list(ids) for name, ids in keys.items()})
        return {
            name: {id_: value for id_ in ids if (value := self.get(id_, name)) is not None}
            for name, ids in keys.items()
        }


register_bulk_read(ManyKVStore, ManyKVStore.get_many)


def filled(docstore: BaseDocumentStore, count: int = 12) -> list[Any]:
    """Add a document's chunks to a docstore and return them."""
    chain = linked_document(count)
    docstore.add_documents(chain)
    return chain


def test_a_registered_read_serves_nodes_and_lists_together(postprocess: Postprocess) -> None:
    """Nodes and document lists of one batch are read in one bulk call."""
    docstore = KVDocumentStore(ManyKVStore())
    chain = filled(docstore)
    docstore._kvstore.reads.clear()
    nodes = postprocess(
        PrevNextNodePostprocessor(docstore=docstore, num_nodes=4, mode="both"), hits(chain, [5])
    )
    assert ids(nodes) == ids(chain[1:10])
    first, second = docstore._kvstore.reads
    assert first["docstore/ref_doc_info"] == ["doc"]
    assert sorted(first["docstore/data"]) == sorted(ids([chain[4], chain[6]]))
    assert sorted(second["docstore/data"]) == sorted(ids([*chain[1:4], *chain[7:10]]))


def test_the_lists_of_old_stores_are_read(postprocess: Postprocess) -> None:
    """A document list under the key of old versions saves round trips too."""
    docstore = KVDocumentStore(ManyKVStore())
    chain = filled(docstore)
    docstore._kvstore.put("doc", {"doc_ids": ids(chain), "extra_info": {}}, docstore._ref_doc_collection)
    docstore._kvstore.reads.clear()
    nodes = postprocess(PrevNextNodePostprocessor(docstore=docstore, num_nodes=5), hits(chain, [5]))
    assert ids(nodes) == ids(chain[5:11])
    assert len(docstore._kvstore.reads) == 2


def test_a_client_without_an_async_side_is_asked_for_all_documents_in_a_thread() -> None:
    """If a bulk read is sync only, the store's other async methods, which may block, are not called."""

    class Blocking(ManyKVStore):
        async def aget_all(self, collection: str = "data") -> dict[str, dict]:
            raise AssertionError("it blocks the event loop")

    docstore = KVDocumentStore(Blocking())
    pages = [linked_document(1, source_id=f"p{n}", metadata={"file": "f", "page_label": n}) for n in (1, 2)]
    for page in pages:
        docstore.add_documents(page)
    augmenter = PrevNextNodePostprocessor(docstore=docstore, document_key="file")
    nodes = asyncio.run(augmenter.apostprocess_nodes(hits(pages[0], [0])))
    assert ids(nodes) == ids([pages[0][0], pages[1][0]])


def test_a_subclass_of_a_registered_store_is_served_too() -> None:
    """A registration covers subclasses that do not override the reads."""

    class Renamed(ManyKVStore):
        pass

    assert bulk_read_of(KVDocumentStore(Renamed())) is not None


def test_reads_of_ones_own_are_not_bypassed(postprocess: Postprocess) -> None:
    """A docstore, key-value store or instance that overrides read methods is read through them."""

    class Stripped(KVDocumentStore):
        def get_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
            node = super().get_document(doc_id, raise_error)
            if node is not None:
                node.set_content("read by get_document")  # type: ignore[attr-defined]
            return node

        async def aget_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
            return self.get_document(doc_id, raise_error)

    class Encrypted(ManyKVStore):
        def get(self, key: str, collection: str = "data") -> dict | None:
            return super().get(key, collection)

    docstore = Stripped(ManyKVStore())
    chain = filled(docstore)
    nodes = postprocess(PrevNextNodePostprocessor(docstore=docstore), hits(chain, [5]))
    assert nodes[1].node.get_content() == "read by get_document"
    patched = KVDocumentStore(ManyKVStore())
    patched.get_nodes = lambda *_, **__: []  # type: ignore[method-assign]
    wrapped = KVDocumentStore(ManyKVStore())
    wrapped._kvstore.aget = wrapped._kvstore.aget
    for other in (docstore, patched, wrapped, KVDocumentStore(Encrypted())):
        assert bulk_read_of(other) is None


def test_a_class_that_is_patched_while_it_is_in_use_is_read_in_that_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A patch of a docstore class, as tracers apply it, takes effect at the next read."""
    docstore = SimpleDocumentStore()
    chain = filled(docstore)
    augmenter = PrevNextNodePostprocessor(docstore=docstore)
    assert ids(augmenter.postprocess_nodes(hits(chain, [5]))) == ids(chain[5:7])
    monkeypatch.setattr(SimpleDocumentStore, "get_nodes", lambda *_, **__: [])
    assert ids(augmenter.postprocess_nodes(hits(chain, [5]))) == ids(chain[5:6])


@pytest.mark.parametrize(
    "name",
    [
        "llama_index.storage.kvstore.redis.base.RedisKVStore",
        "llama_index.storage.kvstore.postgres.base.PostgresKVStore",
        "llama_index.storage.kvstore.duckdb.base.DuckDBKVStore",
    ],
)
def test_a_version_that_moved_what_a_bulk_read_needs_is_read_publicly(
    name: str, postprocess: Postprocess, caplog: pytest.LogCaptureFixture
) -> None:
    """If a version lacks private attributes for a bulk read, public methods are used, logged once."""
    module, _, qualified = name.rpartition(".")
    moved = type(qualified, (SimpleKVStore,), {"__module__": module, "get": SimpleKVStore.get})
    docstore = KVDocumentStore(moved())
    assert bulk_read_of(docstore) is not None
    chain = filled(docstore)
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=4)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert ids(postprocess(augmenter, hits(chain, [5]))) == ids(chain[5:10])
    assert sum("read without bulk reads, since it has no " in line for line in caplog.messages) == 1


def redis_address(url: str) -> tuple[str, int]:
    """Return host and port of a URL."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


def test_redis_takes_two_round_trips(redis_url: str) -> None:
    """Three hops and more take two round trips on the wire, sync and async."""
    with Relay(redis_address(redis_url)) as relay:
        docstore = RedisDocumentStore(
            RedisKVStore(redis_uri=f"redis://127.0.0.1:{relay.port}"), namespace=uuid4().hex
        )
        chain = filled(docstore, 60)
        augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=5, mode="both")
        found = hits(chain, [10, 30, 50])
        wanted = ids([*chain[5:16], *chain[25:36], *chain[45:56]])
        before = relay.round_trips
        assert ids(augmenter.postprocess_nodes(found)) == wanted
        assert relay.round_trips - before == 2

        async def both_calls() -> int:
            await augmenter.apostprocess_nodes(found)  # opens the connection
            before = relay.round_trips
            assert ids(await augmenter.apostprocess_nodes(found)) == wanted
            await docstore._kvstore._async_redis_client.aclose()
            return relay.round_trips - before

        assert asyncio.run(both_calls()) == 2


def postgres_through(relay: Relay) -> dict[str, str]:
    """The connection strings of a Postgres server behind a relay."""
    return {
        "connection_string": f"postgresql+psycopg2://postgres:none@127.0.0.1:{relay.port}/postgres",
        "async_connection_string": f"postgresql+asyncpg://postgres:none@127.0.0.1:{relay.port}/postgres?ssl=disable",
    }


def test_postgres_takes_two_round_trips(
    postgres_socket: str, make_postgres_docstore: Callable[..., PostgresDocumentStore]
) -> None:
    """Three hops and more take two round trips on the wire, without a transaction, sync and async."""
    with Relay(postgres_socket) as relay:
        docstore = make_postgres_docstore(**postgres_through(relay))
        chain = filled(docstore, 60)
        augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=5, mode="both")
        found = hits(chain, [10, 30, 50])
        wanted = ids([*chain[5:16], *chain[25:36], *chain[45:56]])

        relay.sent.clear()
        before = relay.round_trips
        assert ids(augmenter.postprocess_nodes(found)) == wanted
        assert relay.round_trips - before == 2, bytes(relay.sent)
        assert relay.sent.count(b"SELECT") == 2
        assert not {word for word in (b"BEGIN", b"ROLLBACK") if word in relay.sent}

        async def both_calls() -> int:
            await augmenter.apostprocess_nodes(found)  # opens the connection and prepares the statements
            relay.sent.clear()
            before = relay.round_trips
            assert ids(await augmenter.apostprocess_nodes(found)) == wanted
            assert not {word for word in (b"BEGIN", b"ROLLBACK") if word in relay.sent}
            trips = relay.round_trips - before
            await docstore._kvstore._async_engine.dispose()
            return trips

        assert asyncio.run(both_calls()) == 2


def test_postgres_reads_jsonb_and_other_schemas(
    postprocess: Postprocess, make_postgres_docstore: Callable[..., PostgresDocumentStore]
) -> None:
    """A JSONB table in another schema is read like the default one."""
    docstore = make_postgres_docstore(use_jsonb=True, schema_name="other")
    chain = filled(docstore)
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=3, mode="both")
    assert ids(postprocess(augmenter, hits(chain, [5]))) == ids(chain[2:9])


def test_a_postgres_table_is_made_once(make_postgres_docstore: Callable[..., PostgresDocumentStore]) -> None:
    """Concurrent first queries on a store without a table create it once, off the event loop."""
    docstore = make_postgres_docstore(table_name=f"new_{uuid4().hex}")
    augmenter = PrevNextNodePostprocessor(docstore=docstore)
    chain = linked_document(3)

    async def ask_all() -> list[list]:
        return await asyncio.gather(*(augmenter.apostprocess_nodes(hits(chain, [1])) for _ in range(20)))

    assert [ids(nodes) for nodes in asyncio.run(ask_all())] == [[chain[1].node_id]] * 20


def autocommit_of(docstore: PostgresDocumentStore) -> bool:
    """Return the autocommit flag of the pool's next connection."""
    with docstore._kvstore._engine.connect() as connection:
        return connection.connection.driver_connection.autocommit


def test_a_read_leaves_a_postgres_connection_as_it_was(
    make_postgres_docstore: Callable[..., PostgresDocumentStore], postgres_url: str
) -> None:
    """A connection returns to the pool with its autocommit flag unchanged, after failed reads too."""
    docstore = make_postgres_docstore(table_name=f"gone_{uuid4().hex}")
    chain = filled(docstore)
    augmenter = PrevNextNodePostprocessor(docstore=docstore)
    assert len(augmenter.postprocess_nodes(hits(chain, [1]))) == 2
    assert not autocommit_of(docstore)
    docstore._kvstore._table_class.__table__.drop(docstore._kvstore._engine)
    with pytest.raises(ProgrammingError):
        augmenter.postprocess_nodes(hits(chain, [1]))
    assert not autocommit_of(docstore)
    engine = create_engine(
        postgres_url.replace("postgresql:", "postgresql+psycopg2:"), isolation_level="AUTOCOMMIT"
    )
    docstore = make_postgres_docstore(engine=engine)
    chain = filled(docstore)
    assert len(PrevNextNodePostprocessor(docstore=docstore).postprocess_nodes(hits(chain, [1]))) == 2
    assert autocommit_of(docstore)


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_a_client_used_in_an_earlier_event_loop(
    kind: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """If connections of a closed event loop remain, reads run in a thread, logged once."""
    docstore = request.getfixturevalue(f"make_{kind}_docstore")()
    chain = filled(docstore)
    assert asyncio.run(docstore.aget_node(chain[0].node_id)) is not None
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=3)
    with caplog.at_level(logging.WARNING, "llama_index_ext_ctxaug"):
        for _ in range(3):
            nodes = asyncio.run(augmenter.apostprocess_nodes(hits(chain, [2])))
            assert ids(nodes) == ids(chain[2:6])
    assert sum("belongs to another event loop" in line for line in caplog.messages) == 1


def test_redis_without_an_async_client(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Async calls read a docstore made from a sync client in a thread, in page order too."""
    client = redis.Redis.from_url(redis_url)
    docstore = RedisDocumentStore.from_redis_client(client, namespace=uuid4().hex)
    assert docstore._kvstore._async_redis_client is None
    pages = [
        linked_document(2, source_id=f"page-{n}", metadata={"file": "f", "page_label": n}) for n in (1, 2)
    ]
    for page in pages:
        docstore.add_documents(page)
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=3, document_key="file")
    with caplog.at_level(logging.WARNING, "llama_index_ext_ctxaug"):
        nodes = asyncio.run(augmenter.apostprocess_nodes(hits(pages[0], [0])))
    assert ids(nodes) == ids([*pages[0], *pages[1]])
    assert sum("async reads run in a thread" in line for line in caplog.messages) == 2  # one for each cause


def test_a_client_of_another_loop_is_tried_once() -> None:
    """A client with connections of another loop is not tried again, in any loop."""

    class Client:
        pass

    client, tries = Client(), []

    def fail() -> None:
        tries.append(1)
        raise RuntimeError("Event loop is closed")

    async def read() -> None:
        with own_loop(client):
            fail()

    async def read_twice() -> None:
        for _ in range(2):
            with pytest.raises(NotImplementedError, match="another event loop"):
                await read()

    asyncio.run(read_twice())
    asyncio.run(read_twice())
    assert len(tries) == 1


class SyncOnlyDocstore(SimpleDocumentStore):
    """A docstore without async methods."""

    async def aget_document(self, *_: object, **__: object) -> None:
        """Not implemented."""
        raise NotImplementedError

    async def aget_ref_doc_info(self, *_: object, **__: object) -> None:
        """Not implemented."""
        raise NotImplementedError


def test_async_methods_that_are_not_implemented(caplog: pytest.LogCaptureFixture) -> None:
    """If the store's async methods raise NotImplementedError, async calls read in a thread, logged once."""
    docstore = SyncOnlyDocstore()
    chain = filled(docstore)
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=3, mode="both")
    with caplog.at_level(logging.WARNING, "llama_index_ext_ctxaug"):
        for _ in range(2):
            nodes = asyncio.run(augmenter.apostprocess_nodes(hits(chain, [4])))
            assert ids(nodes) == ids(chain[1:8])
    assert sum("async reads run in a thread" in line for line in caplog.messages) == 1


@pytest.mark.parametrize(
    ("error", "instead"),
    [
        (RuntimeError("Task got Future attached to a different loop"), True),
        (RuntimeError("Event loop is closed"), True),
        (RuntimeError("the client is closed"), False),
        (ConnectionError("Event loop is closed"), False),
        (AttributeError("'Store' object has no attribute 'x'", name="x", obj=object()), False),
    ],
)
def test_a_client_of_another_loop_is_no_failing_store(error: Exception, instead: bool) -> None:
    """Async reads that fail because of another event loop run in a thread; other errors are raised."""

    class OfAnotherLoop(SimpleDocumentStore):
        async def aget_document(self, *_: object, **__: object) -> None:
            raise error

    docstore = OfAnotherLoop()
    chain = filled(docstore)
    call = PrevNextNodePostprocessor(docstore=docstore).apostprocess_nodes(hits(chain, [4]))
    if instead:
        assert ids(asyncio.run(call)) == ids(chain[4:6])
    else:
        with pytest.raises(type(error), match=str(error)):
            asyncio.run(call)


class CountingDocstore(ObservedDocstore):
    """A docstore with single reads that records how many run at a time, and in which threads."""

    def __init__(self, latency: float = 0.0, only_thread: int | None = None) -> None:
        super().__init__(SimpleDocumentStore(), single_reads=True, latency=latency)
        self.running = self.peak = 0
        self.threads: set[int] = set()
        self.only_thread = only_thread
        self._counting = threading.Lock()

    def _step(self, by: int) -> None:
        with self._counting:
            self.running += by
            self.peak = max(self.peak, self.running)
            self.threads.add(threading.get_ident())

    def get_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
        """Count the read."""
        if self.only_thread not in (None, threading.get_ident()):
            raise RuntimeError("this client may be used in the thread that made it only")
        self._step(1)
        try:
            return super().get_document(doc_id, raise_error)
        finally:
            self._step(-1)

    async def aget_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
        """Count the read."""
        self._step(1)
        try:
            return await super().aget_document(doc_id, raise_error)
        finally:
            self._step(-1)


@pytest.mark.parametrize("limit", [1, 3, 8])
def test_slow_single_reads_run_side_by_side(limit: int, postprocess: Postprocess) -> None:
    """Single reads of a slow store run concurrently, up to the limit."""
    docstore = CountingDocstore(latency=0.004)
    chain = filled(docstore, 40)
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=12, mode="both", max_concurrency=limit)
    assert ids(postprocess(augmenter, hits(chain, [20]))) == ids(chain[8:33])
    assert min(limit, 2) <= docstore.peak <= limit
    assert len(docstore.node_reads) == len(set(docstore.node_reads)) == 24


def test_a_read_of_many_that_is_sync_only_does_not_slow_the_async_one() -> None:
    """Async single reads run concurrently even if the store has a sync `get_nodes`."""
    docstore = CountingDocstore(latency=0.004)
    chain = filled(docstore, 40)
    docstore.get_nodes = lambda node_ids, raise_error=True: []  # type: ignore[method-assign]
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=12, mode="both")
    assert ids(asyncio.run(augmenter.apostprocess_nodes(hits(chain, [20])))) == ids(chain[8:33])
    assert docstore.peak > 1


def test_fast_single_reads_stay_in_their_thread(
    postprocess: Postprocess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An in-memory store is read without threads."""
    monkeypatch.setattr(strategies, "SLOW_READ", 1.0)  # on a busy machine fast reads may look slow
    docstore = CountingDocstore()
    chain = filled(docstore, 40)
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=12, mode="both")
    assert ids(postprocess(augmenter, hits(chain, [20]))) == ids(chain[8:33])
    assert docstore.threads == {threading.get_ident()}
    assert docstore.peak == 1


def test_one_read_at_a_time_needs_no_other_thread(
    postprocess: Postprocess, caplog: pytest.LogCaptureFixture
) -> None:
    """With max_concurrency=1, a slow store is read in the calling thread only."""
    docstore = CountingDocstore(latency=0.002, only_thread=threading.get_ident())
    chain = filled(docstore, 20)
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=5, mode="both", max_concurrency=1)
    assert ids(postprocess(augmenter, hits(chain, [10]))) == ids(chain[5:16])
    assert docstore.threads == {threading.get_ident()}
    assert caplog.messages == []


def test_a_client_of_one_thread(caplog: pytest.LogCaptureFixture) -> None:
    """A store that rejects other threads is read in the calling thread, logged once."""
    docstore = CountingDocstore(latency=0.002, only_thread=threading.get_ident())
    chain = filled(docstore, 20)
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=5, mode="both")
    for _ in range(2):
        assert ids(augmenter.postprocess_nodes(hits(chain, [10]))) == ids(chain[5:16])
    assert sum("it is read in one thread" in line for line in caplog.messages) == 1


def test_records_with_lone_surrogates_are_read(make_redis_docstore: Callable[[], RedisDocumentStore]) -> None:
    """Text that Python's JSON accepts and stricter parsers reject is returned unchanged."""
    docstore = make_redis_docstore()
    chain = linked_document(["first", "half a pair: \ud83d", "third"])
    docstore.add_documents(chain)
    nodes = PrevNextNodePostprocessor(docstore=docstore, num_nodes=2).postprocess_nodes(hits(chain, [0]))
    assert nodes[1].text == "half a pair: \ud83d"

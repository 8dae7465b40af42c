"""The conformance suite on each kind of docstore."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
import redis
from helpers import Postprocess
from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.storage.docstore.duckdb import DuckDBDocumentStore
from llama_index.storage.docstore.postgres import PostgresDocumentStore
from llama_index.storage.docstore.redis import RedisDocumentStore

from llama_index_ext_ctxaug import PrevNextNodePostprocessor, read_provenance
from llama_index_ext_ctxaug.testing import DocstoreConformance, ObservedDocstore, hits, linked_document


class TestSimpleDocumentStore(DocstoreConformance):
    """Core's docstore in memory."""

    @pytest.fixture
    def make_docstore(self) -> Callable[[], SimpleDocumentStore]:
        """Return a factory of empty docstores."""
        return SimpleDocumentStore


class TestRedis(DocstoreConformance):
    """Redis with a sync and an async client."""

    @pytest.fixture
    def make_docstore(
        self, make_redis_docstore: Callable[[], RedisDocumentStore]
    ) -> Callable[[], RedisDocumentStore]:
        """Return a factory of empty docstores."""
        return make_redis_docstore


class TestRedisClient(DocstoreConformance):
    """Redis made from a sync client, which leaves it without an async one."""

    @pytest.fixture
    def make_docstore(self, redis_url: str) -> Callable[[], RedisDocumentStore]:
        """Return a factory of empty docstores with a client that decodes responses."""
        client = redis.Redis.from_url(redis_url, decode_responses=True)
        return lambda: RedisDocumentStore.from_redis_client(client, namespace=uuid4().hex)


class TestPostgres(DocstoreConformance):
    """Postgres through psycopg2 and asyncpg, nodes as JSON."""

    @pytest.fixture
    def make_docstore(
        self, make_postgres_docstore: Callable[..., PostgresDocumentStore]
    ) -> Callable[[], PostgresDocumentStore]:
        """Return a factory of empty docstores."""
        return make_postgres_docstore


class TestDuckDB(DocstoreConformance):
    """DuckDB, with async reads in threads."""

    @pytest.fixture
    def make_docstore(
        self, make_duckdb_docstore: Callable[[], DuckDBDocumentStore]
    ) -> Callable[[], DuckDBDocumentStore]:
        """Return a factory of empty docstores."""
        return make_duckdb_docstore


class TestBatchingDocstore(DocstoreConformance):
    """A docstore with a `get_nodes` of its own."""

    @pytest.fixture
    def make_docstore(self) -> Callable[[], ObservedDocstore]:
        """Return a factory of empty docstores."""
        return lambda: ObservedDocstore(SimpleDocumentStore())


class TestSlowSingleReads(DocstoreConformance):
    """A remote docstore that reads one node at a time."""

    @pytest.fixture
    def make_docstore(self) -> Callable[[], ObservedDocstore]:
        """Return a factory of empty docstores."""
        return lambda: ObservedDocstore(SimpleDocumentStore(), single_reads=True, latency=0.001)


def _not_there(self: object, *args: object, **kwargs: object) -> object:
    raise NotImplementedError


@pytest.mark.parametrize("num_nodes", [1, 2, 5])
@pytest.mark.parametrize("bare", [False, True], ids=["with links", "bare"])
def test_a_store_that_reads_single_nodes_only(
    postprocess: Postprocess, caplog: pytest.LogCaptureFixture, num_nodes: int, bare: bool
) -> None:
    """A docstore with single reads only gives neighbors, up to a document's ends."""
    chain = linked_document(4)
    nodes = {node.node_id: node for node in chain}
    methods = dict.fromkeys(BaseDocumentStore.__abstractmethods__, _not_there)
    methods["get_document"] = lambda self, doc_id, raise_error=True: nodes.get(doc_id)
    docstore = type("SingleReads", (BaseDocumentStore,), methods)()
    found = [TextNode(id_=node.node_id, text=node.text) for node in chain] if bare else chain
    for options in ({}, {"output": "passages"}, {"document_key": "file_path"}):
        augmenter = PrevNextNodePostprocessor(docstore=docstore, mode="both", num_nodes=num_nodes, **options)
        result = postprocess(augmenter, hits(found, [0, 3]))
        held = [id_ for hit in result for id_ in _held(hit.node)]
        assert sorted(held) == sorted(nodes)
    assert not any(message.endswith("since ") for message in caplog.messages)


def _held(node: BaseNode) -> list[str]:
    provenance = read_provenance(node)
    pieces = provenance.pieces if provenance else ()
    return [piece.node_id for piece in pieces] or [node.node_id]

"""Ids of all kinds, and vector stores that are not run here: the requests sent and the results read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from helpers import Postprocess, ids
from llama_index.core import MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from pytest_httpserver import HTTPServer
from vector_stores import DIMENSIONS, MAKERS, FilledVectorStore, make_uuid
from werkzeug import Request, Response

from llama_index_ext_ctxaug import ConfigurationError, PrevNextNodePostprocessor, VectorStoreDocstore
from llama_index_ext_ctxaug.testing import hits, linked_document

pytestmark = pytest.mark.stores


class OpenSearchStub:
    """An index that answers the vector store's requests as OpenSearch does."""

    def __init__(self) -> None:
        self.records: dict[str, dict[str, Any]] = {}

    def answer(self, request: Request) -> Response:
        """Answer a request."""
        path = request.path.strip("/")
        body: Any = {"version": {"number": "3.0.0"}}
        if path == "_bulk":
            lines = [json.loads(line) for line in request.get_data().splitlines()]
            for action, source in zip(lines[::2], lines[1::2], strict=True):
                self.records[action["index"]["_id"]] = source
            body = {"errors": False, "items": [{"index": {"_id": "x", "status": 200}}]}
        elif path.endswith("_search"):
            body = {"hits": {"hits": list(self._found(request.json))}}
        return Response(json.dumps(body), content_type="application/json")

    def _found(self, search: dict[str, Any]) -> Any:
        assert search["_source"] == {"excludes": ["embedding"]}
        for id_, source in self.records.items():
            values = {f"metadata.{key}.keyword": value for key, value in source["metadata"].items()}
            values |= {"_id": id_}
            terms = [one["terms"] for one in search["query"]["bool"]["filter"]]
            if all(values.get(key) in wanted for term in terms for key, wanted in term.items()):
                kept = {key: value for key, value in source.items() if key != "embedding"}
                yield {"_id": id_, "_score": 0.0, "_source": kept}


def opensearch(httpserver: HTTPServer) -> BasePydanticVectorStore:
    """Return a store on a stub of OpenSearch."""
    from llama_index.vector_stores.opensearch import OpensearchVectorClient, OpensearchVectorStore

    httpserver.expect_request(re.compile(".*")).respond_with_handler(OpenSearchStub().answer)
    client = OpensearchVectorClient(httpserver.url_for("/").rstrip("/"), "nodes", DIMENSIONS)
    return OpensearchVectorStore(client)


def test_opensearch_is_read_by_searches(httpserver: HTTPServer, postprocess: Postprocess) -> None:
    """Neighbors, a document's list and the pages of a file are found with the real client."""
    docstore = FilledVectorStore(opensearch(httpserver))
    pages = [
        linked_document(3, source_id=name, make_id=make_uuid, metadata={"file": "f", "page_label": name})
        for name in ("1", "2")
    ]
    docstore.add_documents([*pages[1], *pages[0]])
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=4, document_key="file")
    assert ids(postprocess(augmenter, hits(pages[0], [1]))) == ids([*pages[0][1:], *pages[1]])
    assert docstore.get_ref_doc_info("1").node_ids == ids(pages[0])


@pytest.mark.parametrize("id_", [3, "3", UUID(int=7), str(UUID(int=7))], ids=str)
def test_qdrant_ids_that_are_numbers_or_uuids(id_: Any) -> None:
    """Numbers and UUIDs name points that another program stored."""
    from llama_index.vector_stores.qdrant import QdrantVectorStore
    from qdrant_client import QdrantClient
    from qdrant_client.models import Distance, PointStruct, VectorParams

    client = QdrantClient(":memory:")
    client.create_collection("n", VectorParams(size=2, distance=Distance.COSINE))
    for place, point in enumerate((3, str(UUID(int=7)))):
        client.upsert("n", [PointStruct(id=point, vector=[0.1, 0.2], payload={"text": f"text {place}"})])
    docstore = VectorStoreDocstore(QdrantVectorStore("n", client=client))
    [node] = docstore.get_nodes([id_], raise_error=False)
    assert node.get_content() == f"text {int(str(id_) != '3')}"


def test_uuids_in_another_spelling(postprocess: Postprocess) -> None:
    """UUID ids without hyphens are found, though Qdrant returns them with hyphens."""
    docstore = FilledVectorStore(MAKERS["qdrant"](Path()))
    chain = linked_document(5, make_id=lambda name: UUID(make_uuid(name)).hex)
    docstore.add_documents(chain)
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=3, mode="both")
    assert ids(postprocess(augmenter, hits(chain, [2]))) == ids(chain)


def test_numbers_in_metadata_name_neighbors_in_qdrant(postprocess: Postprocess) -> None:
    """Points with numbers as ids, linked by numbers in metadata, are neighbors."""
    from llama_index.vector_stores.qdrant import QdrantVectorStore
    from qdrant_client import QdrantClient
    from qdrant_client.models import Distance, PointStruct, VectorParams

    client = QdrantClient(":memory:")
    client.create_collection("n", VectorParams(size=2, distance=Distance.COSINE))
    for place in range(5):
        payload = {"text": f"text {place}", "prev_id": place - 1, "next_id": place + 1}
        client.upsert("n", [PointStruct(id=place, vector=[0.1, 0.2], payload=payload)])
    docstore = VectorStoreDocstore(QdrantVectorStore("n", client=client))
    [hit] = hits(docstore.get_nodes(["2"]), [0])
    augmenter = PrevNextNodePostprocessor(docstore=docstore, mode="both")
    assert ids(postprocess(augmenter, [hit])) == ["1", "2", "3"]


def test_faiss_is_read_through_the_docstore(postprocess: Postprocess) -> None:
    """FAISS keeps vectors under numbers: the index reads its docstore, and the store itself is rejected."""
    import faiss
    from llama_index.vector_stores.faiss import FaissVectorStore

    store = FaissVectorStore(faiss.IndexFlatL2(DIMENSIONS))
    chain = linked_document(6)
    context = StorageContext.from_defaults(vector_store=store)
    index = VectorStoreIndex(chain, storage_context=context, embed_model=MockEmbedding(embed_dim=DIMENSIONS))
    augmenter = PrevNextNodePostprocessor.from_index(index)
    assert ids(postprocess(augmenter, hits(chain, [2]))) == ids(chain[2:4])
    with pytest.raises(ConfigurationError, match=r"FaissVectorStore keeps no text: pass docstore=index\.doc"):
        VectorStoreDocstore(store)


class Unknown(BasePydanticVectorStore):
    """A vector store of an unknown class, with LlamaIndex's public methods only."""

    stores_text: bool = True
    nodes: list[TextNode] = []  # noqa: RUF012 - a field
    refuses: bool = False

    @property
    def client(self) -> None:
        """Return None: the store is in memory."""

    def add(self, nodes: list[BaseNode], **_: Any) -> list[str]:
        """Add nodes."""
        self.nodes.extend(nodes)
        return ids(nodes)

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Do nothing."""

    def query(self, query: Any, **_: Any) -> Any:
        """Find nothing."""

    def get_nodes(self, node_ids: list[str] | None = None, filters: Any = None) -> list[BaseNode]:
        """Return all nodes for the reader to filter, or refuse."""
        if self.refuses:
            raise NotImplementedError("not yet")
        return list(self.nodes)


def test_an_unknown_vector_store(postprocess: Postprocess) -> None:
    """An unknown store is read by its public methods, and nodes that were not requested are dropped."""
    store, chain = Unknown(), linked_document(12)
    store.add([*chain[6:], *chain[:6], *linked_document(3, source_id="other")])
    augmenter = PrevNextNodePostprocessor(docstore=VectorStoreDocstore(store), num_nodes=4, mode="both")
    assert ids(postprocess(augmenter, hits(chain, [5]))) == ids(chain[1:10])


def test_an_unknown_vector_store_that_cannot_be_read(postprocess: Postprocess) -> None:
    """If `get_nodes` is not implemented, the error says where to keep the nodes."""
    augmenter = PrevNextNodePostprocessor(docstore=VectorStoreDocstore(Unknown(refuses=True)))
    with pytest.raises(ConfigurationError, match=r"Unknown cannot read nodes by id \(not yet\): keep the no"):
        postprocess(augmenter, hits(linked_document(3), [1]))


class ByIdOnly(Unknown):
    """A vector store that reads by id alone, with None for an id that it lacks, as several do."""

    def get_nodes(self, node_ids: list[str] | None = None, filters: Any = None) -> list[BaseNode]:
        """Return a node or None for each id, and nothing for filters."""
        held = {node.node_id: node for node in self.nodes}
        return [held.get(id_) for id_ in node_ids or ()]  # type: ignore[misc]


def test_a_vector_store_that_reads_by_id_alone(postprocess: Postprocess) -> None:
    """If the store lists no document, links are followed; if it lacks a node, expansion ends."""
    store, chain = ByIdOnly(), linked_document(12)
    store.add([*chain[:2], *chain[3:]])
    augmenter = PrevNextNodePostprocessor(docstore=VectorStoreDocstore(store), num_nodes=4, mode="both")
    assert ids(postprocess(augmenter, hits(chain, [5]))) == ids(chain[3:10])


def test_a_vector_store_that_returns_nodes_without_their_text() -> None:
    """Vertex AI is refused: by default its `get_nodes` leaves out texts and relationships."""
    vertex = type(
        "VertexAIVectorStore",
        (Unknown,),
        {"__module__": "llama_index.vector_stores.vertexaivectorsearch.base"},
    )
    with pytest.raises(ConfigurationError, match="VertexAIVectorStore cannot read nodes by id: keep the no"):
        VectorStoreDocstore(vertex())


def test_without_links_or_numbers_a_vector_store_gives_no_order(
    postprocess: Postprocess, caplog: pytest.LogCaptureFixture
) -> None:
    """Without an order of insertion no neighbor is guessed, and a warning reports it."""
    store, chain = Unknown(), linked_document(5, links="none")
    store.add(chain)
    augmenter = PrevNextNodePostprocessor(docstore=VectorStoreDocstore(store))
    assert ids(postprocess(augmenter, hits(chain, [1]))) == ids(chain[1:2])
    assert any("1 neighbors are unknown" in line and "NeighborLinker" in line for line in caplog.messages)


def test_pages_without_numbers_are_not_joined(
    postprocess: Postprocess, caplog: pytest.LogCaptureFixture
) -> None:
    """Pages of a file without numbers are not joined, and a warning names the file."""
    store = Unknown()
    pages = [linked_document(1, source_id=uuid4().hex, metadata={"file": "f.pdf"}) for _ in range(3)]
    for page in pages:
        store.add(page)
    augmenter = PrevNextNodePostprocessor(docstore=VectorStoreDocstore(store), document_key="file")
    assert ids(postprocess(augmenter, hits(pages[0], [0]))) == ids(pages[0])
    assert any("'f.pdf'" in line and "page_key" in line for line in caplog.messages)


class _Fake:
    """An object with attributes, or a function that records its arguments and returns a result."""

    def __init__(self, result: Any = None, **attributes: Any) -> None:
        self.__dict__.update(attributes)
        self.result = result

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.called = (args, kwargs)
        return self.result


def test_neo4j_is_read_in_one_query() -> None:
    """Ids and values are parameters, and nodes come back whole."""
    from llama_index.core.vector_stores.utils import node_to_metadata_dict

    from llama_index_ext_ctxaug.docstores.vector_reads import neo4j

    [node] = linked_document(1)
    row = {"text": node.text, "metadata": {**node_to_metadata_dict(node, remove_text=True), "id": None}}
    query = _Fake([row])
    store = _Fake(
        database_query=query, text_node_property="text", embedding_node_property="v", node_label="Chunk"
    )
    assert neo4j.read(store, [node.node_id])[0].to_dict() == node.to_dict()
    assert query.called[1] == {"params": {"values_0": [node.node_id]}}
    neo4j.read(store, {"tenant": ["a"], "file": ["x"]})
    assert "n.`tenant` IN $values_0 AND n.`file` IN $values_1" in query.called[0][0]

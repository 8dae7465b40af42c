"""Stores return nodes with the same provenance."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from llama_index.core import Document
from llama_index.core.schema import BaseNode, NodeWithScore
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
from vector_stores import DIMENSIONS, make_uuid

from llama_index_ext_ctxaug import (
    PROVENANCE_KEY,
    MetadataReplacementPostProcessor,
    PrevNextNodePostprocessor,
    SlidingWindowPostprocessor,
    VectorStoreDocstore,
    cite,
    read_provenance,
)
from llama_index_ext_ctxaug.testing import docstore_of, hits, linked_document


@pytest.fixture
def nodes() -> list[BaseNode]:
    """Return a neighbor, a passage of three pages, a window of it, and a window from metadata."""
    texts = [f"Page {number} is about the number {number**5}. " * 4 for number in range(5)]
    chunks = linked_document(texts, make_id=make_uuid, metadata={"file_name": "a.pdf"}, offsets=True)
    for number, chunk in enumerate(chunks):
        chunk.metadata |= {"page_label": str(number), "window": "".join(texts[max(0, number - 1) :][:3])}
    store = docstore_of(chunks, [Document(text="".join(texts), id_=chunks[0].ref_doc_id)])
    found = hits(chunks, [2])
    added = PrevNextNodePostprocessor(docstore=store, num_nodes=1).postprocess_nodes(found)
    passages = PrevNextNodePostprocessor(docstore=store, mode="both", output="passages")
    (passage,) = passages.postprocess_nodes(found)
    windows = SlidingWindowPostprocessor(window_tokens=60, stride_tokens=30).postprocess_nodes([passage])
    replaced = MetadataReplacementPostProcessor("window").postprocess_nodes(found)
    made: list[NodeWithScore] = [added[1], passage, windows[1], *replaced]
    return [hit.node.model_copy(update={"embedding": [0.5] * DIMENSIONS}) for hit in made]


def check(stored: BaseNode, node: BaseNode) -> None:
    """Check that a node comes back with its provenance, and is cited as before."""
    assert read_provenance(stored) == read_provenance(node)
    assert read_provenance(node) is not None
    assert cite(stored) == cite(node)
    assert cite(node)


@pytest.mark.stores
def test_vector_stores(make_store: Callable[[], BasePydanticVectorStore], nodes: list[BaseNode]) -> None:
    """Each vector store accepts the nodes, and returns them with the same provenance, by id and by query."""
    for node in nodes:
        store = make_store()
        store.add([node])
        check(VectorStoreDocstore(store).get_node(node.node_id), node)
        if type(store).__name__ != "MongoDBAtlasVectorSearch":  # its server here has no vector search
            result = store.query(VectorStoreQuery(query_embedding=[0.5] * DIMENSIONS, similarity_top_k=1))
            (stored,) = result.nodes
            check(stored, node)


@pytest.mark.parametrize("make", ["make_redis_docstore", "make_postgres_docstore"])
def test_docstores(request: pytest.FixtureRequest, make: str, nodes: list[BaseNode]) -> None:
    """Redis and Postgres return the nodes with the same provenance."""
    docstore: BaseDocumentStore = request.getfixturevalue(make)()
    docstore.add_documents(nodes)
    for node in nodes:
        check(docstore.get_node(node.node_id), node)


def test_flat_metadata_and_pickle(nodes: list[BaseNode]) -> None:
    """Provenance is one string, which LlamaIndex's flat metadata and pickle keep."""
    for node in nodes:
        assert isinstance(node.metadata[PROVENANCE_KEY], str)
        flat = node_to_metadata_dict(node, flat_metadata=True)
        check(metadata_dict_to_node(flat), node)
        check(pickle.loads(pickle.dumps(node)), node)

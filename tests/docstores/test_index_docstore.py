"""Augmenters made from an index find its nodes wherever the index keeps them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import Postprocess, ids
from llama_index.core import Document, MockEmbedding, StorageContext, SummaryIndex, VectorStoreIndex
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser import HierarchicalNodeParser, SentenceSplitter, get_leaf_nodes
from llama_index.core.schema import BaseNode, NodeWithScore, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from llama_index.storage.docstore.redis import RedisDocumentStore
from vector_stores import DIMENSIONS, MAKERS

from llama_index_ext_ctxaug import (
    AutoMergingPostprocessor,
    ConfigurationError,
    PrevNextNodePostprocessor,
    VectorStoreDocstore,
)

TEXT = "One sentence about the harbor. Another sentence about the ferry. " * 60
EMBEDDING = MockEmbedding(embed_dim=DIMENSIONS)


@pytest.fixture
def chroma(tmp_path: Path) -> BasePydanticVectorStore:
    """Return an empty Chroma collection."""
    return MAKERS["chroma"](tmp_path)


def chunks() -> list[BaseNode]:
    """Return the chunks of one document."""
    return SentenceSplitter(chunk_size=64, chunk_overlap=0).get_nodes_from_documents([Document(text=TEXT)])


def index_of(nodes: list[BaseNode], **options: Any) -> VectorStoreIndex:
    """Return an index of nodes; options are passed to its storage context and the index."""
    stores = {key: options.pop(key) for key in ("vector_store", "docstore") if key in options}
    context = StorageContext.from_defaults(**stores)
    return VectorStoreIndex(nodes, storage_context=context, embed_model=EMBEDDING, **options)


def hit(node: BaseNode) -> list[NodeWithScore]:
    """Return a node as from a vector store that keeps only text: without relationships."""
    return [NodeWithScore(node=TextNode(id_=node.node_id, text=node.get_content()), score=0.5)]


def check(index: Any, nodes: list[BaseNode], postprocess: Postprocess) -> Any:
    """Check that a node's neighbors are found; return the docstore that holds them."""
    augmenter = PrevNextNodePostprocessor.from_index(index, num_nodes=2, mode="both")
    assert ids(postprocess(augmenter, hit(nodes[4]))) == ids(nodes[2:7])
    return augmenter.docstore


def test_an_index_in_memory(postprocess: Postprocess) -> None:
    """If the vector store keeps no text, or there is none, the index is read from its docstore."""
    nodes = chunks()
    for index in (index_of(nodes), SummaryIndex(nodes)):
        assert check(index, nodes, postprocess) is index.docstore


@pytest.mark.stores
def test_an_index_with_its_text_in_a_vector_store(
    chroma: BasePydanticVectorStore, postprocess: Postprocess
) -> None:
    """An index with an empty docstore is read from its vector store, reopened or not."""
    nodes = chunks()
    index = index_of(nodes, vector_store=chroma)
    for one in (index, VectorStoreIndex.from_vector_store(chroma, embed_model=EMBEDDING)):
        assert isinstance(check(one, nodes, postprocess), VectorStoreDocstore)


@pytest.mark.stores
def test_an_index_that_keeps_nodes_in_both(chroma: BasePydanticVectorStore, postprocess: Postprocess) -> None:
    """An index with store_nodes_override=True is read from its docstore."""
    nodes = chunks()
    index = index_of(nodes, vector_store=chroma, store_nodes_override=True)
    assert check(index, nodes, postprocess) is index.docstore


@pytest.mark.stores
@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_a_docstore_of_a_pipeline_holds_documents_only(
    kind: str,
    chroma: BasePydanticVectorStore,
    postprocess: Postprocess,
    make_redis_docstore: Callable[[], RedisDocumentStore],
) -> None:
    """Chunks missing from the docstore are read from the vector store."""
    docstore = SimpleDocumentStore() if kind == "memory" else make_redis_docstore()
    pipeline = IngestionPipeline(
        transformations=[SentenceSplitter(chunk_size=64, chunk_overlap=0)], docstore=docstore
    )
    nodes = list(pipeline.run(documents=[Document(text=TEXT)]))
    check(index_of(nodes, vector_store=chroma, docstore=docstore), nodes, postprocess)


@pytest.mark.stores
@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_parents_in_a_docstore_beside_leaves_in_a_vector_store(
    kind: str,
    chroma: BasePydanticVectorStore,
    postprocess: Postprocess,
    make_redis_docstore: Callable[[], RedisDocumentStore],
) -> None:
    """Leaves are merged into parents that only the docstore holds."""
    nodes = HierarchicalNodeParser.from_defaults([256, 64], chunk_overlap=0).get_nodes_from_documents(
        [Document(text=TEXT)]
    )
    docstore = SimpleDocumentStore() if kind == "memory" else make_redis_docstore()
    parents = [node for node in nodes if node.child_nodes]
    docstore.add_documents(parents)
    index = index_of(get_leaf_nodes(nodes), vector_store=chroma, docstore=docstore)
    augmenter = AutoMergingPostprocessor.from_index(index)
    leaves = {node.node_id: node for node in get_leaf_nodes(nodes)}
    found = [NodeWithScore(node=leaves[child.node_id], score=0.5) for child in parents[0].child_nodes]
    assert ids(postprocess(augmenter, found)) == ids(parents[:1])
    neighbors = PrevNextNodePostprocessor.from_index(index)
    with_next = postprocess(neighbors, found[:1])
    assert ids(with_next) == [child.node_id for child in parents[0].child_nodes[:2]]


class Unreadable(SimpleVectorStore):
    """A vector store that keeps text but cannot read nodes by id."""

    stores_text: bool = True
    get_nodes = BasePydanticVectorStore.get_nodes


def test_an_index_that_cannot_be_read() -> None:
    """The error names the remedy, unless the docstore holds nodes."""
    with pytest.raises(
        ConfigurationError, match=r"this index is empty.*Unreadable.*store_nodes_override=True"
    ):
        PrevNextNodePostprocessor.from_index(index_of([], vector_store=Unreadable()))
    docstore = SimpleDocumentStore()
    docstore.add_documents(chunks())
    index = index_of([], vector_store=Unreadable(), docstore=docstore)
    assert PrevNextNodePostprocessor.from_index(index).docstore is docstore
    with pytest.raises(ConfigurationError, match="must be a LlamaIndex index, got SimpleDocumentStore"):
        PrevNextNodePostprocessor.from_index(docstore)


@pytest.mark.stores
def test_what_is_no_docstore_is_refused_with_the_way_out(chroma: BasePydanticVectorStore) -> None:
    """An index or vector store passed as the docstore raises an error that names what to pass instead."""
    with pytest.raises(ValueError, match=r"got VectorStoreIndex; use from_index\(index"):
        PrevNextNodePostprocessor(docstore=index_of([]))
    with pytest.raises(ValueError, match=r"pass docstore=VectorStoreDocstore\(vector_store\)"):
        PrevNextNodePostprocessor(docstore=chroma)

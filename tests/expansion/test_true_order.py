"""In random corpora neighbors are the true ones, and found wherever something shows them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from corpora import File, corpora
from helpers import ids
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import BaseNode, NodeWithScore
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.storage.docstore.types import BaseDocumentStore

from llama_index_ext_ctxaug import NeighborLinker, PrevNextNodePostprocessor

KEYS = st.sampled_from([None, "file_name", ("tenant", "file_name")])


@contextmanager
def log_messages() -> Iterator[list[str]]:
    """Collect the log messages of the package."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("llama_index_ext_ctxaug")
    log.addHandler(handler)
    try:
        yield messages
    finally:
        log.removeHandler(handler)


def true_order(file: File, hit_id: str, key: Any) -> list[str]:
    """The leaves of the document of a hit in reading order; pages are documents without a key."""
    pages = [page for page in file.pages if hit_id in page or key is not None]
    return [id_ for page in pages for id_ in page]


def are_mixed_up(files: Sequence[File], key: Any) -> bool:
    """True if files of two tenants are one by this key."""
    return key == "file_name" and sum("file_name" in file.stored[0].metadata for file in files) > 1


def stored(files: Sequence[File], store: BaseDocumentStore) -> BaseDocumentStore:
    """A store that holds the nodes of the files."""
    for file in files:
        store.add_documents(file.stored)
    return store


def as_retrieved(draw: Callable[..., Any], node: BaseNode) -> NodeWithScore:
    """A hit, from a vector store that keeps relationships or from one that keeps none but the source."""
    if draw(st.booleans()):
        kept = {key: value for key, value in node.relationships.items() if key.name == "SOURCE"}
        node = node.model_copy(update={"relationships": kept})
    return NodeWithScore(node=node)


def check(data: st.DataObject, store: BaseDocumentStore, ways: Sequence[Literal["sync", "async"]]) -> None:
    """Expand a random hit, and compare with the true order."""
    files = data.draw(corpora())
    stored(files, store)
    nodes = {node.node_id: node for file in files for node in file.stored}
    leaves = [id_ for file in files for page in file.pages for id_ in page]
    hit = as_retrieved(data.draw, nodes[data.draw(st.sampled_from(leaves))])
    hops, key = data.draw(st.integers(1, 5)), data.draw(KEYS)
    augmenter = PrevNextNodePostprocessor(docstore=store, num_nodes=hops, mode="both", document_key=key)
    (file,) = [file for file in files if any(hit.node.node_id in page for page in file.pages)]
    order = true_order(file, hit.node.node_id, key)
    for way in ways:
        with log_messages() as messages:
            if way == "sync":
                found = ids(augmenter.postprocess_nodes([hit]))
            else:
                found = ids(asyncio.run(augmenter.apostprocess_nodes([hit])))
        assert {nodes[id_].metadata["tenant"] for id_ in found} == {file.tenant}
        place = order.index(hit.node.node_id)
        expected = order[max(0, place - hops) : place + hops + 1]
        if file.is_shown and not are_mixed_up(files, key):
            assert found == expected
        elif not any("guess" in message for message in messages):
            start = expected.index(found[0])
            assert found == expected[start : start + len(found)]


@given(st.data())
def test_in_memory(data: st.DataObject) -> None:
    """Core's docstore in memory."""
    check(data, SimpleDocumentStore(), ["sync", "async"])


@given(st.data())
def test_on_redis(make_redis_docstore: Callable[[], BaseDocumentStore], data: st.DataObject) -> None:
    """Redis, whose list of documents is in no order."""
    check(data, make_redis_docstore(), ["sync", "async"])


@given(corpora(), KEYS, st.booleans())
def test_linked_at_ingestion(files: list[File], key: Any, across: bool) -> None:
    """Links that NeighborLinker sets never lead to another document or tenant, and filters hold over them."""
    nodes = [node for file in files for node in file.stored]
    linked = NeighborLinker(document_key=key, across_parents=across)(nodes)
    tenants = {node.node_id: node.metadata["tenant"] for node in linked}
    for node in linked:
        for related in (node.prev_node, node.next_node):
            assert related is None or tenants[related.node_id] == tenants[node.node_id]
    store = SimpleDocumentStore()
    store.add_documents(linked)
    for key_then in (None, "file_name", ("tenant", "file_name")):
        augmenter = PrevNextNodePostprocessor(docstore=store, num_nodes=9, mode="both", document_key=key_then)
        for node in linked:
            found = augmenter.postprocess_nodes([NodeWithScore(node=node)])
            assert {hit.node.metadata["tenant"] for hit in found} == {node.metadata["tenant"]}


@given(corpora())
def test_ingestion_and_query_time_agree(files: list[File]) -> None:
    """Where the nodes show their order, NeighborLinker links what the postprocessor finds without it."""
    for file in files:
        if not file.is_shown or len(file.pages) > 1:
            continue
        order = file.pages[0]
        linked = {node.node_id: node for node in NeighborLinker()(file.stored)}
        for id_, following in zip(order, (*order[1:], None), strict=True):
            related = linked[id_].next_node
            assert (related.node_id if related else None) == following

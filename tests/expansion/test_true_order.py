"""In random corpora neighbors are correct, and found wherever something shows them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from corpora import OWNERS, File, corpora
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, NodeWithScore
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.vector_stores import FilterCondition, MetadataFilter, MetadataFilters

from llama_index_ext_ctxaug import (
    BRSRPostprocessor,
    EmbeddingRescorePostprocessor,
    NeighborLinker,
    PrevNextNodePostprocessor,
    RelevantSegmentsPostprocessor,
    SectionPostprocessor,
    WholeDocumentsPostprocessor,
)
from llama_index_ext_ctxaug.testing import WordEmbedding
from llama_index_ext_ctxaug.testing.calls import dicts, run_async, run_sync, stored_ids_in

FILTERS = (
    lambda node: "a" in (node.metadata.get(owner) for owner in OWNERS),
    MetadataFilters(
        filters=[MetadataFilter(key=owner, value="a") for owner in OWNERS], condition=FilterCondition.OR
    ),
)
"""Filters that let the nodes of tenant a pass."""

KEYS = st.sampled_from([None, "file_name", ("owner", "file_name")])


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


def named(key: Any, files: Sequence[File]) -> Any:
    """Return the document_key, with the key under which a file's pages name their owner."""
    owner = next((file.owner for file in files if len(file.stored) and file.owner != "tenant"), "tenant")
    return (owner, "file_name") if isinstance(key, tuple) else key


def may_be_mixed(files: Sequence[File], key: Any) -> bool:
    """Return True if this key joins files of two tenants and nothing names their owners."""
    pages = [file for file in files if "file_name" in file.stored[0].metadata]
    return key == "file_name" and len(pages) > 1 and pages[0].owner == "mandant"


def as_retrieved(draw: Callable[..., Any], node: BaseNode) -> NodeWithScore:
    """Return a hit from a vector store that keeps all relationships, or only the source."""
    if draw(st.booleans()):
        kept = {key: value for key, value in node.relationships.items() if key.name == "SOURCE"}
        node = node.model_copy(update={"relationships": kept})
    return NodeWithScore(node=node, score=draw(st.sampled_from([0.9, 0.5])))


def called(augmenter: BaseNodePostprocessor, found: list[NodeWithScore]) -> tuple[list[list[str]], list[str]]:
    """Return the stored ids in each node of the output, equal sync and async, and the log messages."""
    with log_messages() as messages:
        result = run_sync(augmenter, found)
    with log_messages() as again:
        other = run_async(augmenter, found)
    assert repr(dicts(result)) == repr(dicts(other))  # NaN is not equal to itself
    assert messages == again
    return [stored_ids_in(hit) for hit in result], messages


def runs(order: Sequence[str], found: Collection[str]) -> list[list[str]]:
    """Return the found nodes of a document in the runs in which they follow one another."""
    parts: list[list[str]] = [[]]
    for id_ in order:
        if id_ in found:
            parts[-1].append(id_)
        elif parts[-1]:
            parts.append([])
    return [part for part in parts if part]


def linked(files: Sequence[File], key: Any) -> list[BaseNode]:
    """Return the nodes of the files, linked if they show their order without doubt."""
    shown = [node for file in files if file.is_shown for node in file.stored]
    linker = NeighborLinker(document_key=key)
    doubtful = any(problem.kind == "differing_page" for problem in linker.check(shown).problems)
    rest = [node for file in files if not file.is_shown for node in file.stored]
    return [*(shown if doubtful else linker(shown)), *rest]


def check(data: st.DataObject, store: BaseDocumentStore) -> None:
    """Expand random hits with a random augmenter, and compare with the true order."""
    files = data.draw(corpora())
    key = named(data.draw(KEYS), files)
    links, filters = data.draw(st.booleans()), data.draw(st.sampled_from([None, *FILTERS]))
    stored_nodes = linked(files, key) if links else [node for file in files for node in file.stored]
    store.add_documents(stored_nodes)
    nodes = {node.node_id: node for node in stored_nodes}
    home = {id_: file for file in files for page in file.pages for id_ in page}
    hit_ids = data.draw(st.lists(st.sampled_from(list(home)), min_size=1, max_size=4, unique=True))
    found = [as_retrieved(data.draw, nodes[id_]) for id_ in hit_ids]
    hops, kind = data.draw(st.integers(1, 5)), data.draw(st.sampled_from(list(AUGMENTERS)))
    augmenter = AUGMENTERS[kind](hops, docstore=store, document_key=key, neighbor_filters=filters)
    output, messages = called(augmenter, found)
    taken = {id_ for group in output for id_ in group}
    assert filters is None or {home[id_].tenant for id_ in taken - set(hit_ids)} <= {"a"}
    if any("though they differ in" in message for message in messages):
        assert may_be_mixed(files, key)
        return
    orders = {tuple(home[id_].order(id_, key)) for id_ in hit_ids}
    guessed = any("guess" in message for message in messages)
    for group in output:
        (order,) = (order for order in orders if group[0] in order)
        assert set(group) <= set(order)
        places = [order.index(id_) for id_ in group]
        # Runs that no neighbor joins keep their rank where no offset in the document shows their order.
        measured = all(
            nodes[id_].parent_node is None and getattr(nodes[id_], "start_char_idx", None) is not None
            for id_ in group
        )
        is_shown = home[order[0]].is_shown and (measured or len(runs(order, group)) == 1)
        by_rank = kind == "passages" and not is_shown
        assert guessed or by_rank or places == sorted(places)
    if kind in ("prev_next", "passages"):
        for order in orders:
            near = [order.index(id_) for id_ in hit_ids if id_ in order]
            within = [id_ for place, id_ in enumerate(order) if any(abs(place - one) <= hops for one in near)]
            if filters is not None and home[order[0]].tenant != "a":
                assert taken & set(order) == set(hit_ids) & set(order)
            elif home[order[0]].is_shown and not may_be_mixed(files, key):
                assert taken & set(order) == set(within)
            elif not guessed:
                assert taken & set(order) <= set(within)
                assert all(set(run) & set(hit_ids) for run in runs(order, taken))


AUGMENTERS: dict[str, Callable[..., BaseNodePostprocessor]] = {
    "prev_next": lambda hops, **keys: PrevNextNodePostprocessor(num_nodes=hops, mode="both", **keys),
    "passages": lambda hops, **keys: PrevNextNodePostprocessor(
        num_nodes=hops, mode="both", output="passages", passage_scope="document", **keys
    ),
    "section": lambda hops, **keys: SectionPostprocessor(
        expansion_tokens=8 * hops, output="passages", **keys
    ),
    "brsr": lambda hops, **keys: BRSRPostprocessor(
        expansion_tokens=8 * hops,
        window_tokens=24,
        stride_tokens=12,
        embed_model=WordEmbedding(),
        overlap="merge",
        max_context_tokens=None,
        **keys,
    ),
    "segments": lambda hops, **keys: RelevantSegmentsPostprocessor(
        reach=hops, reranker=EmbeddingRescorePostprocessor(embed_model=WordEmbedding()), **keys
    ),
    "whole": lambda hops, **keys: WholeDocumentsPostprocessor(output="passages", **keys),
}


@given(st.data())
def test_in_memory(data: st.DataObject) -> None:
    """Core's docstore in memory."""
    check(data, SimpleDocumentStore())


@given(st.data())
def test_on_redis(make_redis_docstore: Callable[[], BaseDocumentStore], data: st.DataObject) -> None:
    """Redis, which lists documents in no order."""
    check(data, make_redis_docstore())


@given(corpora(), KEYS, st.booleans())
def test_linked_at_ingestion(files: list[File], key: Any, across: bool) -> None:
    """Links that NeighborLinker sets never lead to another document or tenant."""
    key = named(key, files)
    tenants = {node.node_id: file.tenant for file in files for node in file.stored}
    linker = NeighborLinker(document_key=key, across_parents=across)
    nodes = [node for file in files for node in file.stored]
    if any(problem.kind == "differing_page" for problem in linker.check(nodes).problems):
        assert may_be_mixed(files, key)
        return
    result = linker(nodes)
    for node in result:
        for related in (node.prev_node, node.next_node):
            assert related is None or tenants[related.node_id] == tenants[node.node_id]
    store = SimpleDocumentStore()
    store.add_documents(result)
    for key_then in (None, "file_name", named((), files)):
        augmenter = PrevNextNodePostprocessor(docstore=store, num_nodes=9, mode="both", document_key=key_then)
        for node in result:
            with log_messages() as messages:
                found = augmenter.postprocess_nodes([NodeWithScore(node=node)])
            if not any("though they differ in" in message for message in messages):
                assert {tenants[hit.node.node_id] for hit in found} == {tenants[node.node_id]}


@given(corpora())
def test_ingestion_and_query_time_agree(files: list[File]) -> None:
    """If the nodes show their order, NeighborLinker links what the postprocessor finds without it."""
    for file in files:
        if not file.is_shown or len(file.pages) > 1:
            continue
        order = file.pages[0]
        linked = {node.node_id: node for node in NeighborLinker()(file.stored)}
        for id_, following in zip(order, (*order[1:], None), strict=True):
            related = linked[id_].next_node
            assert (related.node_id if related else None) == following

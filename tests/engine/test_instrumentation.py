"""Events: one start and one end for each outermost call, with the totals of all its steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from helpers import Postprocess, ids, recorded
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_index_ext_ctxaug import (
    BRSRPostprocessor,
    ContextAugmentationEndEvent,
    ContextAugmentationStartEvent,
    EmbeddingRescorePostprocessor,
    MetadataReplacementPostProcessor,
    PrevNextNodePostprocessor,
    RerankPostprocessor,
    SectionPostprocessor,
    SlidingWindowPostprocessor,
    TokenBudgetPostprocessor,
)
from llama_index_ext_ctxaug.testing import ObservedDocstore, WordEmbedding, docstore_of, hits, linked_document


@pytest.fixture
def events() -> Iterator[list[Any]]:
    """The start and end events of the test, in order."""
    with recorded(ContextAugmentationStartEvent, ContextAugmentationEndEvent) as seen:
        yield seen


@pytest.fixture
def nodes() -> list[TextNode]:
    """One document of twelve chunks, each with a window in its metadata."""
    return linked_document(12, metadata={"window": "a window"})


def plain_steps() -> list[BaseNodePostprocessor]:
    """Postprocessors that read no docstore."""
    return [
        MetadataReplacementPostProcessor("window"),
        SlidingWindowPostprocessor(window_tokens=5, stride_tokens=2),
        RerankPostprocessor(embed_model=WordEmbedding()),
        EmbeddingRescorePostprocessor(embed_model=WordEmbedding()),
        TokenBudgetPostprocessor(token_budget=15),
    ]


@pytest.mark.parametrize("step", plain_steps(), ids=lambda step: step.class_name())
def test_every_postprocessor_sends_one_pair(
    postprocess: Postprocess, events: list[Any], nodes: list[TextNode], step: BaseNodePostprocessor
) -> None:
    """Postprocessors without a docstore send one pair as well, with the counts of input and output."""
    found = hits(nodes, [1, 5, 5])
    result = postprocess(step, found, query_str="chunk 5")
    start, end = events
    assert (start.augmenter, start.num_hits, start.query_str) == (step.class_name(), 2, "chunk 5")
    assert (end.augmenter, end.num_hits, end.num_nodes) == (step.class_name(), 2, len(result))
    assert (end.reads, end.round_trips) == (0, 0)


def test_brsr_sends_one_pair(postprocess: Postprocess, events: list[Any], nodes: list[TextNode]) -> None:
    """The inner steps send no events; their reads, tokens and stop reasons are in the one end event."""
    store = ObservedDocstore(docstore_of(nodes))
    brsr = BRSRPostprocessor(
        docstore=store,
        embed_model=WordEmbedding(),
        window_tokens=20,
        stride_tokens=10,
        max_context_tokens=60,
        expansion_tokens=40,
    )
    result = postprocess(brsr, hits(nodes, [2, 8]), query_str="chunk 8")
    start, end = events
    assert (start.augmenter, start.num_hits) == ("BRSRPostprocessor", 2)
    assert (end.augmenter, end.num_hits, end.num_nodes) == ("BRSRPostprocessor", 2, len(result))
    assert end.added_node_ids == ids(result)
    assert end.reads == len(store.node_reads) + len(store.document_reads) > 0
    assert 0 < end.round_trips <= end.reads
    assert 0 < end.tokens <= 60
    assert end.stop_reasons["budget"] > 0


class Outer(BaseNodePostprocessor):
    """A user's postprocessor that calls one of this package."""

    inner: BaseNodePostprocessor

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return self.inner.postprocess_nodes(nodes, query_bundle)


def test_a_foreign_step_between_two_of_the_pack(
    postprocess: Postprocess, events: list[Any], nodes: list[TextNode]
) -> None:
    """A postprocessor inside a foreign one inside another of the package is an inner step."""
    store = ObservedDocstore(docstore_of(nodes))
    neighbors = PrevNextNodePostprocessor(docstore=store, num_nodes=1)
    postprocess(RerankPostprocessor(reranker=Outer(inner=neighbors)), hits(nodes, [2]), query_str="chunk")
    assert [event.augmenter for event in events] == ["RerankPostprocessor"] * 2
    assert events[1].reads == len(store.node_reads) == 1


def test_a_call_that_raises_sends_no_end(
    postprocess: Postprocess, events: list[Any], nodes: list[TextNode]
) -> None:
    """An error ends the call without an end event, and the next call is an outermost one again."""
    broken = PrevNextNodePostprocessor(docstore=ObservedDocstore(docstore_of(nodes), fail_after=0))
    with pytest.raises(ConnectionError):
        postprocess(broken, hits(nodes, [2]))
    postprocess(SectionPostprocessor(docstore=docstore_of(nodes)), hits(nodes, [2]))
    assert [(type(event), event.augmenter) for event in events] == [
        (ContextAugmentationStartEvent, "PrevNextNodePostprocessor"),
        (ContextAugmentationStartEvent, "SectionPostprocessor"),
        (ContextAugmentationEndEvent, "SectionPostprocessor"),
    ]


def test_the_chunks_of_a_passage_are_named(
    postprocess: Postprocess, events: list[Any], nodes: list[TextNode]
) -> None:
    """With passages, the end event names the added chunks, not the passage."""
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode="both", output="passages")
    postprocess(augmenter, hits(nodes, [4]))
    assert events[1].num_nodes == 1
    assert events[1].added_node_ids == [nodes[3].node_id, nodes[5].node_id]

"""Choosing the chunks that fill a token budget with the most evidence."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from helpers import Postprocess, positions, texts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_index_ext_ctxaug import (
    ContextAugmenter,
    PrevNextNodePostprocessor,
    RelevantSegmentExtractionPostprocessor,
    RelevantSegmentsPostprocessor,
    WholeDocumentsPostprocessor,
    read_provenance,
)
from llama_index_ext_ctxaug.budget.fit import final_text
from llama_index_ext_ctxaug.testing import ObservedDocstore, docstore_of, hits, linked_document
from llama_index_ext_ctxaug.testing.worlds import World, worlds


def segments(
    nodes: list[TextNode], kind: type[ContextAugmenter] = RelevantSegmentsPostprocessor, **parameters: Any
) -> ContextAugmenter:
    """Return an augmenter over these nodes that gives whole chunks; tokens are words (6 per chunk)."""
    return kind(docstore=docstore_of(nodes), **{"tokenizer": str.split, "budget_unit": "chunk", **parameters})


def test_close_hits_bring_what_is_between_and_lone_hits_stay_alone(postprocess: Postprocess) -> None:
    """The chunk between two hits is taken before a lone hit's neighbors and before worse hits."""
    nodes = linked_document(60)
    found = hits(nodes, [10, 40, 12, 50], [0.9, 0.85, 0.8, 0.5])
    out = postprocess(segments(nodes, token_budget=24), found)
    assert positions(out) == [10, 11, 12, 40]
    provenance = read_provenance(out[1].node)
    assert provenance is not None
    assert (provenance.role, provenance.hops, out[1].score) == ("neighbor", 1, None)


def test_the_query_decides_between_hits_with_close_scores(postprocess: Postprocess) -> None:
    """A hit with the query's rare word is taken before a better scored hit without it."""
    texts = [f"Words of every kind stand in chunk {number}" for number in range(40)]
    texts[30] = "The zebra crossed the road in chunk 30"
    nodes = linked_document(texts)
    found = hits(nodes, [5, 15, 30], [0.80, 0.79, 0.78])
    augmenter = segments(nodes, token_budget=8)
    assert positions(postprocess(augmenter, found, query_str="Where did the zebra go?")) == [30]
    assert positions(postprocess(augmenter, found)) == [5]


SCALES: dict[str, Callable[[int], float | None]] = {
    "cosine": lambda rank: 0.8 - 0.004 * rank,
    "reciprocal ranks": lambda rank: 1 / (60 + rank),
    "logits": lambda rank: 3.0 - 0.2 * rank,
    "large": lambda rank: 4000.0 - 10 * rank,
    "None": lambda rank: None,
}


@pytest.mark.parametrize("kind", [RelevantSegmentsPostprocessor, RelevantSegmentExtractionPostprocessor])
@pytest.mark.parametrize("scale", SCALES)
def test_scores_of_any_scale(postprocess: Postprocess, scale: str, kind: type[ContextAugmenter]) -> None:
    """Close hits are chosen with the chunks between them, whatever the scale; the last hits are not."""
    nodes = linked_document(300)
    order = [100, 102, 104, *range(0, 90, 6), *range(120, 290, 6)]
    found = hits(nodes, order, [SCALES[scale](rank) for rank in range(len(order))])
    lowest = {"minimum_value": 0.1} if kind is RelevantSegmentExtractionPostprocessor else {}
    out = postprocess(segments(nodes, kind, token_budget=60, **lowest), found)
    assert set(range(100, 105)) <= set(positions(out))
    assert order[-1] not in positions(out)


@pytest.mark.parametrize(
    ("count", "reaches"), [(1, [6]), (2, [6, 2]), (5, [6, 5, 4, 2, 1])], ids=["one", "two", "five"]
)
def test_a_small_pool_is_given_whole(postprocess: Postprocess, count: int, reaches: list[int]) -> None:
    """If the budget has room, few hits are all given, the better ones with more of their neighbors."""
    nodes = linked_document(90)
    at = [15 * number + 8 for number in range(count)]
    out = postprocess(segments(nodes), hits(nodes, at, [0.9, 0.8, 0.72, 0.6, 0.5][:count]))
    assert positions(out) == [
        place + step for place, far in zip(at, reaches, strict=True) for step in range(-far, far + 1)
    ]


def test_a_hit_with_the_words_of_the_query_reaches_farther(postprocess: Postprocess) -> None:
    """A hit's reach depends on its text as well as on its score."""
    texts = [f"Words of every kind stand in chunk {number}" for number in range(40)]
    texts[30] = "The zebra crossed the road in chunk 30"
    nodes = linked_document(texts)
    found = hits(nodes, [5, 15, 30], [0.9, 0.5, 0.1])
    out = postprocess(segments(nodes, token_budget=None), found, query_str="Where did the zebra go?")
    assert [place for place in positions(out) if place > 20] == list(range(24, 37))
    out = postprocess(segments(nodes, token_budget=None), found)
    assert [place for place in positions(out) if place > 20] == list(range(28, 33))


@pytest.mark.parametrize("kept", [["1", "2", "3"], ["1"], []], ids=["linked", "source", "bare"])
def test_hits_that_lost_their_relationships_are_joined_as_others(
    postprocess: Postprocess, kept: list[str]
) -> None:
    """Weak hits reach nothing and stop no other hit: their stored copies give their place."""
    nodes = linked_document(120)
    found = hits(nodes, [60, *range(0, 40, 2), 62, 63, 100, 101], [1.0, *[0.5] * 20, 0.0, 0.0, 0.0, 0.0])
    for hit in found:
        related = {key: value for key, value in hit.node.relationships.items() if key.value in kept}
        hit.node = hit.node.model_copy(update={"relationships": related})
    store = ObservedDocstore(docstore_of(nodes))
    augmenter = RelevantSegmentsPostprocessor(docstore=store, token_budget=None)
    out = postprocess(augmenter, found)
    assert [place for place in positions(out) if place > 50] == [*range(54, 67), 100, 101]
    assert len(store.batches) <= (2 if kept else 3)


@pytest.mark.parametrize("kind", [RelevantSegmentsPostprocessor, RelevantSegmentExtractionPostprocessor])
@pytest.mark.parametrize("score", [0.9, None])
def test_neighbors_among_the_input_are_no_hits(
    postprocess: Postprocess, score: float | None, kind: type[ContextAugmenter]
) -> None:
    """A node that an earlier augmenter added has less priority than its hit, even if it comes first."""
    nodes = linked_document(40)
    before = postprocess(
        PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode="both"), hits(nodes, [20], [score])
    )
    assert positions(before) == [19, 20, 21]
    out = postprocess(segments(nodes, kind, token_budget=6), before)
    assert positions(out) == [20]
    if kind is RelevantSegmentsPostprocessor:
        assert positions(postprocess(segments(nodes), before)) == [*range(14, 27)]


def chapters(headings: dict[int, str], metadata: dict[int, str]) -> list[TextNode]:
    """30 chunks, some of which open with a heading; from a key of `metadata` on, chunks name a section."""
    texts = [f"{headings.get(n, '')}Words of every kind stand in chunk {n}" for n in range(30)]
    nodes = linked_document(texts)
    section = ""
    for place, node in enumerate(nodes):
        section = metadata.get(place, section)
        if section:
            node.metadata["header_path"] = section
    return nodes


@pytest.mark.parametrize(
    ("headings", "metadata"),
    [
        ({8: "# One\n", 12: "# Two\n"}, {}),
        ({8: "One\n===\n", 12: "Two\n---\n"}, {}),
        ({}, {0: "/Zero/", 8: "/One/", 12: "/Two/"}),
    ],
    ids=["markdown", "underlined", "metadata"],
)
def test_headings_bound_segments(
    postprocess: Postprocess, headings: dict[int, str], metadata: dict[int, str]
) -> None:
    """A hit reaches to the ends of its section, and no farther."""
    nodes = chapters(headings, metadata)
    out = postprocess(segments(nodes, token_budget=None), hits(nodes, [10]))
    assert positions(out) == [8, 9, 10, 11]


def test_relevance_is_not_lent_over_a_heading(postprocess: Postprocess) -> None:
    """A chunk between two hits gains from both, unless a heading separates it from one of them."""
    nodes = chapters({12: "## Two\n"}, {})
    found = hits(nodes, [10, 12, 20], [0.9, 0.8, 0.1])
    assert positions(postprocess(segments(nodes, token_budget=26), found)) == [9, 10, 12]
    without = segments(nodes, token_budget=26, heading_kinds=())
    assert positions(postprocess(without, found)) == [10, 11, 12]


def test_the_budget_drops_hits_without_a_warning(
    postprocess: Postprocess, caplog: pytest.LogCaptureFixture
) -> None:
    """Dropping the least relevant chunks gives no warning and never exceeds the budget."""
    nodes = linked_document(200)
    found = hits(nodes, range(0, 200, 4), [0.9 - 0.01 * rank for rank in range(50)])
    with caplog.at_level(logging.WARNING):
        out = postprocess(segments(nodes, token_budget=50), found)
    assert len(final_text(out).split()) == 48
    assert not caplog.records


def test_a_chunk_that_does_not_fit_is_skipped() -> None:
    """A smaller, less relevant chunk takes the tokens that a large one cannot use."""
    nodes = linked_document(["one two three"] + ["x"] * 9 + ["large " * 50] + ["x"] * 9 + ["four five"])
    found = hits(nodes, [0, 10, 20], [0.9, 0.8, 0.1])
    out = segments(nodes, token_budget=5, reach=0).postprocess_nodes(found)
    assert positions(out) == [0, 20]


def test_one_chunk_over_the_budget_is_kept() -> None:
    """The best chunk is kept whole, even if it alone exceeds the budget."""
    nodes = linked_document(["large " * 50, "small"])
    out = segments(nodes, token_budget=5).postprocess_nodes(hits(nodes, [0]))
    assert positions(out) == [0]


def test_without_a_budget_all_candidates_are_given(postprocess: Postprocess) -> None:
    """With token_budget=None every hit and every chunk in reach is given."""
    nodes = linked_document(30)
    out = postprocess(segments(nodes, token_budget=None, reach=3), hits(nodes, [5, 20], [0.9, 0.1]))
    assert positions(out) == [2, 3, 4, 5, 6, 7, 8, 19, 20, 21]


def test_documents_and_filters_bound_segments(postprocess: Postprocess) -> None:
    """Nothing of another document, or rejected by the filter, is added, however relevant."""
    first, second = linked_document(3, source_id="a"), linked_document(9, source_id="b")
    refused = second[3].node_id
    augmenter = RelevantSegmentsPostprocessor(
        docstore=docstore_of(first, second), neighbor_filters=lambda node: node.node_id != refused
    )
    out = postprocess(augmenter, [*hits(first, [2]), *hits(second, [2, 4])])
    added = [hit.node for hit in out]
    assert [n.text for n in added if n.text.endswith("a.")] == [node.text for node in first]
    assert refused not in {node.node_id for node in added}


def test_two_batched_reads(postprocess: Postprocess) -> None:
    """A pool of 100 hits expands in two reads, whatever the reach, and no node is read twice."""
    nodes = linked_document(2000)
    store = ObservedDocstore(docstore_of(nodes))
    augmenter = RelevantSegmentsPostprocessor(docstore=store)
    postprocess(augmenter, hits(nodes, range(0, 2000, 20), [1 - rank / 200 for rank in range(100)]))
    assert len(store.batches) == 2
    assert len(set(store.node_reads)) == len(store.node_reads)


@pytest.mark.parametrize(
    "kind",
    [RelevantSegmentsPostprocessor, RelevantSegmentExtractionPostprocessor, WholeDocumentsPostprocessor],
)
def test_promises_over_random_worlds(kind: type[ContextAugmenter]) -> None:
    """Over random stores, inputs stay, hits keep scores, no chunk repeats, and sync equals async."""

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(worlds(), st.integers(1, 40))
    def hold(world: World, budget: int) -> None:
        before = [hit.to_dict() for hit in world.hits]

        def augmenter() -> ContextAugmenter:
            return kind(docstore=world.store(), token_budget=budget, tokenizer=str.split)

        out = augmenter().postprocess_nodes(world.hits, query_str="chunk text")
        again = asyncio.run(augmenter().apostprocess_nodes(world.hits, query_str="chunk text"))
        assert [hit.to_dict() for hit in out] == [hit.to_dict() for hit in again]
        assert before == [hit.to_dict() for hit in world.hits]
        out_ids = [hit.node.node_id for hit in out]
        assert len(set(out_ids)) == len(out_ids)
        assert len(out) <= 1 or len(final_text(out).split()) <= budget
        for hit in out:
            if read_provenance(hit.node) is None:
                assert any(hit is one for one in world.hits)

    hold()


PROGRAM = """
from llama_index_ext_ctxaug import RelevantSegmentExtractionPostprocessor, RelevantSegmentsPostprocessor
from llama_index_ext_ctxaug.testing import docstore_of, hits, linked_document
documents = [linked_document(40, source_id=f"d{n}") for n in range(8)]
found = [hit for d in documents for hit in hits(d, [3, 5, 20, 37], [0.5, 0.5, 0.4, 0.4])]
for kind in (RelevantSegmentExtractionPostprocessor, RelevantSegmentsPostprocessor):
    augmenter = kind(docstore=docstore_of(*documents), token_budget=200, output="passages")
    for hit in augmenter.postprocess_nodes(found, query_str="chunk 21 of d3"):
        print(hit.score, hit.node.text)
"""


def test_the_same_in_every_process() -> None:
    """Equal input gives equal output in another process, whatever its hash seed."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "77")
    }
    assert len(outputs) == 1
    assert "chunk" in outputs.pop()


def test_the_order_of_hits_with_different_scores_does_not_choose() -> None:
    """The choice depends on scores and places, not on the order of the hits."""
    nodes = linked_document(100)
    found = hits(nodes, [3, 30, 31, 60, 90], [0.9, 0.7, 0.65, 0.5, 0.2])
    chosen = set()
    for seed in range(5):
        shuffled = random.Random(seed).sample(found, len(found))
        out = segments(nodes, token_budget=40).postprocess_nodes(shuffled)
        chosen.add(frozenset(positions(out)))
    assert len(chosen) == 1


def test_a_budget_is_filled_to_the_sentence(postprocess: Postprocess) -> None:
    """By default the first chunk that does not fit gives its sentences with words of the query."""
    written = [f"First of {n} here. Second zebra {n} sits. Third of {n} ends." for n in range(9)]
    nodes = linked_document(written)
    augmenter = RelevantSegmentsPostprocessor(
        docstore=docstore_of(nodes), token_budget=16, tokenizer=str.split
    )
    result = postprocess(augmenter, hits(nodes, [4]), query_str="Where is the zebra?")
    assert texts(result) == [nodes[4].text, "Second zebra 3 sits."]


class Zebras(BaseNodePostprocessor):
    """A reranker that scores a node by its zebras and returns those that have one."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        scored = [NodeWithScore(node=hit.node, score=hit.node.text.count("zebra")) for hit in nodes]
        return sorted((hit for hit in scored if hit.score), key=lambda hit: hit.score, reverse=True)


def test_a_reranker_scores_neighbors_too(postprocess: Postprocess) -> None:
    """A reranker's scores decide over hits and neighbors, and hits keep their own scores."""
    nodes = linked_document(40)
    for place, count in ((11, 3), (29, 2)):
        nodes[place].set_content("zebra " * count)
    found = hits(nodes, [10, 30], [0.9, 0.2])
    with_reranker = segments(nodes, token_budget=6, reranker=Zebras(), reach=2)
    assert positions(postprocess(with_reranker, found, query_str="Which animals?")) == [11, 29]
    whole = postprocess(segments(nodes, token_budget=None, reranker=Zebras()), found, query_str="animals")
    assert [hit.score for hit in whole if hit.node.node_id == nodes[10].node_id] == [0.9]
    assert positions(postprocess(with_reranker, found)) == [10]  # without a query there is nothing to rank

"""Fitting chunks into a token budget."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_ext_ctxaug import Chunk
from llama_index_ext_ctxaug.budget.fit import BudgetFit, fit, mark_cuts
from llama_index_ext_ctxaug.budget.priority import by_value, hits_first, hits_first_in_list
from llama_index_ext_ctxaug.passages.passage import Passage
from llama_index_ext_ctxaug.testing import linked_document

Spec = list[tuple[int, float | None]]
"""For each chunk of a run its size in tokens, and its score where it is a hit (None for a neighbor)."""


@dataclass
class Sizes:
    """Costs equal to each chunk's size, estimated with an error; joints cost nothing."""

    sizes: dict[str, int]
    error: int = 0

    def cost(self, id_: str, kept: Collection[str]) -> int:
        """Return the size, with the error."""
        return self.sizes[id_] + self.error

    def measure(self, kept: Collection[str]) -> int:
        """Return the sum of the sizes."""
        return sum(self.sizes[id_] for id_ in kept)

    def count(self, kept: Collection[str]) -> int:
        """Return the sum of the sizes."""
        return self.measure(kept)


def run_of(source_id: str, spec: Spec, first_rank: int = 0) -> Passage:
    """Return a run in which each neighbor belongs to all hits."""
    nodes = linked_document(["x" * size for size, _ in spec], source_id=source_id)
    hits = tuple(n.node_id for n, (_, score) in zip(nodes, spec, strict=True) if score is not None)
    chunks = []
    for number, (node, (_, score)) in enumerate(zip(nodes, spec, strict=True)):
        if score is None:
            chunks.append(Chunk(node, "neighbor", hits, rank=first_rank, hops=1))
        else:
            chunks.append(Chunk(node, "hit", (node.node_id,), rank=first_rank + number, score=score))
    return Passage(chunks)


def fitted(passages: list[Passage], budget: int, error: int = 0) -> BudgetFit:
    """Return what a budget holds of passages, hits first."""
    chunks = [chunk for passage in passages for chunk in passage.chunks]
    costs = Sizes({chunk.node.node_id: len(chunk.node.text) for chunk in chunks}, error)
    return fit(chunks, budget, hits_first(passages), costs)


def places(passages: list[Passage], budget: int) -> list[list[int]]:
    """Return the places of the chunks that a budget holds in each passage."""
    kept = fitted(passages, budget).kept
    return [[n for n, c in enumerate(p.chunks) if c.node.node_id in kept] for p in passages]


def listed(chunks: list[Chunk], sizes: list[int], budget: int) -> list[int]:
    """Return the places of the listed nodes that a budget holds; each node has its size in tokens."""
    costs = Sizes({chunk.node.node_id: size for chunk, size in zip(chunks, sizes, strict=True)})
    kept = fit(chunks, budget, hits_first_in_list(chunks), costs).kept
    return [place for place, chunk in enumerate(chunks) if chunk.node.node_id in kept]


def test_hits_come_before_neighbors_and_near_before_far():
    """Both hits are kept, then the neighbors at one hop, the better hit's first."""
    one = run_of("a", [(10, None), (10, None), (10, 0.2), (10, None)])
    two = run_of("b", [(10, None), (10, 0.9), (10, None), (10, None)], first_rank=4)
    assert places([one, two], 40) == [[2], [0, 1, 2]]
    assert places([one, two], 60) == [[1, 2, 3], [0, 1, 2]]
    assert places([one, two], 80) == [[0, 1, 2, 3], [0, 1, 2, 3]]


def test_expansion_has_no_holes():
    """No neighbor is taken beyond one that does not fit; the rest of the budget goes to others."""
    run = run_of("a", [(10, None), (10, 0.5), (50, None), (1, None)])
    assert places([run], 40) == [[0, 1]]


def test_the_best_hit_is_kept_and_the_others_must_fit():
    """A best hit over the budget is kept and named; others are dropped if they do not fit."""
    runs = [run_of("a", [(50, 0.9)]), run_of("b", [(30, 0.8)], 1), run_of("c", [(10, 0.7)], 2)]
    assert places(runs, 60) == [[0], [], [0]]
    assert fitted(runs, 60).dropped_hits == (runs[1].chunks[0].node.node_id,)
    assert fitted(runs, 60).over_budget is None
    assert places(runs, 0) == [[0], [], []]
    assert fitted(runs, 0).over_budget == runs[0].chunks[0].node.node_id
    assert fitted(runs, 0).tokens == 50


def test_neighbors_of_a_dropped_hit_go_with_it():
    """No neighbor stays without one of its hits."""
    runs = [run_of("a", [(20, 0.9)]), run_of("b", [(1, None), (30, 0.8), (1, None)], 1)]
    assert places(runs, 40) == [[0], []]


def test_scores_rank_none_last():
    """A hit without a score comes after zero and negative scores."""
    runs = [run_of("a", [(10, None)]), run_of("b", [(10, -3.0)], 1), run_of("c", [(10, 0.0)], 2)]
    runs[0].chunks[0].role = "hit"
    assert places(runs, 20) == [[], [0], [0]]


def test_a_list_is_filled_by_score_then_nearness():
    """Outside of runs, hits are taken by score, then neighbors of kept hits by hops."""
    nodes = linked_document(["x" * 10] * 5)
    ids = [node.node_id for node in nodes]
    chunks = [
        Chunk(nodes[0], "neighbor", (ids[1],), rank=0, hops=1),
        Chunk(nodes[1], "hit", (ids[1],), rank=1, score=0.4),
        Chunk(nodes[2], "neighbor", (ids[3],), rank=2, hops=2),
        Chunk(nodes[3], "hit", (ids[3],), rank=3, score=0.6),
        Chunk(nodes[4], "neighbor", (ids[3],), rank=4, hops=1),
    ]

    assert [listed(chunks, [10] * 5, budget) for budget in (10, 20, 30, 40, 50)] == [
        [3], [1, 3], [1, 3, 4], [0, 1, 3, 4], [0, 1, 2, 3, 4],
    ]  # fmt: skip


def test_of_equally_near_neighbors_the_one_before_comes_first():
    """If one neighbor of a hit fits, it is the one before it, wherever it is in the list."""
    assert places([run_of("a", [(10, None), (10, 0.5), (10, None)])], 20) == [[0, 1]]


def test_a_neighbor_of_a_dropped_hit_does_not_stay_with_another():
    """A chunk between two hits is dropped if only the dropped hit reached it."""
    run = run_of("a", [(10, 0.9), (1, None), (50, 0.5)])
    run.chunks[1].hits = (run.chunks[2].node.node_id,)
    assert places([run], 20) == [[0]]
    run.chunks[1].hits = (run.chunks[2].node.node_id, run.chunks[0].node.node_id)
    assert places([run], 20) == [[0, 1]]


def test_a_hit_is_offered_again_when_others_make_it_cheaper():
    """A hit that did not fit is taken once a hit kept later shares most of its text."""
    passages = [run_of("a", [(10, 0.9)]), run_of("b", [(10, 0.8), (5, 0.7)], 1)]
    best, costly, beside = (chunk.node.node_id for p in passages for chunk in p.chunks)

    class Joined(Sizes):
        """The second and the third hit share 8 tokens."""

        def cost(self, id_: str, kept: Collection[str]) -> int:
            return self.measure([*kept, id_]) - self.measure(kept)

        def measure(self, kept: Collection[str]) -> int:
            return super().measure(kept) - (8 if {costly, beside} <= set(kept) else 0)

    chunks = [chunk for passage in passages for chunk in passage.chunks]
    found = fit(chunks, 17, hits_first(passages), Joined({best: 10, costly: 10, beside: 5}))
    assert found.kept == {best, costly, beside}
    assert found.tokens == 17
    assert found.dropped_hits == ()


def test_a_list_keeps_no_neighbor_of_a_hit_that_does_not_fit():
    """In a list, a neighbor is dropped with its hit, and stays if its hit is not in the list."""
    nodes = linked_document(["x"] * 3)
    chunks = [
        Chunk(nodes[0], "hit", (nodes[0].node_id,), rank=0, score=0.9),
        Chunk(nodes[1], "hit", (nodes[1].node_id,), rank=1, score=0.8),
        Chunk(nodes[2], "neighbor", (nodes[1].node_id,), rank=2, hops=1),
    ]

    assert listed(chunks, [10, 50, 1], 20) == [0]
    assert listed([chunks[0], chunks[2]], [10, 1], 20) == [0, 1]


def test_a_neighbor_in_a_list_is_as_near_as_its_best_hit():
    """Of two neighbors at one hop, the better hit's comes first, whatever other hits it has."""
    nodes = linked_document(["x"] * 5)
    ids = [node.node_id for node in nodes]
    chunks = [
        Chunk(nodes[0], "hit", (ids[0],), rank=0, score=0.9),
        Chunk(nodes[1], "hit", (ids[1],), rank=1, score=0.5),
        Chunk(nodes[2], "hit", (ids[2],), rank=2, score=0.1),
        Chunk(nodes[3], "neighbor", (ids[1],), rank=3, hops=1),
        Chunk(nodes[4], "neighbor", (ids[2], ids[0]), rank=4, hops=1),
    ]
    assert listed(chunks, [1] * 5, 4) == [0, 1, 2, 4]


@pytest.mark.parametrize(("large", "kept"), [([7], 2), ([8], 1), ([7, 7], 3)])
def test_after_eight_in_a_row_that_do_not_fit_a_budget_is_full(large: list[int], kept: int):
    """Chunks that do not fit are skipped, but eight in a row end the search."""
    spec: Spec = [(1, 0.5)]
    for count in large:
        spec += [*[(50, 0.5)] * count, (1, 0.5)]
    run = run_of("a", spec)
    sizes = {chunk.node.node_id: len(chunk.node.text) for chunk in run.chunks}
    found = fit(run.chunks, 10, by_value(run.chunks, dict.fromkeys(sizes, 1.0)), Sizes(sizes))
    assert len(found.kept) == found.tokens == kept


def test_cuts_are_marked_on_what_is_kept():
    """A kept chunk is marked if the chunk beside it was dropped; dropped chunks are not marked."""
    run = run_of("a", [(1, None)] * 3 + [(1, 0.5)] + [(1, None)] * 3)
    kept = [chunk.node.node_id for chunk in run.chunks[2:5]]
    assert mark_cuts([run], kept) == 2
    marks = [(chunk.stopped_previous, chunk.stopped_next) for chunk in run.chunks]
    nothing = (None, None)
    assert marks == [
        nothing, nothing, ("budget", None), nothing, (None, "budget"), nothing, nothing,
    ]  # fmt: skip


@given(
    specs=st.lists(
        st.lists(st.tuples(st.integers(1, 9), st.none() | st.floats(-2, 2)), min_size=1, max_size=6),
        min_size=1,
        max_size=4,
    ),
    budget=st.integers(0, 80),
    wrong=st.integers(-2, 2),
)
def test_never_over_the_budget_and_no_room_wasted(specs: list[Spec], budget: int, wrong: int):
    """For any estimates, the output is within the budget or the best hit alone; all is kept if all fits."""
    passages = [run_of(f"d{n}", spec, 10 * n) for n, spec in enumerate(specs)]
    sizes = {c.node.node_id: len(c.node.text) for p in passages for c in p.chunks}
    hits = [c for p in passages for c in p.chunks if c.role == "hit"]
    found = fitted(passages, budget, wrong)
    assert found.tokens == sum(sizes[id_] for id_ in found.kept)
    assert found.tokens <= budget or len(found.kept) == 1
    assert found.kept
    if hits and sum(sizes.values()) <= budget:
        with_hits = {c.node.node_id for p in passages if any(c in hits for c in p.chunks) for c in p.chunks}
        assert found.kept == with_hits
    assert fitted(passages[::-1], budget, wrong).kept == found.kept

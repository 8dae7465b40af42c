"""Fitting chunks into a number of tokens."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_ext_ctxaug.budget.fit import BudgetFit, fit, fit_by_priority, fit_list, mark_cuts
from llama_index_ext_ctxaug.passages.passage import Chunk, Passage
from llama_index_ext_ctxaug.testing import linked_document

Spec = list[tuple[int, float | None]]
"""For each chunk of a run its size in tokens, and its score where it is a hit (None for a neighbor)."""


def run_of(source_id: str, spec: Spec, first_rank: int = 0) -> Passage:
    """A run whose neighbors belong to all of its hits."""
    nodes = linked_document(["x" * size for size, _ in spec], source_id=source_id)
    hits = tuple(n.node_id for n, (_, score) in zip(nodes, spec, strict=True) if score is not None)
    chunks = []
    for number, (node, (_, score)) in enumerate(zip(nodes, spec, strict=True)):
        if score is None:
            chunks.append(Chunk(node, "neighbor", hits, rank=first_rank, hops=1))
        else:
            chunks.append(Chunk(node, "hit", (node.node_id,), rank=first_rank + number, score=score))
    return Passage(chunks)


def filled(passages: list[Passage], budget: int) -> tuple[list[list[int]], BudgetFit]:
    """Places that are kept in each run, with one token for each character and none for joints."""
    sizes = {c.node.node_id: len(c.node.text) for p in passages for c in p.chunks}

    def measure(kept: Collection[str]) -> int:
        return sum(sizes[id_] for id_ in kept)

    filling = fit(passages, budget, cost=lambda id_, kept: sizes[id_], measure=measure)
    places = [[n for n, c in enumerate(p.chunks) if c.node.node_id in filling.kept] for p in passages]
    return places, filling


def test_hits_come_before_neighbors_and_near_before_far():
    """Both hits are kept, then the neighbors at one hop, the better hit's first."""
    one = run_of("a", [(10, None), (10, None), (10, 0.2), (10, None)])
    two = run_of("b", [(10, None), (10, 0.9), (10, None), (10, None)], first_rank=4)
    assert filled([one, two], 40)[0] == [[2], [0, 1, 2]]
    assert filled([one, two], 60)[0] == [[1, 2, 3], [0, 1, 2]]
    assert filled([one, two], 80)[0] == [[0, 1, 2, 3], [0, 1, 2, 3]]


def test_growth_has_no_holes():
    """A neighbor behind one that does not fit is not taken; what is left goes to others."""
    run = run_of("a", [(10, None), (10, 0.5), (50, None), (1, None)])
    assert filled([run], 40)[0] == [[0, 1]]


def test_the_best_hit_is_kept_and_the_others_must_fit():
    """A best hit over the budget is kept and named; others are dropped where they do not fit."""
    runs = [run_of("a", [(50, 0.9)]), run_of("b", [(30, 0.8)], 1), run_of("c", [(10, 0.7)], 2)]
    places, filling = filled(runs, 60)
    assert places == [[0], [], [0]]
    assert filling.dropped_hits == (runs[1].chunks[0].node.node_id,)
    assert filling.over_budget is None
    places, filling = filled(runs, 0)
    assert places == [[0], [], []]
    assert filling.over_budget == runs[0].chunks[0].node.node_id
    assert filling.tokens == 50


def test_neighbors_of_a_dropped_hit_go_with_it():
    """No neighbor stays without one of its hits."""
    runs = [run_of("a", [(20, 0.9)]), run_of("b", [(1, None), (30, 0.8), (1, None)], 1)]
    assert filled(runs, 40)[0] == [[0], []]


def test_scores_rank_none_last():
    """A hit without a score comes after zero and negative scores."""
    runs = [run_of("a", [(10, None)]), run_of("b", [(10, -3.0)], 1), run_of("c", [(10, 0.0)], 2)]
    runs[0].chunks[0].role = "hit"
    assert filled(runs, 20)[0] == [[], [0], [0]]


def test_a_list_is_filled_by_score_then_nearness():
    """Nodes that stand in no run: hits by score, then neighbors of kept hits by hops."""
    nodes = linked_document(["x" * 10] * 5)
    ids = [node.node_id for node in nodes]
    chunks = [
        Chunk(nodes[0], "neighbor", (ids[1],), rank=0, hops=1),
        Chunk(nodes[1], "hit", (ids[1],), rank=1, score=0.4),
        Chunk(nodes[2], "neighbor", (ids[3],), rank=2, hops=2),
        Chunk(nodes[3], "hit", (ids[3],), rank=3, score=0.6),
        Chunk(nodes[4], "neighbor", (ids[3],), rank=4, hops=1),
    ]

    def kept(budget: int) -> list[int]:
        filling = fit_list(chunks, budget, cost=lambda id_, kept: 10, measure=lambda kept: 10 * len(kept))
        return [number for number, id_ in enumerate(ids) if id_ in filling.kept]

    assert [kept(budget) for budget in (10, 20, 30, 40, 50)] == [
        [3], [1, 3], [1, 3, 4], [0, 1, 3, 4], [0, 1, 2, 3, 4],
    ]  # fmt: skip


def test_of_equally_near_neighbors_the_one_before_comes_first():
    """Where one neighbor of a hit fits, it is the one before it, wherever it stands in the list."""
    assert filled([run_of("a", [(10, None), (10, 0.5), (10, None)])], 20)[0] == [[0, 1]]


def test_a_neighbor_of_a_dropped_hit_does_not_stay_with_another():
    """A chunk between two hits that only the dropped one reached goes with it."""
    run = run_of("a", [(10, 0.9), (1, None), (50, 0.5)])
    run.chunks[1].hits = (run.chunks[2].node.node_id,)
    assert filled([run], 20)[0] == [[0]]
    run.chunks[1].hits = (run.chunks[2].node.node_id, run.chunks[0].node.node_id)
    assert filled([run], 20)[0] == [[0, 1]]


def test_a_hit_is_offered_again_when_others_make_it_cheaper():
    """A hit that did not fit is taken when one that was kept after it shares most of its text."""
    passages = [run_of("a", [(10, 0.9)]), run_of("b", [(10, 0.8), (5, 0.7)], 1)]
    best, costly, beside = (chunk.node.node_id for p in passages for chunk in p.chunks)
    sizes = {best: 10, costly: 10, beside: 5}

    def measure(kept: Collection[str]) -> int:
        return sum(sizes[id_] for id_ in kept) - (8 if {costly, beside} <= set(kept) else 0)

    def cost(id_: str, kept: Collection[str]) -> int:
        return measure([*kept, id_]) - measure(kept)

    filling = fit(passages, 17, cost=cost, measure=measure)
    assert filling.kept == {best, costly, beside}
    assert filling.tokens == 17
    assert filling.dropped_hits == ()


def test_a_list_keeps_no_neighbor_of_a_hit_that_does_not_fit():
    """Of a list, a neighbor goes with its hit, and stays where the list does not have its hit."""
    nodes = linked_document(["x"] * 3)
    sizes = dict(zip((node.node_id for node in nodes), (10, 50, 1), strict=True))
    chunks = [
        Chunk(nodes[0], "hit", (nodes[0].node_id,), rank=0, score=0.9),
        Chunk(nodes[1], "hit", (nodes[1].node_id,), rank=1, score=0.8),
        Chunk(nodes[2], "neighbor", (nodes[1].node_id,), rank=2, hops=1),
    ]

    def kept(listed: list[Chunk]) -> list[int]:
        filling = fit_list(
            listed,
            20,
            cost=lambda id_, kept: sizes[id_],
            measure=lambda kept: sum(sizes[id_] for id_ in kept),
        )
        return [number for number, node in enumerate(nodes) if node.node_id in filling.kept]

    assert kept(chunks) == [0]
    assert kept([chunks[0], chunks[2]]) == [0, 2]


def test_a_neighbor_in_a_list_is_as_near_as_its_best_hit():
    """Of two neighbors at one hop the one of the better hit comes first, whatever other hits it has."""
    nodes = linked_document(["x"] * 5)
    ids = [node.node_id for node in nodes]
    chunks = [
        Chunk(nodes[0], "hit", (ids[0],), rank=0, score=0.9),
        Chunk(nodes[1], "hit", (ids[1],), rank=1, score=0.5),
        Chunk(nodes[2], "hit", (ids[2],), rank=2, score=0.1),
        Chunk(nodes[3], "neighbor", (ids[1],), rank=3, hops=1),
        Chunk(nodes[4], "neighbor", (ids[2], ids[0]), rank=4, hops=1),
    ]
    filling = fit_list(chunks, 4, cost=lambda id_, kept: 1, measure=len)
    assert filling.kept == {ids[place] for place in (0, 1, 2, 4)}


@pytest.mark.parametrize(("large", "kept"), [([7], 2), ([8], 1), ([7, 7], 3)])
def test_after_eight_in_a_row_that_do_not_fit_a_budget_is_full(large: list[int], kept: int):
    """By worth, chunks that do not fit are passed over, but not eight that follow one another."""
    spec: Spec = [(1, 0.5)]
    for count in large:
        spec += [*[(50, 0.5)] * count, (1, 0.5)]
    run = run_of("a", spec)
    sizes = {chunk.node.node_id: len(chunk.node.text) for chunk in run.chunks}
    filling = fit_by_priority(
        [run],
        10,
        dict.fromkeys(sizes, 1.0),
        cost=lambda id_, kept: sizes[id_],
        measure=lambda kept: sum(sizes[id_] for id_ in kept),
    )
    assert len(filling.kept) == filling.tokens == kept


def test_cuts_are_marked_on_what_is_kept():
    """A chunk that is kept beside one that is not says so; chunks that are not kept say nothing."""
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
    """Whatever the estimates: within the budget, or the best hit alone; all kept where all fits."""
    passages = [run_of(f"d{n}", spec, 10 * n) for n, spec in enumerate(specs)]
    sizes = {c.node.node_id: len(c.node.text) for p in passages for c in p.chunks}
    hits = [c for p in passages for c in p.chunks if c.role == "hit"]

    def measure(kept: Collection[str]) -> int:
        return sum(sizes[id_] for id_ in kept)

    filling = fit(passages, budget, cost=lambda id_, kept: sizes[id_] + wrong, measure=measure)
    assert filling.tokens == measure(filling.kept)
    assert filling.tokens <= budget or len(filling.kept) == 1
    assert filling.kept
    if hits and sum(sizes.values()) <= budget:
        with_hits = {c.node.node_id for p in passages if any(c in hits for c in p.chunks) for c in p.chunks}
        assert filling.kept == with_hits
    backwards = fit(passages[::-1], budget, cost=lambda id_, kept: sizes[id_] + wrong, measure=measure)
    assert backwards.kept == filling.kept

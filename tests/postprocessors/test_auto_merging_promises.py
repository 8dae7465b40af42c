"""Invariants of merging over random hierarchies, hits and faults, sync and async."""

from __future__ import annotations

import asyncio
import math
from itertools import pairwise
from typing import Any

import pytest
from helpers import ids
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core.schema import NodeWithScore
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
from trees import Hierarchy, hierarchies

from llama_index_ext_ctxaug import AutoMergingPostprocessor, read_provenance
from llama_index_ext_ctxaug.passages.scores import score_key
from llama_index_ext_ctxaug.testing.worlds import shuffled

many = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))

THRESHOLDS = st.sampled_from([0.0, 0.25, 0.5, 0.6, 0.75, 1.0])
RULES = st.fixed_dictionaries(
    {
        "simple_ratio_thresh": THRESHOLDS,
        "inclusive": st.booleans(),
        "weigh_by": st.sampled_from(["count", "count", "tokens"]),
        "fill_gaps": st.integers(0, 2),
        "min_children": st.sampled_from([1, 1, 2]),
        "parent_score": st.sampled_from(["max", "mean"]),
        "sort_by_score": st.booleans(),
    }
)
BUDGETS = st.fixed_dictionaries(
    {"merge_rule": st.just("budget"), "token_budget": st.just(10_000), "fill_gaps": st.integers(0, 2)}
)
ANY_RULE = st.one_of(RULES, RULES, BUDGETS)


def both_ways(tree: Hierarchy, hits: list[NodeWithScore] | None = None, **rule: Any) -> list[NodeWithScore]:
    """Return the result of a call, which is the same sync and async."""
    given_hits = tree.hits if hits is None else hits
    result = AutoMergingPostprocessor(docstore=tree.store(), **rule).postprocess_nodes(given_hits)
    merger = AutoMergingPostprocessor(docstore=tree.store(), **rule)
    again = asyncio.run(merger.apostprocess_nodes(given_hits))
    assert [hit.to_dict() for hit in result] == [hit.to_dict() for hit in again]
    return result


def replaced_hits(hit: NodeWithScore) -> tuple[str, ...]:
    """Return the hits that a node of the output replaces."""
    provenance = read_provenance(hit.node)
    if provenance is None:
        return (hit.node.node_id,)
    return () if provenance.role == "neighbor" else provenance.hits


@many
@given(hierarchies(), ANY_RULE)
def test_each_hit_or_one_node_above_it_is_returned(tree: Hierarchy, rule: dict[str, Any]) -> None:
    """For any fault or ring, a call ends, and each hit is returned itself or under one parent."""
    result = both_ways(tree, **rule)
    assert len(set(ids(result))) == len(result)
    covered = [hit_id for hit in result for hit_id in replaced_hits(hit)]
    assert sorted(covered) == sorted({hit.node.node_id for hit in tree.hits})
    retrieved = {id(hit) for hit in tree.hits}
    for hit in result:
        assert read_provenance(hit.node) is not None or id(hit) in retrieved


@many
@given(hierarchies(faults=False, lost=False), ANY_RULE)
def test_never_a_node_and_one_above_it(tree: Hierarchy, rule: dict[str, Any]) -> None:
    """No node of the output is above another, and parents are truly above the hits that they name."""
    result = both_ways(tree, **rule)
    out = set(ids(result))
    for hit in result:
        assert out.isdisjoint(tree.ancestors(hit.node.node_id))
        for hit_id in replaced_hits(hit):
            assert hit.node.node_id in (hit_id, *tree.ancestors(hit_id))


@many
@given(hierarchies(faults=False, lost=False), RULES, THRESHOLDS)
def test_a_higher_threshold_only_splits(tree: Hierarchy, rule: dict[str, Any], other: float) -> None:
    """A node under a higher threshold is also returned under a lower one, or is below one that is."""
    low, high = sorted((rule["simple_ratio_thresh"], other))
    coarse = set(ids(both_ways(tree, **{**rule, "simple_ratio_thresh": low})))
    for id_ in ids(both_ways(tree, **{**rule, "simple_ratio_thresh": high})):
        assert not coarse.isdisjoint((id_, *tree.ancestors(id_)))


@many
@given(hierarchies(), ANY_RULE, st.integers(0, 100))
def test_the_order_of_hits_shows_in_ranks_alone(tree: Hierarchy, rule: dict[str, Any], seed: int) -> None:
    """Hits in another order give the same nodes, with the same scores and provenance."""
    scores = {hit.score for hit in tree.hits}
    if rule.get("merge_rule") == "budget" and len(scores) < len(tree.hits):
        return  # of equal scores the first rank is kept first
    one = both_ways(tree, **rule)
    other = both_ways(tree, shuffled(tree.hits, seed), **rule)
    assert {hit.node.node_id: said(hit) for hit in one} == {hit.node.node_id: said(hit) for hit in other}


def said(hit: NodeWithScore) -> Any:
    """Return score and provenance of a node; hits are sorted, since ties without a place go by rank."""
    provenance = read_provenance(hit.node)
    return hit.score, provenance and (provenance.role, provenance.hops, sorted(provenance.hits))


@many
@given(hierarchies(), RULES)
def test_a_second_time_changes_nothing(tree: Hierarchy, rule: dict[str, Any]) -> None:
    """Merging merged nodes gives the same nodes with the same scores, in the same order."""
    once = both_ways(tree, **rule)
    twice = both_ways(tree, once, **rule)
    assert [(hit.node.node_id, hit.score) for hit in once] == [(hit.node.node_id, hit.score) for hit in twice]


@many
@given(hierarchies(), ANY_RULE)
def test_no_node_is_read_twice(tree: Hierarchy, rule: dict[str, Any]) -> None:
    """No id is read twice in a call, over all levels and gaps."""
    store = tree.store()
    AutoMergingPostprocessor(docstore=store, **rule).postprocess_nodes(tree.hits)
    assert len(set(store.node_reads)) == len(store.node_reads)


@many
@given(hierarchies(faults=False, lost=False), RULES)
def test_a_whole_tree_takes_a_round_for_each_level(tree: Hierarchy, rule: dict[str, Any]) -> None:
    """Reading takes at most as many rounds as there are levels above the deepest hit."""
    store = tree.store()
    AutoMergingPostprocessor(docstore=store, **{**rule, "fill_gaps": 0}).postprocess_nodes(tree.hits)
    depth = max((len(list(tree.ancestors(hit.node.node_id))) for hit in tree.hits), default=0)
    assert len(store.batches) <= max(depth, 1)


@many
@given(hierarchies(), ANY_RULE)
def test_filters_hold(tree: Hierarchy, rule: dict[str, Any]) -> None:
    """No parent and no filled gap of another tenant is returned."""
    filters = MetadataFilters(filters=[MetadataFilter(key="tenant", value="a")])
    hits = {hit.node.node_id for hit in tree.hits}
    for hit in both_ways(tree, neighbor_filters=filters, **rule):
        assert hit.node.node_id in hits or hit.node.metadata["tenant"] == "a"


@many
@given(hierarchies(), st.integers(1, 3))
def test_levels_are_limited(tree: Hierarchy, levels: int) -> None:
    """With a threshold of 0, a merged parent is at most `max_levels` above a hit."""
    result = both_ways(tree, simple_ratio_thresh=0, max_levels=levels)
    for hit in result:
        provenance = read_provenance(hit.node)
        assert provenance is None or provenance.hops <= levels


@many
@given(hierarchies(faults=False, lost=False), RULES)
def test_whole_trees_merge_as_the_definition_says(tree: Hierarchy, rule: dict[str, Any]) -> None:
    """The returned nodes and scores match the definition, worked out from the leaves upwards."""
    rule = {**rule, "weigh_by": "count"}
    expected = definition(tree, rule)
    result = {hit.node.node_id: hit.score for hit in both_ways(tree, **rule)}
    assert result.keys() == expected.keys()
    for id_, score in expected.items():
        assert result[id_] == (None if score is None else pytest.approx(score))


def definition(tree: Hierarchy, rule: dict[str, Any]) -> dict[str, float | None]:
    """Return the output by node id, from the whole tree at once."""
    own: dict[str, float | None] = {}
    for hit in tree.hits:
        own[hit.node.node_id] = max(hit.score, own.get(hit.node.node_id), key=score_key)
    threshold = rule["simple_ratio_thresh"]

    def filled(children: list[str], there: list[bool]) -> list[str]:
        places = [place for place, is_there in enumerate(there) if is_there]
        return [
            children[place]
            for a, b in pairwise(places)
            for place in range(a + 1, b)
            if b - a - 1 <= rule["fill_gaps"]
        ]

    def settle(id_: str) -> tuple[bool, dict[str, float | None]]:
        """Return whether a node is part of the output, and the output of its subtree."""
        children = tree.children(id_)
        settled = [settle(child) for child in children]
        there = [present for present, _ in settled]
        gaps = filled(children, there)
        covered = sum(there) + len(gaps)
        share = covered / len(children) if children else 0.0
        enough = share >= threshold if rule["inclusive"] else share > threshold
        merges = any(there) and enough and covered >= rule["min_children"]
        below = {child: score for _, out in settled for child, score in out.items()}
        if not (merges or id_ in own):
            hidden = {child for child, (_, out) in zip(children, settled, strict=True) if out}
            below.update((gap, None) for gap in gaps if gap not in hidden)
            return False, below
        replaced = [score for child, score in below.items() if child in reached]
        scored = [score for score in replaced if score is not None]
        best = None
        if scored:
            best = max(scored) if rule["parent_score"] == "max" else math.fsum(scored) / len(scored)
        return True, {id_: max(best, own.get(id_), key=score_key)}

    reached = {id_ for hit in tree.hits for id_ in (hit.node.node_id, *tree.ancestors(hit.node.node_id))}
    result: dict[str, float | None] = {}
    for root in tree.nodes:
        if root not in tree.above:
            result.update(settle(root)[1])
    return result

"""Parents that merge, decided on ids without a store."""

from __future__ import annotations

import pytest

from llama_index_ext_ctxaug.passages.scores import merged_score
from llama_index_ext_ctxaug.selection.auto_merge import (
    BudgetRule,
    ShareRule,
    merge_by_budget,
    merge_by_share,
    pieces,
)
from llama_index_ext_ctxaug.structure.tree import Children, Tree


def tree(**families: str) -> Tree:
    """Build a tree from `parent="child child ..."`."""
    children = {parent: Children.of(parent, listed.split()) for parent, listed in families.items()}
    return Tree.of({child: parent for parent in children for child in children[parent].ids}, children)


def every(parent: str) -> bool:
    """Allow any parent to merge."""
    return True


def tokens(node_id: str) -> int:
    """Return 900 tokens for a grandparent, 300 for a parent, 100 for a child."""
    return {"G": 900, "P": 300, "Q": 300, "R": 300, "long": 700}.get(node_id, 100)


@pytest.mark.parametrize(
    ("rule", "covered", "merges"),
    [
        (ShareRule(0.5), "a b", False),
        (ShareRule(0.5, inclusive=True), "a b", True),
        (ShareRule(0.5), "a b c", True),
        (ShareRule(0.0), "a", True),
        (ShareRule(0.0, inclusive=True), "", False),
        (ShareRule(0.0, min_children=2), "a", False),
        (ShareRule(1.0), "a b c d", False),
        (ShareRule(1.0, inclusive=True), "a b c d", True),
        (ShareRule(0.6, tokens=tokens), "a b", True),
        (ShareRule(0.7, tokens=tokens), "a b", False),
        (ShareRule(0.5, tokens=lambda _: 0), "a b", False),
    ],
)
def test_the_share_decides(rule: ShareRule, covered: str, merges: bool) -> None:
    """Four children of 100 tokens, a parent of 300: the share must exceed the threshold, or reach it."""
    assert rule.merges("P", covered.split(), 4) is merges


def test_merged_parents_count_as_children() -> None:
    """Merging climbs until nothing changes, from hits in any order."""
    found = tree(G="P Q R", P="a b", Q="c d", R="e f")
    for hits in ("a b c d", "d c b a", "c a d b"):
        assert set(merge_by_share(hits.split(), found, ShareRule(0.6), every)) == {*"abcd", "P", "Q", "G"}
    assert "G" not in merge_by_share(["a", "b", "c"], found, ShareRule(0.6), every)


def test_a_parent_that_may_not_merge_ends_the_climb() -> None:
    """A parent that may not merge ends the climb for everything above it."""
    found = tree(G="P", P="a")
    assert set(merge_by_share(["a"], found, ShareRule(0.5), lambda id_: id_ != "P")) == {"a"}


def test_pieces_give_way_to_the_next_merged_node() -> None:
    """A hit below a parent that did not merge is replaced by the grandparent that did."""
    found = tree(G="P Q R", P="a b", Q="c d", R="e f g")
    merged = merge_by_share(["a", "b", "c", "d", "e"], found, ShareRule(0.6), every)
    assert pieces(merged, found, merged) == {
        "P": ["a", "b"],
        "Q": ["c", "d"],
        "G": ["e", "P", "Q"],
        None: ["G"],
    }


@pytest.mark.parametrize(
    ("hits", "kept"),
    [
        ("a", "a"),
        ("a b", "P"),
        ("long a b", "long a b"),
        ("a b long", "P long"),
    ],
)
def test_the_bar_rises_as_the_budget_fills(hits: str, kept: str) -> None:
    """Two children of 100 merge into 300 with 200 of 1000 used, not with 900 used."""
    found = tree(P="a b c")
    assert sorted(merge_by_budget(hits.split(), found, BudgetRule(1000, tokens), every)) == sorted(
        kept.split()
    )


@pytest.mark.parametrize(("used", "merges"), [(200, True), (900, False), (700, True), (701, False)])
def test_the_budget_must_hold_the_parent(used: int, merges: bool) -> None:
    """The children reach the bar (120 and 190), but the parent merges only if the rest holds it."""
    assert BudgetRule(1000, tokens).merges("P", ["a", "b"], used) is merges


@pytest.mark.parametrize(("used", "merges"), [(0, True), (1, False)])
def test_a_third_is_the_lowest_bar(used: int, merges: bool) -> None:
    """Children of a third of the parent's length merge in an empty context, not in one with a token more."""
    rule = BudgetRule(10_000, {"P": 600, "a": 100, "b": 100}.__getitem__)
    assert rule.merges("P", ["a", "b"], used) is merges


def test_a_merge_makes_the_grandparent_eligible() -> None:
    """A parent that has just merged lets the grandparent merge in the same step."""
    found = tree(G="P Q", P="a b", Q="c d")
    assert set(merge_by_budget(["a", "b", "c", "d"], found, BudgetRule(3000, tokens), every)) == {"G"}


def test_a_hit_that_does_not_fit_is_passed_over() -> None:
    """A hit over the remaining budget is skipped; one below a kept parent costs nothing."""
    found = tree(P="a b c")
    assert set(merge_by_budget(["a", "b", "long", "c"], found, BudgetRule(600, tokens), every)) == {"P"}
    assert set(merge_by_budget(["long", "a"], found, BudgetRule(600, tokens), every)) == {"a"}


@pytest.mark.parametrize(
    ("scores", "best", "mean"),
    [
        ([0.9, 0.8, 0.7], 0.9, 0.8),
        ([0.9, None, None], 0.9, 0.9),
        ([None], None, None),
        ([-2.0, 0.0, None], 0.0, -1.0),
        ([float("nan"), 0.5], 0.5, 0.5),
    ],
)
def test_a_merged_score_is_that_of_the_scored(
    scores: list[float | None], best: float | None, mean: float | None
) -> None:
    """The score is the best or the mean of the scored hits; None if none has a score."""
    assert merged_score(scores, "max") == best
    assert merged_score(scores, "mean") == (None if mean is None else pytest.approx(mean))

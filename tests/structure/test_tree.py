"""Parents and children by id: contradictions, distances and gaps."""

from __future__ import annotations

import pytest

from llama_index_ext_ctxaug.structure.tree import Children, Tree


def tree(**families: str) -> Tree:
    """Build a tree from `parent="child child ..."`."""
    children = {parent: Children.of(parent, listed.split()) for parent, listed in families.items()}
    return Tree.of({child: parent for parent in children for child in children[parent].ids}, children)


def test_children_are_distinct_and_never_their_own_parent() -> None:
    """A list that names a child twice, or the parent itself, counts each other node once."""
    assert Children.of("P", ["a", "b", "a", "P"]).ids == ("a", "b")


def test_a_link_that_the_list_contradicts_is_none() -> None:
    """A child that a parent does not list has no parent; a parent that lists nothing is believed."""
    found = Tree.of({"a": "P", "x": "P", "y": "Q"}, {"P": Children.of("P", ["a"])})
    assert found.parents == {"a": "P", "y": "Q"}


def test_the_node_that_lists_an_unread_parent_is_above_it() -> None:
    """The node that lists a missing parent is above it; two nodes that list it cancel out."""
    listed = {"G": Children.of("G", ["P", "Q"])}
    assert list(Tree.of({"a": "P"}, listed).above("a")) == ["P", "G"]
    listed["H"] = Children.of("H", ["P"])
    assert list(Tree.of({"a": "P"}, listed).above("a")) == ["P"]


@pytest.mark.parametrize("order", [1, -1])
def test_the_wrong_link_of_a_ring_goes(order: int) -> None:
    """Of a cycle, the link that no list confirms is dropped and the confirmed ones are kept."""
    listed = {"P": Children.of("P", ["a"]), "G": Children.of("G", ["P"])}
    stated = [("a", "P"), ("P", "G"), ("G", "a")]
    assert Tree.of(dict(stated[::order]), listed).parents == {"a": "P", "P": "G"}


def test_a_ring_that_all_lists_confirm_goes_whole() -> None:
    """Two nodes that are each other's parent lose those links; a child below keeps its parent."""
    found = tree(P="Q a", Q="P")
    assert found.parents == {"a": "P"}


def test_distance_counts_from_the_nearest() -> None:
    """Levels above several nodes count from the nearest of them."""
    found = tree(G="P Q", P="a b", Q="c")
    assert found.distances(["a", "Q"]) == {"a": 0, "Q": 0, "P": 1, "G": 1}


@pytest.mark.parametrize(
    ("present", "longest", "filled"),
    [
        ("a c", 1, "b"),
        ("c a", 1, "b"),
        ("a d", 1, ""),
        ("a d", 2, "b c"),
        ("a b", 1, ""),
        ("a c e", 1, "b d"),
        ("b", 3, ""),
        ("a c", 0, ""),
    ],
)
def test_gaps_lie_between_two_children(present: str, longest: int, filled: str) -> None:
    """Children between two present ones are a gap, up to a length, whatever the order."""
    found = tree(P="a b c d e").gaps("P", present.split(), longest)
    assert list(found) == filled.split()

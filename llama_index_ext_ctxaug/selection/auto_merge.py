"""Which parents take the place of their children: decisions on ids alone."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

Tokens = Callable[[str], int]
"""The length in tokens of the node of this id."""

Allowed = Callable[[str], bool]
"""Whether this parent may take the place of its children, asked when all else speaks for it."""

Fill = Callable[[str, Sequence[str]], Iterable[str]]
"""Given a parent and its present children, those between them that count as present too."""


class Children(NamedTuple):
    """The children that a parent lists: distinct ids in order, and the place of each."""

    ids: tuple[str, ...]
    places: Mapping[str, int]

    @classmethod
    def of(cls, parent_id: str, listed: Iterable[str]) -> Children:
        """From a list that may name a child twice, or the parent itself."""
        ids = tuple(id_ for id_ in dict.fromkeys(listed) if id_ != parent_id)
        return cls(ids, {id_: place for place, id_ in enumerate(ids)})


@dataclass(frozen=True)
class Tree:
    """Parents and children as far as they are known, without cycles.

    Attributes:
        parents: the parent's id by the id of the child.
        children: what each parent that is in hand lists; no entry where it lists nothing.
    """

    parents: Mapping[str, str]
    children: Mapping[str, Children]

    @classmethod
    def of(cls, stated: Mapping[str, str], children: Mapping[str, Children]) -> Tree:
        """From links that may contradict each other.

        A link to a parent that lists children, but not this one, is none. Where the parent's own link
        is not known, since the parent could not be read, the node that lists it counts as its parent,
        unless that closed a cycle: reading it may show more. Of a cycle those links go that no list
        confirms, and all where lists confirm them all.
        """
        parents = {
            child: parent
            for child, parent in stated.items()
            if parent not in children or child in children[parent].places
        }
        unread = set(parents.values()) - stated.keys() - children.keys()
        listing: dict[str, list[str]] = {}
        for parent, listed in children.items():
            for id_ in unread & listed.places.keys():
                listing.setdefault(id_, []).append(parent)
        for id_, by in listing.items():
            if len(by) == 1 and id_ not in _way_up(parents, by[0]):
                parents[id_] = by[0]
        for confirmed in (False, True):
            ring = _on_cycles(parents)
            if not ring:
                break
            for id_ in ring:
                if confirmed or parents[id_] not in children:
                    del parents[id_]
        return cls(parents, children)

    def above(self, node_id: str) -> Iterator[str]:
        """The ancestors of a node, nearest first."""
        parent = self.parents.get(node_id)
        while parent is not None:
            yield parent
            parent = self.parents.get(parent)

    def distances(self, node_ids: Iterable[str]) -> dict[str, int]:
        """For these nodes and all above them, how many levels lie between each and the nearest of them."""
        levels = dict.fromkeys(node_ids, 0)
        for start in list(levels):
            for distance, id_ in enumerate(self.above(start), start=1):
                if levels.get(id_, distance + 1) <= distance:
                    break
                levels[id_] = distance
        return levels

    def path(self, node_id: str) -> tuple[int, ...]:
        """The places of its ancestors and its own in their parents' lists, from the top: a sort key."""
        steps = [node_id, *self.above(node_id)]
        places = [
            self.children[parent].places[child] if parent in self.children else 0
            for child, parent in pairwise(steps)
        ]
        return tuple(reversed(places))

    def gaps(self, parent_id: str, present: Iterable[str], longest: int) -> dict[str, tuple[str, str]]:
        """Children between two that are present, where at most so many lie between them.

        Args:
            parent_id: whose children.
            present: the children that are present.
            longest: most children of one gap.

        Returns:
            By the id of each child in a gap, in order, the present children before and behind it.
        """
        children = self.children.get(parent_id)
        if children is None or longest < 1:
            return {}
        ids = children.ids
        places = sorted(children.places[id_] for id_ in present if id_ in children.places)
        return {
            ids[place]: (ids[before], ids[behind])
            for before, behind in pairwise(places)
            if behind - before - 1 <= longest
            for place in range(before + 1, behind)
        }


def _way_up(parents: Mapping[str, str], node_id: str) -> dict[str, None]:
    """A node and all above it; ends where it comes round."""
    way: dict[str, None] = {}
    current: str | None = node_id
    while current is not None and current not in way:
        way[current] = None
        current = parents.get(current)
    return way


def _on_cycles(parents: Mapping[str, str]) -> list[str]:
    """The ids from which the way up leads back to themselves."""
    found: list[str] = []
    first_seen_from: dict[str, str] = {}
    for start in parents:
        way: list[str] = []
        current: str | None = start
        while current is not None and current not in first_seen_from:
            first_seen_from[current] = start
            way.append(current)
            current = parents.get(current)
        if current is not None and first_seen_from[current] == start and current in way:
            found += way[way.index(current) :]
    return found


@dataclass(frozen=True)
class ShareRule:
    """A parent takes the place of its children where enough of it was retrieved.

    Attributes:
        threshold: the share, from 0 to 1, that must be exceeded.
        inclusive: whether the threshold itself is enough.
        min_children: least number of children.
        tokens: the share is that of the parent's tokens; None for the share of its children's number.
    """

    threshold: float = 0.5
    inclusive: bool = False
    min_children: int = 1
    tokens: Tokens | None = None

    def merges(self, parent_id: str, covered: Sequence[str], listed: int) -> bool:
        """Whether a parent merges.

        Args:
            parent_id: the parent.
            covered: its distinct children that were retrieved, merged or filled in.
            listed: how many children it has.
        """
        if not covered or len(covered) < self.min_children:
            return False
        if self.tokens is None:
            share = len(covered) / listed
        else:
            whole = self.tokens(parent_id)
            share = sum(map(self.tokens, covered)) / whole if whole else 0.0
        return share >= self.threshold if self.inclusive else share > self.threshold


def merge_by_share(
    hits: Iterable[str], tree: Tree, rule: ShareRule, allowed: Allowed, fill: Fill | None = None
) -> dict[str, None]:
    """Merge level by level, to the fixed point; the order of the hits does not matter.

    Args:
        hits: ids of the hits.
        tree: parents and children.
        rule: when a parent merges.
        allowed: whether a parent may merge.
        fill: which children between present ones count as present too.

    Returns:
        The hits and all parents that merged, as an ordered set; those without another above go out.
    """
    standing = dict.fromkeys(hits)
    present: dict[str, list[str]] = {}
    arrived: Iterable[str] = list(standing)
    while arrived:
        touched: dict[str, None] = {}
        for id_ in arrived:
            parent = tree.parents.get(id_)
            if parent is not None and parent in tree.children:
                present.setdefault(parent, []).append(id_)
                touched[parent] = None
        arrived = [
            parent
            for parent in touched
            if parent not in standing
            and rule.merges(
                parent,
                [*present[parent], *(fill(parent, present[parent]) if fill else ())],
                len(tree.children[parent].ids),
            )
            and allowed(parent)
        ]
        standing.update(dict.fromkeys(arrived))
    return standing


@dataclass
class BudgetRule:
    """HiChunk's rule: the more of the budget is used, the more of a parent must be retrieved.

    A parent merges where at least two of its children are kept, their length is at least a third of
    its own, times one plus the used share of the budget, and the rest of the budget holds it.

    Source: HiChunk (Lu et al. 2025, "Evaluating and enhancing retrieval-augmented generation with
    hierarchical chunking"), Auto-Merge.

    Attributes:
        budget: tokens of the whole output.
        tokens: length of a node's text.
        min_children: least number of children; less than two counts as two.
        cost: tokens that a node takes of the budget; None where that is its length.
    """

    budget: int
    tokens: Tokens
    min_children: int = 2
    cost: Tokens | None = None

    def merges(self, parent_id: str, kept: Sequence[str], used: int) -> bool:
        """Whether a parent merges.

        Args:
            parent_id: the parent.
            kept: its distinct children that are kept so far.
            used: tokens of all that is kept so far.
        """
        if len(kept) < max(2, self.min_children):
            return False
        if self.budget - used < self.price(parent_id):
            return False
        bar = self.tokens(parent_id) / 3 * (1 + used / max(self.budget, 1))
        return sum(map(self.tokens, kept)) >= bar

    def price(self, node_id: str) -> int:
        """Tokens that a node takes of the budget."""
        return (self.cost or self.tokens)(node_id)


def merge_by_budget(hits: Iterable[str], tree: Tree, rule: BudgetRule, allowed: Allowed) -> dict[str, None]:
    """Keep hits one by one, best first, while the budget lasts; after each one climb as far as parents merge.

    Args:
        hits: ids of the hits, best first; one that does not fit is passed over.
        tree: parents and children.
        rule: when a parent merges.
        allowed: whether a parent may merge.

    Returns:
        The hits and parents that are kept, as an ordered set; none is above another.
    """
    kept: dict[str, int] = {}

    def below(node_id: str) -> list[str]:
        return [id_ for id_ in kept if node_id in tree.above(id_)]

    def keep(node_id: str) -> None:
        for id_ in below(node_id):
            del kept[id_]
        kept[node_id] = rule.price(node_id)

    for hit in hits:
        if not kept.keys().isdisjoint(tree.above(hit)):
            continue
        freed = sum(kept[id_] for id_ in below(hit))
        if sum(kept.values()) - freed + rule.price(hit) > rule.budget:
            continue
        keep(hit)
        for parent in tree.above(hit):
            children = [id_ for id_ in kept if tree.parents.get(id_) == parent]
            used = sum(kept.values())
            if parent not in tree.children or not rule.merges(parent, children, used) or not allowed(parent):
                break
            keep(parent)
    return dict.fromkeys(kept)


def pieces(node_ids: Iterable[str], tree: Tree, standing: Container[str]) -> dict[str | None, list[str]]:
    """What each standing node takes the place of; under None, what goes out itself.

    Args:
        node_ids: distinct ids of all that stands or was retrieved.
        tree: parents and children.
        standing: ids that take the place of what is below them.

    Returns:
        The ids below each standing node with no other standing node between, in the order of `node_ids`.
    """
    by_top: dict[str | None, list[str]] = {}
    for id_ in node_ids:
        top = next((above for above in tree.above(id_) if above in standing), None)
        by_top.setdefault(top, []).append(id_)
    return by_top

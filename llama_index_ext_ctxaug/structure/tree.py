"""Parents and children by id, without cycles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple


class Children(NamedTuple):
    """Distinct ids of the children that a parent lists, in order, and the position of each."""

    ids: tuple[str, ...]
    places: Mapping[str, int]

    @classmethod
    def of(cls, parent_id: str, listed: Iterable[str]) -> Children:
        """Build from a list that may repeat a child or name the parent itself."""
        ids = tuple(id_ for id_ in dict.fromkeys(listed) if id_ != parent_id)
        return cls(ids, {id_: place for place, id_ in enumerate(ids)})


@dataclass(frozen=True)
class Tree:
    """The known parents and children, without cycles.

    Attributes:
        parents: id of the parent by id of the child.
        children: children of each loaded parent; no entry for a parent that lists none.
    """

    parents: Mapping[str, str]
    children: Mapping[str, Children]

    @classmethod
    def of(cls, stated: Mapping[str, str], children: Mapping[str, Children]) -> Tree:
        """Build from links that may contradict each other.

        A link to a parent is dropped if its list of children omits the node. A parent that is not loaded
        is placed under the node that lists it, unless that closes a cycle. A cycle loses the links that
        no list confirms, or all of its links if lists confirm each of them.
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
        """Yield the ancestors of a node, nearest first."""
        parent = self.parents.get(node_id)
        while parent is not None:
            yield parent
            parent = self.parents.get(parent)

    def distances(self, node_ids: Iterable[str]) -> dict[str, int]:
        """Return, for these nodes and all their ancestors, the levels down to the nearest of these nodes."""
        levels = dict.fromkeys(node_ids, 0)
        for start in list(levels):
            for distance, id_ in enumerate(self.above(start), start=1):
                if levels.get(id_, distance + 1) <= distance:
                    break
                levels[id_] = distance
        return levels

    def path(self, node_id: str) -> tuple[int, ...]:
        """Return the positions of a node's ancestors and its own in their parents' lists: a sort key."""
        steps = [node_id, *self.above(node_id)]
        places = [
            self.children[parent].places[child] if parent in self.children else 0
            for child, parent in pairwise(steps)
        ]
        return tuple(reversed(places))

    def gaps(self, parent_id: str, present: Iterable[str], longest: int) -> dict[str, tuple[str, str]]:
        """Find the children in short gaps between children that are present.

        Args:
            parent_id: the parent.
            present: ids of its children that are present.
            longest: maximum number of children in one gap.

        Returns:
            The ids of the children in gaps, in order, each with the present children before and after it.
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
    """Return a node and its ancestors, each once."""
    way: dict[str, None] = {}
    current: str | None = node_id
    while current is not None and current not in way:
        way[current] = None
        current = parents.get(current)
    return way


def _on_cycles(parents: Mapping[str, str]) -> list[str]:
    """Return the ids that are on a cycle of parents."""
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

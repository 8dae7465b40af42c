"""Resolve links that contradict each other into chains: those between chunks of a call, and at ingestion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from llama_index_ext_ctxaug.passages.passage import Chunk, Edge, Passage


@dataclass
class Chains:
    """Chains of nodes, built from the best founded links to the least.

    Attributes:
        followers: id of the node after each node.
        preceding: id of the node before each node.
        closed_ends: ids of nodes that nothing may follow.
        closed_starts: ids of nodes that nothing may precede.
        has_ring: True if an edge was left out since it closed a ring.
    """

    followers: dict[str, str] = field(default_factory=dict)
    preceding: dict[str, str] = field(default_factory=dict)
    closed_ends: set[str] = field(default_factory=set)
    closed_starts: set[str] = field(default_factory=set)
    has_ring: bool = False
    _first_of: dict[str, str] = field(default_factory=dict)
    _last_of: dict[str, str] = field(default_factory=dict)

    def take(self, edges: Iterable[Edge]) -> None:
        """Add the edges whose ends are free and that no other of them disputes.

        Args:
            edges: equally well founded edges. Of those that would close a ring the last is left out.
        """
        first_of, last_of = self._first_of, self._last_of
        free = [edge for edge in dict.fromkeys(edges) if edge[0] != edge[1]]
        if self.followers or self.closed_ends or self.closed_starts:
            free = [*filter(self.is_free, free)]
        for before, after in _undisputed(free):
            first, last = first_of.get(before, before), last_of.get(after, after)
            if first == after:
                self.has_ring = True
                continue
            self.followers[before], self.preceding[after] = after, before
            first_of[last], last_of[first] = first, last

    def is_free(self, edge: Edge) -> bool:
        """Return True if nothing taken so far excludes the edge."""
        before, after = edge
        return (
            before not in self.followers
            and after not in self.preceding
            and before not in self.closed_ends
            and after not in self.closed_starts
            and not self.closes_ring(edge)
        )

    def closes_ring(self, edge: Edge) -> bool:
        """Return True if the edge leads from the end of a chain back to its start."""
        before, after = edge
        return self._first_of.get(before, before) == after

    def chain(self, start: str) -> Iterator[str]:
        """Yield a node and all that follow it."""
        current: str | None = start
        while current is not None:
            yield current
            current = self.followers.get(current)


def join(chunks: Mapping[str, Chunk], agreed: Iterable[Edge], claimed: Iterable[Edge]) -> list[Passage]:
    """Order chunks and join those that follow one another; the order of the edges does not matter.

    Edges of equal weight that compete for a place join nothing. A ring opens before its best-ranked chunk.

    Args:
        chunks: all chunks of the output by node id.
        agreed: adjacencies that both nodes state; they count first. Edges to other nodes are ignored.
        claimed: adjacencies that have one source.

    Returns:
        The passages by rank; each chunk is in exactly one of them.
    """
    weights = [
        [edge for edge in edges if edge[0] in chunks and edge[1] in chunks] for edges in (agreed, claimed)
    ]
    chains = _chains(weights)
    if chains.has_ring:  # which edge is left out depends on the order of the edges
        by_rank = sorted(chunks, key=lambda id_: (chunks[id_].role == "neighbor", chunks[id_].rank))
        place = {id_: number for number, id_ in enumerate(by_rank)}
        chains = _chains(sorted(edges, key=lambda edge: place[edge[1]], reverse=True) for edges in weights)
    starts = (id_ for id_ in chunks if id_ not in chains.preceding)
    passages = [Passage([chunks[id_] for id_ in chains.chain(start)]) for start in starts]
    passages.sort(key=lambda passage: passage.rank)
    return passages


def _chains(weights: Iterable[Iterable[Edge]]) -> Chains:
    chains = Chains()
    for edges in weights:
        chains.take(edges)
    return chains


def _undisputed(edges: list[Edge]) -> list[Edge]:
    """Return the edges whose start and end no other of them claims."""
    starts, ends = [before for before, _ in edges], [after for _, after in edges]
    if len(set(starts)) == len(set(ends)) == len(edges):
        return edges
    starting, ending = Counter(starts), Counter(ends)
    return [edge for edge in edges if starting[edge[0]] == 1 and ending[edge[1]] == 1]

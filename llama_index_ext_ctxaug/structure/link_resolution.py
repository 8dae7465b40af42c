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
    """

    followers: dict[str, str] = field(default_factory=dict)
    preceding: dict[str, str] = field(default_factory=dict)
    closed_ends: set[str] = field(default_factory=set)
    closed_starts: set[str] = field(default_factory=set)
    _first_of: dict[str, str] = field(default_factory=dict)
    _last_of: dict[str, str] = field(default_factory=dict)

    def take(self, edges: Iterable[Edge]) -> None:
        """Add the edges whose ends are free and that no other of them disputes.

        Args:
            edges: equally well founded edges. Of those that would close a ring the last is left out.
        """
        free = [edge for edge in dict.fromkeys(edges) if self.is_free(edge)]
        starts, ends = Counter(before for before, _ in free), Counter(after for _, after in free)
        for edge in free:
            before, after = edge
            if starts[before] == 1 and ends[after] == 1 and not self.closes_ring(edge):
                self.followers[before], self.preceding[after] = after, before
                first, last = self._first_of.pop(before, before), self._last_of.pop(after, after)
                self._first_of[last], self._last_of[first] = first, last

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


def join(chunks: Mapping[str, Chunk], edges: Iterable[Edge]) -> list[Passage]:
    """Order chunks and join those that follow one another; the order of the edges does not matter.

    A link that both nodes state counts before a link that one of them states. Links of equal weight that
    compete for a place join nothing. A ring opens before its best-ranked chunk.

    Args:
        chunks: all chunks of the output by node id.
        edges: stated adjacencies, twice where both nodes state one. Edges to other nodes are ignored.

    Returns:
        The passages by rank; each chunk is in exactly one of them.
    """
    stated = Counter(edge for edge in edges if edge[0] in chunks and edge[1] in chunks)
    by_rank = sorted(chunks, key=lambda id_: (chunks[id_].role == "neighbor", chunks[id_].rank))
    place = {id_: number for number, id_ in enumerate(by_rank)}
    ordered = sorted(stated, key=lambda edge: place[edge[1]], reverse=True)
    chains = Chains()
    chains.take(edge for edge in ordered if stated[edge] > 1)
    chains.take(edge for edge in ordered if stated[edge] == 1)
    starts = (id_ for id_ in chunks if id_ not in chains.preceding)
    passages = [Passage([chunks[id_] for id_ in chains.chain(start)]) for start in starts]
    passages.sort(key=lambda passage: passage.rank)
    return passages

"""Chunks and passages, and the joining of chunks into passages in reading order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from llama_index.core.schema import BaseNode, NodeWithScore

Role = Literal["hit", "neighbor", "parent"]

StopReason = Literal[
    "count",
    "document_end",
    "heading",
    "budget",
    "filter",
    "missing",
    "other_document",
    "cycle",
]
"""Why expansion ended on a side: the number of chunks is reached, the document ends, a heading, the token
budget, a node that the filters refuse, a node missing from the store, a link into another document, a link
back to a chunk of the passage."""


@dataclass(slots=True)
class Chunk:
    """A node of the output, and how it was reached.

    Attributes:
        node: the node; for a hit the same object that the retriever returned.
        role: hit, neighbor (reached from a hit) or parent (replaces merged children).
        hits: ids of the hits that it belongs to, nearest first; its own id for a hit.
        rank: position of the hit in the input list; for other nodes that of their nearest hit.
        hops: number of links to its nearest hit; 0 for a hit.
        score: score in the output for a hit or parent, score of the nearest hit for a neighbor.
        origin: the input object, if the hit is returned unchanged.
        stopped_previous: why expansion towards the start of the document ended here, if it did.
        stopped_next: why expansion towards the end of the document ended here, if it did.
    """

    node: BaseNode
    role: Role
    hits: tuple[str, ...]
    rank: int
    hops: int = 0
    score: float | None = None
    origin: NodeWithScore | None = None
    stopped_previous: StopReason | None = None
    stopped_next: StopReason | None = None


@dataclass(slots=True)
class Passage:
    """A run of chunks that follow one another in one document.

    Attributes:
        chunks: in reading order.
    """

    chunks: list[Chunk] = field(default_factory=list)

    @property
    def rank(self) -> tuple[int, bool]:
        """Return the rank of its first hit; a run without a hit ranks after the hit it was reached from."""
        hits = [chunk.rank for chunk in self.chunks if chunk.role != "neighbor"]
        return (min(hits), False) if hits else (min(chunk.rank for chunk in self.chunks), True)


Edge = tuple[str, str]
"""Two node ids: the second follows the first directly."""


def join(chunks: Mapping[str, Chunk], edges: Iterable[Edge]) -> list[Passage]:
    """Put chunks into reading order and join those that touch; linear in chunks and edges.

    A link that both its nodes state takes precedence over a link that only one states. Links of one node
    alone that compete for the same place join nothing, so the result does not depend on the order of the
    edges. A ring is opened before its best-ranked chunk.

    Args:
        chunks: all chunks of the output by node id.
        edges: adjacencies; an edge that occurs twice is stated by both its nodes. Edges to nodes that are
            not among the chunks are ignored.

    Returns:
        The passages by rank; every chunk is in exactly one of them.
    """
    stated: dict[Edge, bool] = {}
    for edge in edges:
        before, after = edge
        if before in chunks and after in chunks and before != after:
            stated[edge] = edge in stated
    followers = dict(_undisputed([edge for edge, firm in stated.items() if firm]))
    preceded = set(followers.values())
    loose = [edge for edge, firm in stated.items() if not firm]
    left = [edge for edge in loose if edge[0] not in followers and edge[1] not in preceded]
    followers.update(_undisputed(left))
    preceded.update(followers.values())
    return _runs(chunks, followers, preceded)


def _undisputed(edges: list[Edge]) -> list[Edge]:
    """Return the edges whose start and end no other edge claims."""
    starts, ends = [before for before, _ in edges], [after for _, after in edges]
    if len(set(starts)) == len(set(ends)) == len(edges):
        return edges
    starting, ending = Counter(starts), Counter(ends)
    return [edge for edge in edges if starting[edge[0]] == 1 and ending[edge[1]] == 1]


def _runs(chunks: Mapping[str, Chunk], followers: Mapping[str, str], preceded: set[str]) -> list[Passage]:
    """Follow the links from every start; what remains are rings."""
    passages: list[Passage] = []
    placed: set[str] = set()

    def follow(start: str) -> None:
        passage = Passage()
        current: str | None = start
        while current is not None and current not in placed:
            placed.add(current)
            passage.chunks.append(chunks[current])
            current = followers.get(current)
        passages.append(passage)

    for node_id in chunks:
        if node_id not in preceded:
            follow(node_id)
    if len(placed) < len(chunks):
        for node_id in sorted(chunks, key=lambda id_: (chunks[id_].role == "neighbor", chunks[id_].rank)):
            if node_id not in placed:
                follow(node_id)
    passages.sort(key=lambda passage: passage.rank)
    return passages

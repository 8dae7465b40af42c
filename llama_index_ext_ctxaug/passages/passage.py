"""Chunks in reading order: which chunks follow one another, and which of them make one passage."""

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
"""Why expansion ended at a side: the wanted number reached, the document's end, a heading, the token
limit, a node that the filters refuse, a node that the store has not, a link into another document,
a link back into the chunks already taken."""


@dataclass(slots=True)
class Chunk:
    """A node on its way into the output, with what is known of how it came there.

    Attributes:
        node: the node; for a hit the very one that the retriever returned.
        role: hit, neighbor (reached from a hit) or parent (stands for merged children).
        hits: ids of the hits it belongs to, nearest first; its own id for a hit.
        rank: for a hit its position in the incoming list, for others that of their nearest hit.
        hops: links between it and its nearest hit; 0 for a hit.
        score: for hits and parents what they go out with, for a neighbor that of its nearest hit.
        origin: the object that came in, for a hit that goes out unchanged.
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
        """The rank of its first hit; a run cut off from its hit by contradicting links stands behind it."""
        hits = [chunk.rank for chunk in self.chunks if chunk.role != "neighbor"]
        return (min(hits), False) if hits else (min(chunk.rank for chunk in self.chunks), True)


Edge = tuple[str, str]
"""Two node ids: the second follows the first directly."""


def join(chunks: Mapping[str, Chunk], edges: Iterable[Edge]) -> list[Passage]:
    """Put chunks into reading order and join those that touch; linear in chunks and edges.

    A link that both nodes state counts before a link that only one states; links of the latter kind
    that compete for the same place are in doubt, and join nothing. So the result does not depend on
    the order in which the edges come. A ring is opened before its best-ranked chunk.

    Args:
        chunks: all chunks of the output by node id, each once.
        edges: stated adjacencies; an edge that is stated twice (by both its nodes) is firm. Edges to
            nodes that are not among the chunks are ignored.

    Returns:
        The passages, by rank; every chunk stands in exactly one of them.
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
    """The edges whose start and end no other of these edges claims."""
    starts, ends = [before for before, _ in edges], [after for _, after in edges]
    if len(set(starts)) == len(set(ends)) == len(edges):
        return edges
    starting, ending = Counter(starts), Counter(ends)
    return [edge for edge in edges if starting[edge[0]] == 1 and ending[edge[1]] == 1]


def _runs(chunks: Mapping[str, Chunk], followers: Mapping[str, str], preceded: set[str]) -> list[Passage]:
    """Follow the links from every start; what is left over are rings."""
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

"""Chunks of a call, and passages: runs of chunks that follow one another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

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


class Cut(NamedTuple):
    """The node that a chunk is a part of.

    Attributes:
        node_id: the node.
        before: True if text of it is missing before the part.
        after: True if text of it is missing after the part.
    """

    node_id: str
    before: bool
    after: bool


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
        cut: the node that this is a part of; None for a whole node.
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
    cut: Cut | None = None


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

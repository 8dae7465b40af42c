"""Provenance as a value: the origin of a node, and of each of its characters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from llama_index_ext_ctxaug.passages.passage import Role, StopReason


class Piece(NamedTuple):
    """A part of a node's text that comes from one chunk.

    Attributes:
        node_id: the chunk.
        role: hit, neighbor or parent.
        hits: ids of the hits that it belongs to, nearest first.
        hops: number of links to its nearest hit.
        start: first character in the node's text.
        end: end in the node's text, exclusive.
        source_start: first character in the source document; None if unknown.
        source_end: end in the source document, exclusive; None if unknown.
        exact: True if this range was compared with the document's text; False if a parser noted it.
        document_id: the chunk's source document.
        metadata: the chunk's own metadata, as far as there was room for it.
    """

    node_id: str
    role: Role
    hits: tuple[str, ...]
    hops: int
    start: int
    end: int
    source_start: int | None = None
    source_end: int | None = None
    exact: bool = False
    document_id: str | None = None
    metadata: Mapping[str, Any] = {}

    def cut(self, start: int, end: int) -> Piece | None:
        """Cut the piece to a part of the text, and count from the part's start; None if nothing is left."""
        first, last = max(self.start, start), min(self.end, end)
        if first >= last:
            return None
        source = None if self.source_start is None else self.source_start + first - self.start
        return self._replace(
            start=first - start,
            end=last - start,
            source_start=source,
            source_end=None if source is None else source + last - first,
        )

    def moved(self, by: int) -> Piece:
        """Return the piece that many characters later in the text."""
        return self._replace(start=self.start + by, end=self.end + by)


class Provenance(NamedTuple):
    """The origin of a node that an augmenter added or made.

    Attributes:
        role: neighbor or parent for a stored node, passage or window for a made one.
        hits: ids of the hits that it was added for, nearest first.
        hops: number of links to its nearest hit; 0 for made nodes.
        stopped_previous: why expansion towards the start of the document ended here, if it did.
        stopped_next: why expansion towards the end of the document ended here, if it did.
        pieces: for made nodes, the chunk of each character, in order; characters between pieces (white
            space, separators, marks) belong to no chunk.
        exact: True if the text was compared with the source document and is a slice of it.
        cut: for a window, the node that it was cut from, its first character there, and its end, exclusive.
        node_id: for a stored node, its id.
    """

    role: Role | Literal["passage", "window"]
    hits: tuple[str, ...]
    hops: int = 0
    stopped_previous: StopReason | None = None
    stopped_next: StopReason | None = None
    pieces: tuple[Piece, ...] = ()
    exact: bool = True
    cut: tuple[str, int, int] | None = None
    node_id: str | None = None

    def slice(self, start: int, end: int) -> Provenance:
        """Return the provenance of a part of the text.

        Args:
            start: first character of the part.
            end: end of the part, exclusive.

        Returns:
            The role "window" with the pieces in the part, cut to it and counted from its start, and their
            hits; those of the whole if no piece is in the part.
        """
        pieces = tuple(piece for whole in self.pieces if (piece := whole.cut(start, end)) is not None)
        hits = tuple(dict.fromkeys(hit for piece in pieces for hit in piece.hits))
        return Provenance("window", hits or self.hits, pieces=pieces, exact=self.exact)

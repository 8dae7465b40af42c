"""Where a node of the output came from: one typed value under one metadata key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from llama_index.core.schema import BaseNode

from llama_index_ext_ctxaug.passages.passage import Role, StopReason

PROVENANCE_KEY = "context_augmentation"
"""The metadata key; it is excluded from the text for the LLM and for embedding."""

_ROLES = ("hit", "neighbor", "parent", "passage", "window")


class Piece(NamedTuple):
    """A part of a passage's text that stems from one node.

    Attributes:
        node_id: the node.
        role: hit, neighbor or parent.
        hits: ids of the hits that it belongs to, nearest first.
        hops: links between it and its nearest hit.
        start: first character in the passage's text.
        end: end of it in the passage's text, exclusive.
        source_start: first character in the source document, where the node's offsets are right; else None.
        source_end: its end there, exclusive; else None.
    """

    node_id: str
    role: Role
    hits: tuple[str, ...]
    hops: int
    start: int
    end: int
    source_start: int | None = None
    source_end: int | None = None

    def cut(self, start: int, end: int) -> Piece | None:
        """What of this piece lies in a part of the text, counted from the part's start; None for nothing."""
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


class Provenance(NamedTuple):
    """What an added or made node says of its origin.

    Attributes:
        role: neighbor or parent for a stored node, passage or window for a made one.
        hits: ids of the hits that it was added for, nearest first.
        hops: links between it and its nearest hit; 0 for made nodes.
        stopped_previous: why expansion ended on the side of the document's start, where it ended here.
        stopped_next: why expansion ended on the side of the document's end, where it ended here.
        pieces: for made nodes, which of its characters are which node's, in order; characters between
            pieces (white space that a splitter stripped, separators, marks) belong to no node.
        exact: False for a made node whose text is not certain to be what its document has there: a hole,
            an edited chunk, white space or an overlap that could only be guessed.
        cut: for a window, the node it was cut from, and its first character there and its end, exclusive.
    """

    role: Role | Literal["passage", "window"]
    hits: tuple[str, ...]
    hops: int = 0
    stopped_previous: StopReason | None = None
    stopped_next: StopReason | None = None
    pieces: tuple[Piece, ...] = ()
    exact: bool = True
    cut: tuple[str, int, int] | None = None

    def slice(self, start: int, end: int) -> Provenance:
        """The provenance of a part of the text.

        Args:
            start: first character of the part.
            end: its end, exclusive.

        Returns:
            The role "window", the pieces that lie in the part, cut to it and counted from its start,
            and the hits of these pieces.
        """
        pieces = tuple(piece for whole in self.pieces if (piece := whole.cut(start, end)) is not None)
        hits = tuple(dict.fromkeys(hit for piece in pieces for hit in piece.hits))
        return Provenance("window", hits, pieces=pieces, exact=self.exact)

    def to_metadata(self) -> dict[str, Any]:
        """The value as plain JSON types, without what is None or empty."""
        data: dict[str, Any] = {"role": self.role, "hits": list(self.hits), "hops": self.hops}
        if self.stopped_previous is not None:
            data["stopped_previous"] = self.stopped_previous
        if self.stopped_next is not None:
            data["stopped_next"] = self.stopped_next
        if self.pieces:
            data["pieces"] = [_piece_to_dict(piece) for piece in self.pieces]
        if not self.exact:
            data["exact"] = False
        if self.cut is not None:
            data["cut"] = list(self.cut)
        return data

    @classmethod
    def from_metadata(cls, data: Mapping[str, Any]) -> Provenance:
        """The inverse of `to_metadata`."""
        pieces = tuple(Piece(**{**piece, "hits": tuple(piece["hits"])}) for piece in data.get("pieces", ()))
        made = {"cut": tuple(data["cut"])} if "cut" in data else {}
        return cls(**{**data, **made, "hits": tuple(data["hits"]), "pieces": pieces})


def read_provenance(node: BaseNode) -> Provenance | None:
    """What a node of an augmented result says of its origin.

    Args:
        node: any node; pass `hit.node` for a `NodeWithScore`.

    Returns:
        The provenance, or None for a node that an augmenter neither added nor made: an unchanged hit, or
        a node whose metadata has something else under that key.
    """
    data = node.metadata.get(PROVENANCE_KEY)
    if data is None:
        return None
    if not isinstance(data, Mapping) or data.get("role") not in _ROLES:
        return None
    try:
        return Provenance.from_metadata(data)
    except (KeyError, TypeError, ValueError):
        return None


def is_augmented(node: BaseNode) -> bool:
    """Whether an augmenter added this node as a neighbor, or made it; a parent stands for hits."""
    provenance = read_provenance(node)
    return provenance is not None and provenance.role != "parent"


def with_provenance(node: BaseNode, provenance: Provenance) -> BaseNode:
    """A copy of a node that carries this provenance; the node itself stays as it was."""
    copy = node.model_copy()
    # Past pydantic's validation of assignments: the values are what the fields hold, only extended.
    fields = copy.__dict__
    fields["metadata"] = {**node.metadata, PROVENANCE_KEY: provenance.to_metadata()}
    fields["relationships"] = {**node.relationships}
    for name in ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys"):
        keys = fields[name]
        if PROVENANCE_KEY not in keys:
            fields[name] = [*keys, PROVENANCE_KEY]
    return copy


def _piece_to_dict(piece: Piece) -> dict[str, Any]:
    data: dict[str, Any] = {
        "node_id": piece.node_id,
        "role": piece.role,
        "hits": list(piece.hits),
        "hops": piece.hops,
        "start": piece.start,
        "end": piece.end,
    }
    if piece.source_start is not None:
        data["source_start"], data["source_end"] = piece.source_start, piece.source_end
    return data

"""Nodes cut out of a node: exact slices of its text with true offsets and provenance; and joined again."""

from __future__ import annotations

from typing import Any, NamedTuple

from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, NodeWithScore, TextNode

from llama_index_ext_ctxaug.passages.passage_node import passage_id
from llama_index_ext_ctxaug.passages.provenance import (
    Piece,
    Provenance,
    read_provenance,
    with_provenance,
)
from llama_index_ext_ctxaug.passages.scores import score_key

STALE_KEYS = ("window", "original_text")
"""Metadata of a sentence window parser: true for the node that was cut, not for a part of it."""


class Place(NamedTuple):
    """Where the text of a node stands in the text it was cut from.

    Attributes:
        whole_id: the node it was cut from; itself for a node that was not cut.
        start: its first character there.
        end: its end there, exclusive.
    """

    whole_id: str
    start: int
    end: int


def place_of(node: BaseNode) -> Place:
    """Where a node's text stands in the text it was cut from; the whole of it for a node that was not."""
    provenance = read_provenance(node)
    if provenance is not None and provenance.cut is not None:
        return Place(*provenance.cut)
    return Place(node.node_id, 0, len(node.get_content(metadata_mode=MetadataMode.NONE)))


def whole_provenance(node: TextNode) -> Provenance:
    """The provenance of a node with pieces: those of a passage, else one piece, the node itself."""
    known = read_provenance(node)
    if known is not None and known.pieces:
        return known
    start = node.start_char_idx if _has_true_offsets(node) else None
    piece = Piece(
        node_id=node.node_id,
        role=known.role if known is not None and known.role in ("neighbor", "parent") else "hit",
        hits=known.hits if known is not None else (node.node_id,),
        hops=known.hops if known is not None else 0,
        start=0,
        end=len(node.text),
        source_start=start,
        source_end=None if start is None else start + len(node.text),
    )
    return Provenance("window", piece.hits, pieces=(piece,))


def cut_node(node: TextNode, provenance: Provenance, start: int, end: int) -> BaseNode:
    """A node for a part of a node's text.

    Args:
        node: the node; it stays as it is.
        provenance: `whole_provenance(node)`.
        start: first character of the part.
        end: its end, exclusive.

    Returns:
        A new node whose text is `node.text[start:end]`. Its id is derived from source, place and text; its
        metadata is the node's, without windows of a sentence window parser; `start_char_idx` and
        `end_char_idx` are true wherever the node's own are. The first part keeps PREVIOUS, the last NEXT.
    """
    origin = Place(node.node_id, 0, len(node.text)) if provenance.cut is None else Place(*provenance.cut)
    place = (origin.whole_id, origin.start + start, origin.start + end)
    part = provenance.slice(start, end)
    if not part.hits:
        part = part._replace(hits=provenance.hits)
    kept = {NodeRelationship.SOURCE, NodeRelationship.PARENT}
    kept |= {NodeRelationship.PREVIOUS} if start == 0 else set()
    kept |= {NodeRelationship.NEXT} if end == len(node.text) else set()
    related = {key: value for key, value in node.relationships.items() if key in kept}
    return _part(node, node.text[start:end], part._replace(cut=place), start, related)


def join_overlapping(first: NodeWithScore, second: NodeWithScore) -> NodeWithScore:
    """One node of two parts of the same text, the second beginning within the first or right behind it."""
    one, two = place_of(first.node), place_of(second.node)
    if two.end <= one.end:
        return NodeWithScore(node=first.node, score=_better(first, second))
    text = first.node.get_content(metadata_mode=MetadataMode.NONE)
    text += second.node.get_content(metadata_mode=MetadataMode.NONE)[one.end - two.start :]
    earlier, later = (read_provenance(hit.node) or Provenance("window", ()) for hit in (first, second))
    pieces = _join_pieces(earlier.pieces, later.pieces, two.start - one.start)
    provenance = earlier._replace(
        hits=tuple(dict.fromkeys(earlier.hits + later.hits)),
        pieces=pieces,
        exact=earlier.exact and later.exact,
        cut=(one.whole_id, one.start, two.end),
    )
    node = _part(first.node, text, provenance, 0, {**second.node.relationships, **first.node.relationships})
    return NodeWithScore(node=node, score=_better(first, second))


def _part(
    node: Any, text: str, provenance: Provenance, start: int, relationships: dict[NodeRelationship, Any]
) -> BaseNode:
    source = node.relationships.get(NodeRelationship.SOURCE)
    source_id = getattr(source, "node_id", None)
    begin = node.start_char_idx + start if _has_true_offsets(node) else None
    place = provenance.cut if begin is None else (begin, begin + len(text))
    part = node.model_copy(
        update={
            "id_": passage_id(source_id, place or (), text),
            "embedding": None,
            "start_char_idx": begin,
            "end_char_idx": None if begin is None else begin + len(text),
            "metadata": {key: value for key, value in node.metadata.items() if key not in STALE_KEYS},
            "relationships": relationships,
        }
    )
    part.set_content(text)
    return with_provenance(part, provenance)


def _join_pieces(first: tuple[Piece, ...], second: tuple[Piece, ...], shift: int) -> tuple[Piece, ...]:
    """The pieces of both parts, those of one node made one; the second begins `shift` characters later."""
    pieces = list(first)
    for later in second:
        moved = later._replace(start=later.start + shift, end=later.end + shift)
        known = pieces[-1] if pieces else None
        if known is not None and moved.end <= known.end:
            continue
        if known is not None and known.node_id == moved.node_id and moved.start <= known.end:
            pieces[-1] = known._replace(
                end=moved.end,
                source_end=None if known.source_start is None else moved.source_end,
            )
        else:
            pieces.append(moved)
    return tuple(pieces)


def _better(first: NodeWithScore, second: NodeWithScore) -> float | None:
    return max(first.score, second.score, key=score_key)


def _has_true_offsets(node: TextNode) -> bool:
    start, end = node.start_char_idx, node.end_char_idx
    return start is not None and end is not None and end - start == len(node.text)

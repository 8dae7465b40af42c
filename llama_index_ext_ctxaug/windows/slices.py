"""Cut nodes into exact slices of their text, with offsets and provenance, and join slices again."""

from __future__ import annotations

from typing import Any, NamedTuple

from llama_index.core.schema import BaseNode, NodeRelationship, NodeWithScore, TextNode

from llama_index_ext_ctxaug.passages.offsets import noted_span, text_of
from llama_index_ext_ctxaug.passages.passage_node import passage_id
from llama_index_ext_ctxaug.passages.pieces import Piece, Provenance
from llama_index_ext_ctxaug.passages.provenance import (
    own_metadata,
    read_provenance,
    whole_provenance,
    with_provenance,
)
from llama_index_ext_ctxaug.passages.scores import score_key

_ABOVE = frozenset({NodeRelationship.SOURCE, NodeRelationship.PARENT})


class Place(NamedTuple):
    """The place of a node's text in the text that it was cut from.

    Attributes:
        whole_id: the node that it was cut from; itself for a node that was not cut.
        start: first character there.
        end: end there, exclusive.
    """

    whole_id: str
    start: int
    end: int


def place_of(node: BaseNode) -> Place:
    """Return the place of a node's text in the text that it was cut from."""
    provenance = read_provenance(node)
    if provenance is not None and provenance.cut is not None:
        return Place(*provenance.cut)
    return Place(node.node_id, 0, len(text_of(node)))


def cut_node(node: TextNode, provenance: Provenance, start: int, end: int) -> BaseNode:
    """Make a node of a part of a node's text.

    Args:
        node: the node; it is not changed.
        provenance: `whole_provenance(node)`.
        start: first character of the part.
        end: end of the part, exclusive.

    Returns:
        A new node with the text `node.text[start:end]`. Its id is derived from source, place and text; its
        metadata is the node's, without the windows of a sentence window parser; `start_char_idx` and
        `end_char_idx` are correct if the node's are. The first part keeps PREVIOUS, the last NEXT.
    """
    origin = Place(node.node_id, 0, len(node.text)) if provenance.cut is None else Place(*provenance.cut)
    place = (origin.whole_id, origin.start + start, origin.start + end)
    part = provenance.slice(start, end)
    kept = set(_ABOVE)
    kept |= {NodeRelationship.PREVIOUS} if start == 0 else set()
    kept |= {NodeRelationship.NEXT} if end == len(node.text) else set()
    related = {key: value for key, value in node.relationships.items() if key in kept}
    return _part(node, node.text[start:end], part._replace(cut=place), start, related)


def join_overlapping(first: NodeWithScore, second: NodeWithScore, start: int) -> NodeWithScore:
    """Join two parts of one text.

    Args:
        first: the part that begins first.
        second: a part that begins in it or where it ends.
        start: its first character in the text of the first.

    Returns:
        A window with the better score, the PREVIOUS of the first and the NEXT of the part that ends last.
    """
    one, two = place_of(first.node), place_of(second.node)
    text = text_of(first.node)
    added = text_of(second.node)[len(text) - start :]
    earlier, later = whole_provenance(first.node), whole_provenance(second.node)
    is_one_text = one.whole_id == two.whole_id
    if not added and is_one_text:
        return NodeWithScore(node=first.node, score=_better(first, second))
    provenance = earlier._replace(
        hits=tuple(dict.fromkeys(earlier.hits + later.hits)),
        pieces=_join_pieces(earlier.pieces, later.pieces, start),
        exact=earlier.exact and later.exact,
        cut=(one.whole_id, one.start, two.end) if is_one_text else None,
    )
    last = second.node if added else first.node
    related = {key: value for key, value in first.node.relationships.items() if key in _ABOVE}
    for key, node in ((NodeRelationship.PREVIOUS, first.node), (NodeRelationship.NEXT, last)):
        if key in node.relationships:
            related[key] = node.relationships[key]
    return NodeWithScore(
        node=_part(first.node, text + added, provenance, 0, related), score=_better(first, second)
    )


def _part(
    node: Any, text: str, provenance: Provenance, start: int, relationships: dict[NodeRelationship, Any]
) -> BaseNode:
    source = node.relationships.get(NodeRelationship.SOURCE)
    source_id = getattr(source, "node_id", None)
    noted = noted_span(node)
    begin = None if noted is None else noted.start + start
    place = provenance.cut if begin is None or source_id is None else (begin, begin + len(text))
    part = node.model_copy(
        update={
            "id_": passage_id(source_id, place or (), text),
            "embedding": None,
            "start_char_idx": begin,
            "end_char_idx": None if begin is None else begin + len(text),
            "metadata": own_metadata(node),
            "relationships": relationships,
        }
    )
    part.set_content(text)
    return with_provenance(part, provenance)


def _join_pieces(first: tuple[Piece, ...], second: tuple[Piece, ...], shift: int) -> tuple[Piece, ...]:
    """Join the pieces of two parts; the second begins `shift` characters after the first."""
    pieces = list(first)
    for later in second:
        moved = later.moved(shift)
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

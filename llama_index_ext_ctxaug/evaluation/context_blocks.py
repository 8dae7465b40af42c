"""Split a context into blocks: the chunks that went to the model, and why each is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore

from llama_index_ext_ctxaug import Piece, Provenance, read_provenance

MAX_CHARACTERS = 1500
"""Maximum characters of a block on a map; of a longer one the start and the end are shown."""

_TITLE_KEYS = ("file_name", "file", "title", "topic", "file_path")

BlockRole = Literal["hit", "neighbor", "parent", "passage", "window"]


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a context that stems from one node.

    Attributes:
        node_id: the node.
        document: id of its document; "" where it has none.
        title: name of the document for a reader.
        role: hit, neighbor, parent (merged from hits), passage or window (a made text of unknown parts).
        place: its position in the context, from 0; parts of one passage share it.
        text: its text, shortened.
        characters: length of the whole text.
        start: its first character in the document, where known.
        end: its end there, exclusive.
        hops: links between it and its nearest hit.
        score: score of the node in the context.
        stopped_previous: why expansion ended on the side of the document's start, where it ended here.
        stopped_next: why expansion ended on the other side.
    """

    node_id: str
    document: str
    title: str
    role: BlockRole
    place: int
    text: str
    characters: int
    start: int | None = None
    end: int | None = None
    hops: int = 0
    score: float | None = None
    stopped_previous: str | None = None
    stopped_next: str | None = None


def blocks_of(nodes: Sequence[NodeWithScore]) -> list[Block]:
    """Return the blocks of a context, in the order in which a model reads them.

    Args:
        nodes: the output of a retriever or an augmenter.
    """
    blocks: list[Block] = []
    for place, hit in enumerate(nodes):
        provenance = read_provenance(hit.node)
        if provenance is not None and provenance.pieces:
            blocks += _of_pieces(hit, place, provenance)
        else:
            blocks.append(_of_node(hit, place, provenance))
    return blocks


def _of_node(hit: NodeWithScore, place: int, provenance: Provenance | None) -> Block:
    node = hit.node
    text = node.get_content(metadata_mode=MetadataMode.NONE)
    start, end = getattr(node, "start_char_idx", None), getattr(node, "end_char_idx", None)
    if node.parent_node is not None:
        start = end = None  # in a hierarchy offsets count from the parent's text
    return Block(
        node_id=node.node_id,
        document=node.ref_doc_id or "",
        title=_title(node),
        role=provenance.role if provenance else "hit",
        place=place,
        text=shorten(text),
        characters=len(text),
        start=start,
        end=end,
        hops=provenance.hops if provenance else 0,
        score=hit.score,
        stopped_previous=provenance.stopped_previous if provenance else None,
        stopped_next=provenance.stopped_next if provenance else None,
    )


def _of_pieces(hit: NodeWithScore, place: int, provenance: Provenance) -> list[Block]:
    text = hit.node.get_content(metadata_mode=MetadataMode.NONE)
    pieces = provenance.pieces

    def block(piece: Piece) -> Block:
        part = text[piece.start : piece.end]
        return Block(
            node_id=piece.node_id,
            document=hit.node.ref_doc_id or "",
            title=_title(hit.node),
            role=piece.role,
            place=place,
            text=shorten(part),
            characters=len(part),
            start=piece.source_start,
            end=piece.source_end,
            hops=piece.hops,
            score=hit.score,
            stopped_previous=provenance.stopped_previous if piece is pieces[0] else None,
            stopped_next=provenance.stopped_next if piece is pieces[-1] else None,
        )

    return [block(piece) for piece in pieces]


def _title(node: BaseNode) -> str:
    names = (node.metadata.get(key) for key in _TITLE_KEYS)
    return next((str(name) for name in names if name), node.ref_doc_id or "no document")


def shorten(text: str, limit: int = MAX_CHARACTERS) -> str:
    """Return the start and the end of a long text."""
    return text if len(text) <= limit else f"{text[: limit * 2 // 3]} [...] {text[-limit // 3 :]}"

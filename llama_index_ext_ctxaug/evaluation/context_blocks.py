"""Split a context into blocks: the chunks that the model got, and the reason for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore

from llama_index_ext_ctxaug import Piece, read_provenance

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
        text: its text, shortened.
        role: hit, neighbor, parent (merged from hits), passage or window (a made text of unknown parts).
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
    text: str
    role: BlockRole = "hit"
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
    return [block for hit in nodes for block in _blocks(hit)]


def _blocks(hit: NodeWithScore) -> list[Block]:
    node, provenance = hit.node, read_provenance(hit.node)
    text = node.get_content(metadata_mode=MetadataMode.NONE)
    block = Block(node.node_id, node.ref_doc_id or "", _title(node), _shorten(text), score=hit.score)
    if node.parent_node is None:  # in a hierarchy offsets count from the parent's text
        start, end = getattr(node, "start_char_idx", None), getattr(node, "end_char_idx", None)
        block = replace(block, start=start, end=end)
    if provenance is None:
        return [block]
    blocks = [_of_piece(block, piece, text) for piece in provenance.pieces]
    blocks = blocks or [replace(block, role=provenance.role, hops=provenance.hops)]
    blocks[0] = replace(blocks[0], stopped_previous=provenance.stopped_previous)
    blocks[-1] = replace(blocks[-1], stopped_next=provenance.stopped_next)
    return blocks


def _of_piece(block: Block, piece: Piece, text: str) -> Block:
    return replace(
        block,
        node_id=piece.node_id,
        text=_shorten(text[piece.start : piece.end]),
        role=piece.role,
        start=piece.source_start,
        end=piece.source_end,
        hops=piece.hops,
    )


def _title(node: BaseNode) -> str:
    names = (node.metadata.get(key) for key in _TITLE_KEYS)
    return next((str(name) for name in names if name), node.ref_doc_id or "no document")


def _shorten(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[: MAX_CHARACTERS * 2 // 3]} [...] {text[-MAX_CHARACTERS // 3 :]}"

"""Cut a chunk into parts that are chunks themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from llama_index.core.schema import TextNode

from llama_index_ext_ctxaug.passages.passage import Chunk, Cut
from llama_index_ext_ctxaug.passages.pieces import Provenance
from llama_index_ext_ctxaug.passages.provenance import (
    read_provenance,
    whole_provenance,
    with_provenance,
)
from llama_index_ext_ctxaug.passages.span import Span
from llama_index_ext_ctxaug.windows.slices import cut_node


def cut_chunk(chunk: Chunk, spans: Sequence[Span]) -> list[Chunk]:
    """Make a chunk of each of these parts of a chunk's text.

    Args:
        chunk: a text chunk; it is not changed.
        spans: parts of its text in order, none touching another.

    Returns:
        Chunks with nodes that are exact slices, with provenance back to the node and the document.
    """
    node = cast(TextNode, chunk.node)
    if read_provenance(node) is None:
        node = cast(TextNode, with_provenance(node, Provenance(chunk.role, chunk.hits, chunk.hops)))
    provenance = whole_provenance(node)
    return [
        replace(
            chunk,
            node=cut_node(node, provenance, span.start, span.end),
            origin=None,
            cut=Cut(node.node_id, before=span.start > 0, after=span.end < len(node.text)),
        )
        for span in spans
    ]


def marked_part(part: Chunk) -> TextNode:
    """Return the node of a part with provenance that says where the budget cut it."""
    provenance = whole_provenance(part.node)._replace(
        stopped_previous=part.stopped_previous, stopped_next=part.stopped_next
    )
    return cast(TextNode, with_provenance(part.node, provenance))

"""Describe where a chunk's text is in its document, as its parser noted it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from llama_index.core.schema import BaseNode, MetadataMode, TextNode


class TextChunk(NamedTuple):
    """The text of a chunk and its noted offsets.

    Attributes:
        text: its text, without metadata.
        start: its first character in the offset base, as its parser noted it; None if unknown.
        end: its end in the offset base, exclusive; None if unknown.
        base: id of the text that the offsets count in: the source document, or a parent chunk.
        shift: first character of the offset base in the source document: 0 for the document itself; None
            if unknown, so that offsets of different bases cannot be compared.
        follows: True if links say that it directly follows the chunk before; False if text may be missing
            in between.
        document: id of the source document; None if unknown. Chunks of different documents share no text.
    """

    text: str
    start: int | None = None
    end: int | None = None
    base: str | None = None
    shift: int | None = 0
    follows: bool = True
    document: str | None = None

    @property
    def offsets_fit(self) -> bool:
        """True if the offsets are as far apart as the text is long; those of an edited chunk are not."""
        return (
            self.start is not None
            and self.end is not None
            and self.start >= 0
            and self.end - self.start == len(self.text)
        )

    @property
    def source_start(self) -> int | None:
        """First character in the source document, as noted; None if unknown."""
        return None if self.start is None or self.shift is None else self.start + self.shift


def text_of(node: BaseNode) -> str:
    """Return a node's text without metadata."""
    return node.get_content(metadata_mode=MetadataMode.NONE)


def offsets_of(node: BaseNode | None) -> tuple[int | None, int | None]:
    """Return the character offsets that a node notes."""
    return (node.start_char_idx, node.end_char_idx) if isinstance(node, TextNode) else (None, None)


def start_in_document(
    base: str | None,
    document: str | None,
    find: Callable[[str], BaseNode | None],
    parent_of: Callable[[BaseNode], str | None],
) -> int | None:
    """Return where an offset base starts in its document, by the offsets of the parents above it.

    Args:
        base: id of the offset base.
        document: id of the source document.
        find: returns the node of an id, None if it is not loaded.
        parent_of: returns the id of a node's parent.

    Returns:
        The first character, 0 for the document itself; None if a parent or its offset is unknown.
    """
    start, seen = 0, set[str]()
    while base is not None and base != document:
        node = find(base)
        noted = offsets_of(node)[0]
        if node is None or noted is None or base in seen:
            return None
        seen.add(base)
        start += noted
        base = parent_of(node)
    return start

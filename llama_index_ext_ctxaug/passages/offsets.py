"""Describe where a chunk's text is in its document: noted by a parser, or found in the document's text."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, RelatedNodeInfo, TextNode

from llama_index_ext_ctxaug.passages.span import Span

OFFSETS_KEY = "char_offsets"
"""Metadata key of the SOURCE relationship of chunks whose offsets `SourceOffsets` has set."""

_SECTION_KEYS = frozenset({"header_path", "tag"})
"""Metadata of LlamaIndex's Markdown and HTML parsers."""


class TextChunk(NamedTuple):
    """The text of a chunk and its offsets.

    Attributes:
        text: its text, without metadata.
        start: its first character in the offset base; None if unknown.
        end: its end in the offset base, exclusive; None if unknown.
        base: id of the text that the offsets count in: the source document, or a parent chunk.
        shift: first character of the offset base in the source document: 0 for the document itself; None
            if unknown, so that offsets of different bases cannot be compared.
        follows: True if links say that it directly follows the chunk before; False if text may be missing
            in between.
        document: id of the source document; None if unknown. Chunks of different documents share no text.
        checked: True if the offset base has this text at these offsets; False for what a parser noted.
        header: of the table that the text begins within; it comes before the text where its rows are the
            first of the table.
    """

    text: str
    start: int | None = None
    end: int | None = None
    base: str | None = None
    shift: int | None = 0
    follows: bool = True
    document: str | None = None
    checked: bool = False
    header: str = ""

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
        """First character in the source document; None if unknown."""
        return None if self.start is None or self.shift is None else self.start + self.shift

    @property
    def in_document(self) -> bool:
        """True if the text was compared with the document's."""
        return self.checked and self.document in (None, self.base)

    def at(self, span: Span | None, base: str, text: str) -> TextChunk:
        """Return the chunk with the text and offsets that were found, or with none."""
        if span is None:
            return self._replace(start=None, end=None)
        start, end = span
        shift = 0 if base == self.document else self.shift
        return self._replace(text=text[start:end], start=start, end=end, base=base, shift=shift, checked=True)


def text_of(node: BaseNode) -> str:
    """Return a node's text without metadata."""
    return node.get_content(metadata_mode=MetadataMode.NONE)


def squeezed(text: str) -> str:
    """Return a text without white space."""
    return "".join(text.split())


def offsets_of(node: BaseNode | None) -> tuple[int | None, int | None]:
    """Return the character offsets that a node notes."""
    return (node.start_char_idx, node.end_char_idx) if isinstance(node, TextNode) else (None, None)


def noted_span(node: BaseNode) -> Span | None:
    """Return the characters that a node notes, if they are as many as its text has."""
    start, end = offsets_of(node)
    return None if start is None or end is None or end - start != len(text_of(node)) else Span(start, end)


def start_in_document(
    node: BaseNode,
    base: str | None,
    document: str | None,
    find: Callable[[str], BaseNode | None],
    parent_of: Callable[[BaseNode], str | None],
) -> int | None:
    """Return where the base of a node's offsets starts in its document, by the offsets of its parents.

    Args:
        node: the node.
        base: id of its offset base.
        document: id of the source document.
        find: returns the node of an id, None if it is not loaded.
        parent_of: returns the id of a node's parent.

    Returns:
        The first character, 0 for the document itself; None if a parent or its offset is unknown, or if
        the offsets may count in a section that was parsed again and is stored nowhere.
    """
    if may_be_of_section(node):
        return None
    start, seen = 0, set[str]()
    while base is not None and base != document:
        parent = find(base)
        noted = offsets_of(parent)[0]
        if parent is None or noted is None or base in seen:
            return None
        seen.add(base)
        start += noted
        base = parent_of(parent)
    return start


def has_source_offsets(node: BaseNode) -> bool:
    """Return True if the offsets of a node are known to count in its source document or its parent."""
    source = node.relationships.get(NodeRelationship.SOURCE)
    return isinstance(source, RelatedNodeInfo) and OFFSETS_KEY in source.metadata


def may_be_of_section(node: BaseNode) -> bool:
    """Return True if a node may have been parsed from a section: its offsets then count in that section."""
    metadata = node.metadata
    sentence = metadata.get("original_text")  # of SentenceWindowNodeParser
    if _SECTION_KEYS.isdisjoint(metadata) and (sentence is None or sentence == text_of(node)):
        return False
    return not has_source_offsets(node)

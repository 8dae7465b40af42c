"""Where a section begins: by what parsers leave in metadata, by the text, or by a function."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode

from llama_index_ext_ctxaug.structure.heading_lines import (
    TEXT_HEADING_KINDS,
    Heading,
    TextHeadingKind,
    find_headings,
)

SECTION_KEYS = ("header_path", "headings")
"""Metadata that names the section a chunk is in: of MarkdownNodeParser, of docling."""

TAG_KEYS = ("tag", "category")
"""Metadata that says a chunk is itself a heading: of HTMLNodeParser, of unstructured."""

_TAG = re.compile(r"[hH]([1-6])")

HeadingFinder = Callable[[BaseNode], Sequence[Heading] | int | None]
"""Finds the headings of a chunk: the headings, or the level of the one it opens with, or None."""


@dataclass(frozen=True, slots=True)
class Sections:
    """Tells where sections begin among the chunks of a document; each source is tried in turn.

    Attributes:
        kinds: kinds of headings to look for in the text.
        section_keys: metadata keys whose values name the section a chunk is in: a list of titles, a
            path such as "/Top/Sub/" (of the headings above the chunk's own), or one title.
        tag_keys: metadata keys whose value marks a chunk as a heading: "h1" to "h6", or "Title" with
            its depth, if any, under "category_depth".
        finder: finds the headings instead of all that.
    """

    kinds: tuple[TextHeadingKind, ...] = TEXT_HEADING_KINDS
    section_keys: tuple[str, ...] = SECTION_KEYS
    tag_keys: tuple[str, ...] = TAG_KEYS
    finder: HeadingFinder | None = None
    _found: dict[str, list[Heading]] = field(default_factory=dict, repr=False)

    def headings(self, node: BaseNode) -> list[Heading]:
        """The headings in a chunk, in order; each chunk is looked at once."""
        known = self._found.get(node.node_id)
        if known is None:
            known = self._found[node.node_id] = self._find(node)
        return known

    def opening(self, node: BaseNode) -> Heading | None:
        """The heading that a chunk opens with, if it does."""
        headings = self.headings(node)
        if headings and not _text(node)[: headings[0].start].strip():
            return headings[0]
        return None

    def path(self, node: BaseNode) -> tuple[str, ...]:
        """The titles of the sections that a chunk stands in, by its metadata; empty where it says nothing."""
        metadata = node.metadata
        if self.finder is not None or metadata.keys().isdisjoint(self.section_keys):
            return ()
        return tuple(title for key in self.section_keys for title in _titles(metadata.get(key)))

    def border(self, before: BaseNode, after: BaseNode) -> int | None:
        """The level of the section that begins between two chunks that follow one another; None for none."""
        opening = self.opening(after)
        if opening is not None:
            return opening.level
        path_before, path_after = self.path(before), self.path(after)
        if path_before == path_after or not (path_before and path_after):
            return None
        shared = 0
        for one, other in zip(path_before, path_after, strict=False):
            if one != other:
                break
            shared += 1
        return shared + 1

    def level(self, node: BaseNode) -> int | None:
        """The level of the highest section that begins in a chunk, else of the one its metadata names."""
        headings = self.headings(node)
        if headings:
            return min(heading.level for heading in headings)
        path = self.path(node)
        own_title_is_left_out = any(
            isinstance(node.metadata.get(key), str) and node.metadata[key].startswith("/")
            for key in self.section_keys
        )
        return len(path) if path and not own_title_is_left_out else None

    def _find(self, node: BaseNode) -> list[Heading]:
        if self.finder is not None:
            found = self.finder(node)
            if found is None:
                return []
            if isinstance(found, int):
                return [Heading(0, found, _first_line(node))]
            return list(found)
        for key in self.tag_keys:
            level = _tag_level(node.metadata.get(key), node.metadata.get("category_depth"))
            if level is not None:
                return [Heading(0, level, _first_line(node))]
        return find_headings(_text(node), self.kinds)


def heading_path(headings: Iterable[Heading], position: int) -> tuple[str, ...]:
    """The titles of the sections that a place in a text stands in, from the top.

    A heading that begins at the place itself is not above it; one of the same or a higher level ends
    those before it.

    Args:
        headings: the headings of the text, in order.
        position: a character of the text.

    Returns:
        The titles, the highest first.
    """
    open_: list[Heading] = []
    opening: Heading | None = None
    for heading in headings:
        if heading.start > position:
            break
        while open_ and open_[-1].level >= heading.level:
            open_.pop()
        open_.append(heading)
        opening = heading if heading.start == position else None
    return tuple(heading.title for heading in open_ if heading is not opening)


def _text(node: BaseNode) -> str:
    return node.get_content(metadata_mode=MetadataMode.NONE)


def _first_line(node: BaseNode) -> str:
    return _text(node).strip().split("\n", 1)[0].strip()


def _tag_level(value: Any, depth: Any) -> int | None:
    if not isinstance(value, str):
        return None
    if match := _TAG.fullmatch(value):
        return int(match[1])
    if value == "Title":
        return 1 + depth if isinstance(depth, int) else 1
    return None


def _titles(value: Any) -> list[str]:
    """The titles in a metadata value: a list, a path or one title."""
    if isinstance(value, str):
        # The first element of "/Top/Sub/" is the document itself, so that "/" is a place too.
        return [part.strip() for part in value.rstrip("/").split("/")] if "/" in value else [value]
    if isinstance(value, (list, tuple)):
        return [str(title) for title in value]
    return []

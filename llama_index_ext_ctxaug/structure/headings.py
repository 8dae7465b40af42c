"""Find where sections begin: from metadata that parsers write, from the text, or by a function."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from llama_index.core.schema import BaseNode

from llama_index_ext_ctxaug.passages.offsets import text_of
from llama_index_ext_ctxaug.structure.heading_lines import (
    TEXT_HEADING_KINDS,
    Heading,
    TextHeadingKind,
    find_headings,
)

SECTION_KEYS = ("header_path", "headings")
"""Metadata keys that name the section of a chunk: MarkdownNodeParser's and docling's."""

TAG_KEYS = ("tag", "category")
"""Metadata keys that mark a chunk as a heading: HTMLNodeParser's and unstructured's."""

_TAG = re.compile(r"[hH]([1-6])")

HeadingFinder = Callable[[BaseNode], Sequence[Heading] | int | None]
"""Returns the headings of a chunk, or the level of the one it opens with, or None."""


@dataclass(frozen=True, slots=True)
class Sections:
    """Finds where sections begin among the chunks of a document; the first source that answers counts.

    Attributes:
        kinds: kinds of headings to look for in the text.
        section_keys: metadata keys that name the section of a chunk: a list of titles, a path such as
            "/Top/Sub/" (without the chunk's own heading), or one title.
        tag_keys: metadata keys that mark a chunk as a heading: "h1" to "h6", or "Title" with an
            optional depth under "category_depth".
        finder: replaces all other sources.
    """

    kinds: tuple[TextHeadingKind, ...] = TEXT_HEADING_KINDS
    section_keys: tuple[str, ...] = SECTION_KEYS
    tag_keys: tuple[str, ...] = TAG_KEYS
    finder: HeadingFinder | None = None
    _found: dict[str, list[Heading]] = field(default_factory=dict, repr=False)

    def headings(self, node: BaseNode) -> list[Heading]:
        """Return the headings in a chunk, in order; each chunk is searched once."""
        known = self._found.get(node.node_id)
        if known is None:
            known = self._found[node.node_id] = self._find(node)
        return known

    def opening(self, node: BaseNode) -> Heading | None:
        """Return the heading that a chunk opens with, if any."""
        headings = self.headings(node)
        if headings and not text_of(node)[: headings[0].start].strip():
            return headings[0]
        return None

    def path(self, node: BaseNode) -> tuple[str, ...]:
        """Return the titles of the sections around a chunk, from its metadata; empty if unknown."""
        metadata = node.metadata
        if self.finder is not None or metadata.keys().isdisjoint(self.section_keys):
            return ()
        return tuple(title for key in self.section_keys for title in _titles(metadata.get(key)))

    def border(self, before: BaseNode, after: BaseNode) -> int | None:
        """Return the level of the section that begins between two adjacent chunks; None for none."""
        opening = self.opening(after)
        if opening is not None:
            return opening.level
        path_before, path_after = self.path(before), self.path(after)
        if path_before == path_after or not (path_before and path_after):
            return None
        pairs = zip(path_before, path_after, strict=False)
        return 1 + len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])

    def level(self, node: BaseNode) -> int | None:
        """Return the level of the highest section that begins in a chunk, else of its metadata's section."""
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
        return find_headings(text_of(node), self.kinds)


def heading_path(headings: Iterable[Heading], position: int) -> tuple[str, ...]:
    """Return the titles of the sections around a position in a text, the highest first.

    A heading that begins at the position itself is left out.

    Args:
        headings: the headings of the text, in order.
        position: index of a character in the text.
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


def _first_line(node: BaseNode) -> str:
    return text_of(node).strip().split("\n", 1)[0].strip()


def _tag_level(value: Any, depth: Any) -> int | None:
    if not isinstance(value, str):
        return None
    if match := _TAG.fullmatch(value):
        return int(match[1])
    if value == "Title":
        return 1 + depth if isinstance(depth, int) else 1
    return None


def _titles(value: Any) -> list[str]:
    """Return the titles in a metadata value: a list, a path or one title."""
    if isinstance(value, str):
        # The first element of "/Top/Sub/" is the document itself, so "/" is a section too.
        return [part.strip() for part in value.rstrip("/").split("/")] if "/" in value else [value]
    if isinstance(value, (list, tuple)):
        return [str(title) for title in value]
    return []

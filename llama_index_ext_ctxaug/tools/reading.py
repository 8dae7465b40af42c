"""An answer to an agent: passages with their handles, and what can be read from there."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llama_index.core.schema import MetadataMode, NodeWithScore

DOCUMENT_START = "The document starts here. There is nothing before."
DOCUMENT_END = "The document ends here. There is nothing after."
NO_MORE_BEFORE = "Nothing more can be read before."
NO_MORE_AFTER = "Nothing more can be read after."

FILE_KEYS = ("file_name", "file_path", "title")
PAGE_KEYS = ("page_label", "page_number", "page")

_MAX_TITLE = 60
"""Maximum characters of a file name or a heading in the line above a passage."""

_FRAME = re.compile(r"\[(?=\W*passage)", re.IGNORECASE)
_BREAKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")


@dataclass(frozen=True, slots=True)
class Remainder:
    """The rest to read on one side of a passage.

    Attributes:
        chunks: chunks up to the edge of the document, 0 at the edge; None if unknown.
        tokens: approximate tokens up to the edge of the document; None if unknown.
        section_tokens: tokens up to the edge of the section; None if that is further away than was read.
        blocked: whether reading ends here for another reason than the edge of the document.
    """

    chunks: int | None = None
    tokens: int | None = None
    section_tokens: int | None = None
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of a reading.

    Attributes:
        handle: the name by which it can be read on.
        node: its text and provenance.
        heading: the titles of the sections it is in; empty if unknown.
        before: what is left before it; None if that was not asked for.
        after: what is left after it; None if that was not asked for.
    """

    handle: str
    node: NodeWithScore
    heading: tuple[str, ...] = ()
    before: Remainder | None = None
    after: Remainder | None = None

    def __str__(self) -> str:
        text = self.node.node.get_content(metadata_mode=MetadataMode.NONE)
        lines = [f"[passage {self.handle}{self._origin()}]"]
        if text:
            lines.append(_harmless(text))
        lines.append(f"[passage {self.handle}: {self._rest()}]")
        return "\n".join(lines)

    def _origin(self) -> str:
        metadata = self.node.node.metadata
        file, page = _first(metadata, FILE_KEYS), _first(metadata, PAGE_KEYS)
        parts = [
            shortened(file, from_end=True) if file else "",
            f"page {shortened(page)}" if page else "",
            shortened(" > ".join(self.heading), from_end=True),
        ]
        return "".join(f" | {part}" for part in parts if part)

    def _rest(self) -> str:
        sides = ((self.before, "before"), (self.after, "after"))
        return " ".join(_side(rest, side) for rest, side in sides if rest is not None)


def _side(rest: Remainder, side: str) -> str:
    if rest.chunks == 0 and not rest.blocked:
        return DOCUMENT_START if side == "before" else DOCUMENT_END
    if rest.blocked:
        return NO_MORE_BEFORE if side == "before" else NO_MORE_AFTER
    known = []
    if rest.section_tokens:
        known.append(f"{rest.section_tokens} tokens in this section")
    if rest.tokens is not None:
        known.append(f"about {rest.tokens} tokens in the document")
    amount = ", ".join(known) or "more text"
    return f"{side.capitalize()}: {amount}."


@dataclass(frozen=True, slots=True)
class OutlineEntry:
    """A heading of an outline.

    Attributes:
        handle: names the place of the heading; reading after it starts with the heading.
        title: the heading.
        level: small is high.
        tokens: tokens up to the next heading.
    """

    handle: str
    title: str
    level: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Reading:
    """The answer to one call of a tool.

    `str(reading)` is the text for the model: a line with handle and origin above each passage, a line with
    what is left below it. Neither a text nor a heading can imitate these lines.

    Attributes:
        passages: what was read; those found by a search in order of rank.
        outline: the headings of a document.
        message: a sentence to the model in addition to the passages; "" for none.
    """

    passages: tuple[Passage, ...] = ()
    outline: tuple[OutlineEntry, ...] = ()
    message: str = ""

    @property
    def nodes(self) -> list[NodeWithScore]:
        """The passages as nodes with provenance, so that `cite` works on them."""
        return [passage.node for passage in self.passages]

    @property
    def handles(self) -> list[str]:
        """The handles of the passages, in the order of `nodes`, or those of the outline."""
        return [named.handle for named in self.passages or self.outline]

    @property
    def before(self) -> int | None:
        """Chunks left in the document before the first passage; None if unknown."""
        rest = self.passages[0].before if self.passages else None
        return rest.chunks if rest else None

    @property
    def after(self) -> int | None:
        """Chunks left in the document after the last passage; None if unknown."""
        rest = self.passages[-1].after if self.passages else None
        return rest.chunks if rest else None

    def __str__(self) -> str:
        parts = [*map(str, self.passages), outline_text(self.outline), self.message]
        return "\n\n".join(part for part in parts if part)


def outline_text(entries: Sequence[OutlineEntry]) -> str:
    """Return an outline for the model: a line for each heading, indented by level."""
    depths = {level: depth for depth, level in enumerate(sorted({entry.level for entry in entries}))}
    titles = ("  " * depths[entry.level] + shortened(entry.title) for entry in entries)
    return "\n".join(
        f"[passage {entry.handle}] {title}: {entry.tokens} tokens"
        for entry, title in zip(entries, titles, strict=True)
    )


def outline_within(entries: Sequence[OutlineEntry], max_tokens: int, count: Callable[[str], int]) -> Reading:
    """Return an outline within a number of tokens: without its lowest levels, else without its end."""
    kept = list(entries)
    while len({entry.level for entry in kept}) > 1 and count(outline_text(kept)) > max_tokens:
        lowest = max(entry.level for entry in kept)
        kept = [entry for entry in kept if entry.level < lowest]
    while len(kept) > 1 and count(outline_text(kept)) > max_tokens:
        kept = kept[: len(kept) * 3 // 4]
    left_out = len(entries) - len(kept)
    return Reading(outline=tuple(kept), message=f"{left_out} headings are left out." if left_out else "")


def _harmless(text: str) -> str:
    """Return a text in which no bracket opens what looks like a line about a passage."""
    return _FRAME.sub("(", text)


def shortened(text: str, *, from_end: bool = False) -> str:
    """Return a title in one line of bounded length, without brackets that could end the line about it."""
    line = _BREAKS.sub(" ", text).strip().replace("[", "(").replace("]", ")")
    if len(line) <= _MAX_TITLE:
        return line
    return f"...{line[3 - _MAX_TITLE :]}" if from_end else f"{line[: _MAX_TITLE - 3]}..."


def _first(metadata: dict[str, object], keys: Sequence[str]) -> str:
    return next((str(metadata[key]) for key in keys if metadata.get(key) not in (None, "")), "")

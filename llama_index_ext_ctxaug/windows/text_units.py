"""Cut a text into the units that a budget may leave out: sentences, rows of tables, lines of code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from llama_index_ext_ctxaug.passages.span import Span
from llama_index_ext_ctxaug.windows.segmentation import line_spans, sentence_spans

_FENCE = re.compile(r"[ \t]*(?:```|~~~)")
_TABLE_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-[-:| \t]*\s*")
_CODE_LINE = re.compile(r"(?:\t| {2,})\S|.*[{};\\(\[]\s*$")
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n\s*")

_Kind = Literal["text", "lines", "table"]


class Unit(NamedTuple):
    """A part of a text that is kept or left out as a whole.

    Attributes:
        span: its characters.
        header: numbers of the units that it is not understood without: the header of its table.
    """

    span: Span
    header: tuple[int, ...] = ()


def text_units(text: str) -> list[Unit]:
    """Cut a text into units that cover it.

    Prose is cut behind sentences, in scripts without spaces too; Markdown tables and code, fenced or
    indented, behind lines.
    """
    lines = line_spans(text, Span(0, len(text)))
    kinds = _kinds([text[line.start : line.end] for line in lines])
    units: list[Unit] = []
    for kind, group in groupby(zip(kinds, lines, strict=True), key=lambda pair: pair[0]):
        block = [line for _, line in group]
        if kind == "table":
            units += _table(text, block, len(units))
        elif kind == "lines":
            units += map(Unit, _with_blank_lines(text, block))
        else:
            units += map(Unit, _prose(text, Span(block[0].start, block[-1].end)))
    return units


def _kinds(lines: Sequence[str]) -> list[_Kind]:
    kinds: list[_Kind] = []
    fenced = False
    for place, line in enumerate(lines):
        fence = _FENCE.match(line) is not None
        below = lines[place + 1] if place + 1 < len(lines) else ""
        opens_table = "|" in line and "|" in below and _TABLE_RULE.fullmatch(below)
        goes_on = "|" in line and kinds[-1:] == ["table"]
        if fenced or fence:
            kinds.append("lines")
        else:
            kinds.append("table" if opens_table or goes_on or line.lstrip().startswith("|") else "text")
        fenced ^= fence
    return kinds


def _table(text: str, lines: Sequence[Span], first: int) -> list[Unit]:
    """Return the rows of a table; the first of them has this number."""
    rule = text[lines[1].start : lines[1].end] if len(lines) > 1 else ""
    if not _TABLE_RULE.fullmatch(rule):
        return [Unit(line) for line in lines]
    return [Unit(line, header=(first, first + 1)) for line in lines]


def _prose(text: str, span: Span) -> Iterator[Span]:
    """Yield the sentences of a part of a text, and the lines of its paragraphs of code."""
    ends = [match.end() for match in _PARAGRAPH_END.finditer(text, span.start, span.end)]
    start = span.start
    for end in dict.fromkeys([*ends, span.end]):
        lines = _with_blank_lines(text, line_spans(text, Span(start, end)))
        code = sum(_CODE_LINE.match(text, line.start, line.end) is not None for line in lines)
        if len(lines) > 1 and 2 * code >= len(lines):
            yield from lines
        else:
            found = sentence_spans(text[start:end])
            yield from (Span(start + sentence.start, start + sentence.end) for sentence in found)
        start = end


def _with_blank_lines(text: str, lines: Sequence[Span]) -> list[Span]:
    """Join each blank line to the line before it."""
    joined: list[Span] = []
    for line in lines:
        blank = not text[line.start : line.end].strip()
        start = joined.pop().start if blank and joined else line.start
        joined.append(Span(start, line.end))
    return joined

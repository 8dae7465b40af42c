"""Make text of documents harmless in a page, a terminal, Markdown or a spreadsheet."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#&~])")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def without_controls(value: object) -> object:
    """Replace control characters and unpaired surrogates by a visible sign; leave other types alone."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", value) if isinstance(value, str) else value


def for_terminal(text: str, limit: int = 200) -> str:
    """Return one line of at most `limit` characters, without cursor movement, colors or turned text."""
    line = _LINE.sub(" ", text[: 10 * limit]).strip()
    return line if len(line) <= limit else line[: limit - 1] + "…"


def for_markdown(text: str) -> str:
    """Return text for a cell of a Markdown table."""
    return _MARKDOWN.sub(r"\\\1", for_terminal(text))


def for_cell(value: object) -> object:
    """Return a value for a spreadsheet; an apostrophe keeps text from being run as a formula."""
    if not isinstance(value, str):
        return value
    text = without_controls(value)
    return f"'{text}" if value.lstrip(" ").startswith(_FORMULA) else text

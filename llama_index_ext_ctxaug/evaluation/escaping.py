"""Text of documents made harmless for where it is shown: a page, a terminal, Markdown, a table cell."""

from __future__ import annotations

import html
import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#&~])")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def for_html(text: str) -> str:
    """Text for an element or a quoted attribute; control characters become a visible sign."""
    return html.escape(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", text), quote=True)


def for_terminal(text: str, limit: int = 200) -> str:
    """Text on one line, without what moves the cursor, changes colors or turns the reading direction."""
    line = _LINE.sub(" ", text[: 10 * limit]).strip()
    return line if len(line) <= limit else line[: limit - 1] + "…"


def for_markdown(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return _MARKDOWN.sub(r"\\\1", for_terminal(text))


def for_storage(value: object) -> object:
    """A value for a file of typed columns: text without control characters and halves of characters."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", value) if isinstance(value, str) else value


def for_cell(value: object) -> object:
    """A value for a table: text that a spreadsheet would take for a formula begins with an apostrophe."""
    if not isinstance(value, str):
        return value
    text = for_storage(value)
    return f"'{text}" if value.lstrip(" ").startswith(_FORMULA) else text

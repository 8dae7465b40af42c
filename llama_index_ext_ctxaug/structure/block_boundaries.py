"""Detect a block (code, a table, a list) that continues from one chunk into the next."""

from __future__ import annotations

import re

_FENCE = re.compile(r"^[ \t]{0,3}(?:`{3,}|~{3,})", re.MULTILINE)
_ITEM = re.compile(r"\s*(?:[-*+•·]|\d{1,3}[.)、]|[a-z][.)])\s")
_ROW = re.compile(r"\s*\||[^|]*\|[^|]*\|")


def block_runs_on(before: str, after: str) -> bool:
    """Return True if the end of one chunk and the start of the next belong to one block.

    That is fenced code that is not closed, or a row or an item on both sides of the border.

    Args:
        before: text of a chunk.
        after: text of the chunk that follows it.
    """
    if len(_FENCE.findall(before)) % 2 and len(_FENCE.findall(after)):
        return True
    last, first = _last_line(before), _first_line(after)
    return any(pattern.match(last) and pattern.match(first) for pattern in (_ROW, _ITEM))


def _last_line(text: str) -> str:
    return text.rstrip().rsplit("\n", 1)[-1]


def _first_line(text: str) -> str:
    return text.lstrip("\n").split("\n", 1)[0]

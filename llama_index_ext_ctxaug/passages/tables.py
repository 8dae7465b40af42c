"""Read the headers of Markdown tables."""

from __future__ import annotations

import re

_RULE = re.compile(r"\|?[ \t]*:?-[-:| \t]*")


def leading_header(text: str) -> str:
    """Return a table's first line and the rule below it; "" if the text does not begin with a table."""
    titles, _, below = text.partition("\n")
    rule, end, _ = below.partition("\n")
    return f"{titles}\n{rule}\n" if end and _is_header(titles, rule) else ""


def begins_with_row(text: str) -> bool:
    """Return True if a text begins with a row of a table, and not with its header."""
    first, _, below = text.lstrip("\n").partition("\n")
    is_rule = _RULE.fullmatch(first.strip()) is not None
    return _is_row(first) and not is_rule and not _is_header(first, below.partition("\n")[0])


def open_header(text: str, inherited: str = "", end: int | None = None) -> str:
    """Return the header of the table that a text ends in; "" if it does not end in a table.

    Args:
        text: any text; it is read backwards as far as the table goes.
        inherited: the header of the table that the text before ends in.
        end: where to begin reading backwards; None for the end of the text.
    """
    end = len(text) if end is None else end
    while end > 0 and text[end - 1].isspace():
        end -= 1
    below = ""
    while end > 0:
        start = text.rfind("\n", 0, end) + 1
        line = text[start:end]
        if below and _is_header(line, below):
            return f"{line}\n{below}\n"
        if not _is_row(line):
            return ""
        below, end = line, start - 1
    return inherited


def _is_row(line: str) -> bool:
    return "|" in line


def _is_header(titles: str, rule: str) -> bool:
    return _is_row(titles) and _is_row(rule) and _RULE.fullmatch(rule.strip()) is not None

"""Which words of one text stand in another: runs of words, so that a common word alone is no match."""

from __future__ import annotations

import re
from collections.abc import Sequence

RUN = 6
"""Words that must follow one another in both texts to count; a shorter text must be there whole."""

_NO_SPACES = r"\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"[{_NO_SPACES}]|[^\W{_NO_SPACES}]+")


def words(text: str) -> list[str]:
    """The words of a text, each character of a script without spaces as one; case does not count."""
    return _WORD.findall(text.casefold())


def found(wanted: Sequence[str], text: Sequence[str]) -> int:
    """How many words of `wanted` stand in the text as part of a run of `RUN` words.

    Args:
        wanted: words of the text that is looked for.
        text: words of the text that is looked into.

    Returns:
        A number of words, each counted once however often the text repeats it.
    """
    size = min(RUN, len(wanted))
    if size == 0:
        return 0
    runs = {tuple(text[start : start + size]) for start in range(len(text) - size + 1)}
    count = reached = 0
    for start in range(len(wanted) - size + 1):
        if tuple(wanted[start : start + size]) in runs:
            count += start + size - max(reached, start)
            reached = start + size
    return count


def repeated(text: Sequence[str]) -> int:
    """How many words of a text belong to a run of `RUN` words that stood in it before."""
    seen: dict[tuple[str, ...], int] = {}
    count = reached = 0
    for start in range(len(text) - RUN + 1):
        first = seen.setdefault(tuple(text[start : start + RUN]), start)
        if first + RUN <= start:
            count += start + RUN - max(reached, start)
            reached = start + RUN
    return count

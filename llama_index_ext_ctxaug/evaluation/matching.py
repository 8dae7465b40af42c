"""Match words of two texts in runs, so that a common word alone is no match."""

from __future__ import annotations

import re
from collections.abc import Sequence

RUN = 6
"""Length of a run that counts, in words; a shorter text must be found whole."""

_NO_SPACES = r"\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"[{_NO_SPACES}]|[^\W{_NO_SPACES}]+")


def words(text: str) -> list[str]:
    """Return the casefolded words of a text; in scripts without spaces each character is one."""
    return _WORD.findall(text.casefold())


def found(wanted: Sequence[str], text: Sequence[str]) -> int:
    """Count the words of `wanted`, each once, that the text holds as part of a run of `RUN` words."""
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
    """Count the words of a text that belong to a run of `RUN` words it held before."""
    seen: dict[tuple[str, ...], int] = {}
    count = reached = 0
    for start in range(len(text) - RUN + 1):
        first = seen.setdefault(tuple(text[start : start + RUN]), start)
        if first + RUN <= start:
            count += start + RUN - max(reached, start)
            reached = start + RUN
    return count

"""Find the text that ends one chunk and begins the next."""

from __future__ import annotations

MIN_OVERLAP = 12
"""Minimum characters that count as overlap where no offsets show it."""

_TRIES = 32
"""Places to compare one by one before the search that is linear in the worst case."""


def common_length(before: str, after: str) -> int:
    """Return the length of the longest text that is the end of `before` and the start of `after`.

    Linear in the length of the shorter text; lengths under `MIN_OVERLAP` count as 0.
    """
    size = min(len(before), len(after))
    if size < MIN_OVERLAP:
        return 0
    end, opening = before[len(before) - size :], after[:MIN_OVERLAP]
    place = end.find(opening)
    for _ in range(_TRIES):
        if place < 0:
            return 0
        if after.startswith(end[place:]):
            return size - place
        place = end.find(opening, place + 1)
    shared = _longest_border(after[:size], end)
    return shared if shared >= MIN_OVERLAP else 0


def _longest_border(pattern: str, text: str) -> int:
    """Return how much of the pattern's start ends the text, by Knuth, Morris and Pratt's function."""
    failure = [0] * len(pattern)
    matched = 0
    for place in range(1, len(pattern)):
        while matched and pattern[place] != pattern[matched]:
            matched = failure[matched - 1]
        matched += pattern[place] == pattern[matched]
        failure[place] = matched
    matched = 0
    for letter in text:
        while matched and letter != pattern[matched]:
            matched = failure[matched - 1]
        matched += letter == pattern[matched]
    return matched

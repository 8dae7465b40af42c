"""A range of characters in a text."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """A range of characters: Python string indices, the end exclusive."""

    start: int
    end: int

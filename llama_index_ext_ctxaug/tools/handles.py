"""Names by which a language model refers to a passage it was shown."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from urllib.parse import quote, unquote

_NUMBER = re.compile(r"\s*[\[(]?\s*(?:passage|handle)?\s*[\[(#]?\s*(\d{1,9})\s*[\])]*\.?\s*", re.IGNORECASE)
_EDGE = re.compile(r"(?P<id>.+?)(?:@(?P<offset>\d{1,9}))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PassageEdge:
    """A place in a chunk.

    Attributes:
        node_id: id of the chunk.
        offset: a character of its text; None for its end.
    """

    node_id: str
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class PassageRange:
    """A stretch of a document.

    Attributes:
        first: where it starts.
        last: where it ends.
        source_id: id of the source document, None if unknown; it saves a read.
    """

    first: PassageEdge
    last: PassageEdge
    source_id: str | None = field(default=None, compare=False)

    @classmethod
    def of_chunks(cls, first_id: str, last_id: str, source_id: str | None = None) -> PassageRange:
        """Return the range of whole chunks."""
        return cls(PassageEdge(first_id, 0), PassageEdge(last_id), source_id)

    def to_text(self) -> str:
        """Return a handle that needs no memory: a node id for one chunk, else what `parse_range` reads."""
        if self == PassageRange.of_chunks(self.first.node_id, self.first.node_id):
            return self.first.node_id
        return ",".join(map(_edge_text, (self.first, self.last)))


def parse_range(text: str) -> PassageRange | None:
    """Read a handle of anything but a whole chunk, as `PassageRange.to_text` writes it; None for others."""
    first, _, last = text.strip().partition(",")
    edges = [_EDGE.fullmatch(part) for part in (first, last)]
    found = [PassageEdge(unquote(e["id"]), int(e["offset"]) if e["offset"] else None) for e in edges if e]
    if len(found) < 2:
        return None
    return PassageRange(PassageEdge(found[0].node_id, found[0].offset or 0), found[1])


def parse_number(text: str) -> int | None:
    """Read a number as models write it: "3", "[3]", "passage 3"; None for anything else."""
    match = _NUMBER.fullmatch(text)
    return int(match[1]) if match else None


def whole_number(value: Any) -> int | None:
    """Return a number as models write it: 2, 2.0, "2"; None for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if number.is_integer() else None


class Handles:
    """Small numbers for ranges, the oldest forgotten first; safe to share between threads.

    Args:
        limit: maximum number of ranges to remember.
    """

    def __init__(self, limit: int = 1000) -> None:
        self._limit = limit
        self._ranges: OrderedDict[int, PassageRange] = OrderedDict()
        self._numbers: dict[PassageRange, int] = {}
        self._last = 0
        self._lock = Lock()

    def number(self, range_: PassageRange) -> int:
        """Return the number of a range: the one it has, else the next that was never used."""
        with self._lock:
            known = self._numbers.get(range_)
            if known is not None:
                self._ranges.move_to_end(known)
                return known
            self._last += 1
            self._ranges[self._last] = range_
            self._numbers[range_] = self._last
            if len(self._ranges) > self._limit:
                del self._numbers[self._ranges.popitem(last=False)[1]]
            return self._last

    def range(self, number: int) -> PassageRange | None:
        """Return the range of a number; None if it was never given, or is forgotten."""
        with self._lock:
            return self._ranges.get(number)

    def latest(self, count: int) -> list[int]:
        """Return the numbers given or named last, in increasing order."""
        with self._lock:
            return sorted(list(self._ranges)[-count:])


def _edge_text(edge: PassageEdge) -> str:
    name = quote(edge.node_id, safe="/:-._~ ")
    return name if edge.offset is None else f"{name}@{edge.offset}"

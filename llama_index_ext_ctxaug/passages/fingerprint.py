"""Recognize parts of a text that was cut, edited or put together anew, from a short fingerprint of it."""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

MIN_BLOCK = 8
"""Minimum characters of a block."""

MAX_BLOCKS = 100
"""Maximum blocks of a fingerprint; each takes `CODE` characters of it."""

CODE = 4

_BYTES = 3
_RUN = 2  # blocks that must match in a row: one alone matches by chance once in 2^24 comparisons


class Fingerprint(NamedTuple):
    """The checksums of a text's blocks, one after the other.

    Attributes:
        size: characters of a block; the last may be shorter.
        blocks: the checksums, each as four characters of base64.
    """

    size: int
    blocks: str


class Part(NamedTuple):
    """A part of a text that was found in another.

    Attributes:
        start: its first character there.
        original: its first character in the text of the fingerprint.
        length: its characters.
    """

    start: int
    original: int
    length: int


def fingerprint(text: str, characters: int) -> Fingerprint | None:
    """Compute the fingerprint of a text.

    Args:
        text: the text.
        characters: maximum characters of the checksums.

    Returns:
        The fingerprint; None if there is no room for two blocks, or no text for them.
    """
    count = min(MAX_BLOCKS, characters // CODE)
    if count < _RUN or len(text) <= MIN_BLOCK:
        return None
    size = max(MIN_BLOCK, -(-len(text) // count))
    data = _fixed_width(text)
    sums = (_checksum(data, start, start + size) for start in range(0, len(text), size))
    return Fingerprint(size, b64encode(b"".join(sums)).decode())


@lru_cache(maxsize=64)
def find_parts(text: str, known: Fingerprint, length: int) -> tuple[Part, ...]:
    """Find the parts of a text that a fingerprint vouches for.

    At least two blocks must match in a row, and a part that fits several places of the original equally well
    is left out. Characters at the edges of a part that fill no block are not found.

    Args:
        text: where to look.
        known: the fingerprint of the original.
        length: characters of the original.

    Returns:
        The parts in order; they do not overlap.
    """
    return tuple(_find(_fixed_width(text), len(text), known, length))


def _find(data: memoryview, end: int, known: Fingerprint, length: int) -> Iterator[Part]:
    sums = b64decode(known.blocks)
    blocks = [sums[place : place + _BYTES] for place in range(0, len(sums), _BYTES)]
    numbers: dict[bytes, list[int]] = {}
    for number, block in enumerate(blocks):
        numbers.setdefault(block, []).append(number)

    def matching(start: int, number: int) -> tuple[int, int]:
        """Count the blocks that match from here on, and their characters."""
        place, first = start, number
        while number < len(blocks):
            after = place + min(known.size, length - number * known.size)
            if after > end or _checksum(data, place, after) != blocks[number]:
                break
            place, number = after, number + 1
        return number - first, place - start

    start = 0
    while start < end:
        candidates = numbers.get(_checksum(data, start, min(start + known.size, end)), ())
        runs = sorted((*matching(start, number), number) for number in candidates)
        if not runs or runs[-1][0] < _RUN:
            start += 1
            continue
        _, characters, number = runs[-1]
        if len(runs) == 1 or runs[-2][1] < characters:
            yield Part(start, number * known.size, characters)
        start += characters


def _fixed_width(text: str) -> memoryview:
    """Return four bytes for each character, so that slices of a text are slices of the bytes."""
    return memoryview(text.encode("utf-32-le", "surrogatepass"))


def _checksum(data: memoryview, start: int, end: int) -> bytes:
    return zlib.crc32(data[4 * start : 4 * end]).to_bytes(4, "big")[-_BYTES:]

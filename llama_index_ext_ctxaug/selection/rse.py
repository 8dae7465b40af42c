"""Relevant segment extraction (dsRAG): the runs of chunks with the greatest sums of values."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

REFERENCE_CHARACTERS = 700
"""Length of a chunk in characters above which dsRAG counts it for more than one."""

RSEPreset = Literal["balanced", "precision", "find_all"]


class Segment(NamedTuple):
    """A run of chunks, as places in a list of documents laid end to end.

    Attributes:
        start: the first chunk.
        end: the chunk after the last.
        value: sum of the values of its chunks.
    """

    start: int
    end: int
    value: float


@dataclass(frozen=True, slots=True)
class RSEParameters:
    """The parameters of dsRAG's relevant segment extraction, under its names.

    Attributes:
        irrelevant_chunk_penalty: subtracted from the value of each chunk; more gives shorter segments.
        decay_rate: ranks after which a score counts 1/e of itself.
        max_length: maximum chunks of one segment.
        overall_max_length: maximum chunks of all segments.
        minimum_value: minimum value of a segment.
        overall_max_length_extension: chunks that each query after the first adds to `overall_max_length`.
    """

    irrelevant_chunk_penalty: float = 0.18
    decay_rate: float = 30
    max_length: int = 15
    overall_max_length: int = 30
    minimum_value: float = 0.5
    overall_max_length_extension: int = 5


RSE_PRESETS: dict[RSEPreset, RSEParameters] = {
    "balanced": RSEParameters(),
    "precision": RSEParameters(irrelevant_chunk_penalty=0.2, minimum_value=0.7),
    "find_all": RSEParameters(
        decay_rate=200,
        max_length=40,
        overall_max_length=200,
        minimum_value=0.4,
        overall_max_length_extension=0,
    ),
}
"""dsRAG's presets."""


def rse_value(score: float | None, rank: int, characters: int, parameters: RSEParameters) -> float:
    """Return the value of a chunk for one query.

    Args:
        score: the hit's relevance, 0 to 1; None for a chunk that the query did not find.
        rank: position among the query's hits, 0 for the best.
        characters: length of the chunk's text; 0 where it was not found.
        parameters: penalty and decay.

    Returns:
        The score, decayed by rank, less the penalty; in proportion to the length above 700 characters.
    """
    relevance = 0.0 if score is None else score * math.exp(-rank / parameters.decay_rate)
    value = relevance - parameters.irrelevant_chunk_penalty
    return value * max(1.0, characters / REFERENCE_CHARACTERS)


def rse(
    values: Sequence[Sequence[float]],
    document_ends: Iterable[int],
    *,
    max_length: int,
    overall_max_length: int,
    minimum_value: float,
) -> list[Segment]:
    """Return the segments with the greatest sums of values; queries take turns.

    A segment begins and ends with chunks of value 0 or more, and never crosses the end of a document or
    another segment. Of equal sums the earlier counts, then the shorter.

    Args:
        values: for each query the value of every chunk, documents laid end to end.
        document_ends: the place after the last chunk of each document.
        max_length: maximum chunks of one segment.
        overall_max_length: maximum chunks of all segments; a longer segment is not taken.
        minimum_value: a query is done when its best remaining segment has a lower value.

    Returns:
        The segments in the order in which they were taken.
    """
    segments: list[Segment] = []
    ends, taken = set(document_ends), set[int]()
    left = overall_max_length
    waiting = list(range(len(values)))
    while waiting:
        for query in list(waiting):
            best = _best_segment(values[query], ends, taken, min(max_length, left))
            if best is None or best.value < minimum_value:
                waiting.remove(query)
                continue
            segments.append(best)
            taken.update(range(best.start, best.end))
            left -= best.end - best.start
    return segments


def _best_segment(
    values: Sequence[float], ends: Collection[int], taken: Collection[int], max_length: int
) -> Segment | None:
    best: Segment | None = None
    for start, first in enumerate(values):
        if first < 0:
            continue
        total = 0.0
        for place in range(start, min(start + max_length, len(values))):
            if place in taken or (place > start and place in ends):
                break
            total += values[place]
            if values[place] >= 0 and (best is None or total > best.value):
                best = Segment(start, place + 1, total)
    return best

"""Which chunks of documents are worth their tokens: relevance by place, and segments of it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llama_index_ext_ctxaug.errors import ConfigurationError
from llama_index_ext_ctxaug.passages.scores import score_key

SPREAD_CHUNKS = 8
"""How many chunks to each side the relevance of a chunk is felt."""

SPREAD_SHARE = 0.5
"""Share of its relevance that a chunk lends to the chunk beside it; 1/sqrt(d) of that at distance d."""

REFERENCE_CHARACTERS = 700
"""Length of a chunk in characters above which dsRAG counts it for more than one."""

_WORD = re.compile(r"\w+")
_FIRST_UNSPACED = "\u2e80"
"""The first character (radicals, kana, ideographs, hangul) of scripts whose words spaces do not part."""

_ENGLISH = """
an the of in on at to for from by with about into than then and or not as if so is are was were be been
being am do does did done has have had it its this that these those there here which who whom whose what
when where why how he she his her him they them their we us our you your me my can could would should will
may might shall must also any some
"""
_FUNCTION_WORDS = frozenset(_ENGLISH.split())
"""English words that questions are made with; in short pools rarity does not tell them from the topic."""


class Segment(NamedTuple):
    """A run of chunks, by their places in a list of documents laid end to end.

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
        irrelevant_chunk_penalty: taken off the value of each chunk; the higher, the shorter the segments.
        decay_rate: ranks after which a score counts 1/e of itself.
        max_length: most chunks of one segment.
        overall_max_length: most chunks of all segments.
        minimum_value: least value of a segment.
        overall_max_length_extension: chunks that each query after the first adds to `overall_max_length`.
    """

    irrelevant_chunk_penalty: float = 0.18
    decay_rate: float = 30
    max_length: int = 15
    overall_max_length: int = 30
    minimum_value: float = 0.5
    overall_max_length_extension: int = 5


RSE_PRESETS = {
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
"""The presets that dsRAG names."""


def rse_preset(name: str) -> RSEParameters:
    """The parameters of one of dsRAG's presets.

    Raises:
        ConfigurationError: the name is none of them.
    """
    try:
        return RSE_PRESETS[name]
    except KeyError:
        known = ", ".join(RSE_PRESETS)
        raise ConfigurationError(f"preset must be one of {known}; got {name!r}") from None


def rse_value(score: float | None, rank: int, characters: int, parameters: RSEParameters) -> float:
    """What dsRAG holds a chunk to be worth to one query.

    Args:
        score: the hit's relevance, 0 to 1; None for a chunk that the query did not find.
        rank: place among the query's hits, the best 0.
        characters: length of the chunk's text; 0 where it was not found.
        parameters: penalty and decay.

    Returns:
        The score, decayed by rank, less the penalty; times the length where that is over 700 characters.
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
    """The segments with the greatest sums of values, in turn for each query (dsRAG's rule).

    A segment begins and ends with a chunk that is not worth less than nothing, never crosses the end
    of a document or another segment. Of equal sums the first counts: the earlier, then the shorter.

    Args:
        values: for each query the value of every chunk, documents laid end to end.
        document_ends: the place after the last chunk of each document.
        max_length: most chunks of one segment.
        overall_max_length: most chunks of all segments; a longer segment is not taken.
        minimum_value: a query whose best segment is worth less has had its turns.

    Returns:
        The segments in the order in which they were taken.
    """
    segments: list[Segment] = []
    closed = set(document_ends)  # a segment that is under way ends before these places
    taken: set[int] = set()
    left = overall_max_length
    waiting = list(range(len(values)))
    while waiting:
        for query in list(waiting):
            best = _best_segment(values[query], closed, taken, min(max_length, left))
            if best is None or best.value < minimum_value:
                waiting.remove(query)
                continue
            segments.append(best)
            taken.update(range(best.start, best.end))
            left -= best.end - best.start
    return segments


def _best_segment(
    values: Sequence[float], closed: set[int], taken: set[int], max_length: int
) -> Segment | None:
    best: Segment | None = None
    for start, first in enumerate(values):
        if first < 0:
            continue
        total = 0.0
        for place in range(start, min(start + max_length, len(values))):
            if place in taken or (place > start and place in closed):
                break
            total += values[place]
            if values[place] >= 0 and (best is None or total > best.value):
                best = Segment(start, place + 1, total)
    return best


def normalized_scores(scores: Sequence[float | None]) -> list[float]:
    """How high each hit stands in its pool, whatever the scale of the scores.

    Args:
        scores: of the hits, best rank first; cosine, reciprocal ranks, logits, or None.

    Returns:
        For each hit a number in (0, 1]: where its score lies between one step below the lowest score
        and the highest (a step is the pool's range by its length, so the lowest is not nothing).
        Without any score, or where all are equal, the rank stands for the score.
    """
    count = len(scores)
    known = [score for score in scores if score_key(score)[0]]
    numbers = [score for score in known if score is not None and math.isfinite(score)]
    low, high = min(numbers, default=0.0), max(numbers, default=0.0)
    if not math.isfinite(high - low) or high <= low:
        return [(count - rank) / count for rank in range(count)]
    places = (
        (min(max(score, low), high) - low) / (high - low)
        if score is not None and score_key(score)[0]
        else 0.0
        for score in scores
    )
    return [(place * count + 1) / (count + 1) for place in places]


def query_terms(query: str) -> list[str]:
    """The words of a query that say what it is about, in lower case, each once.

    English function words are left out (in other languages rarity alone tells them). Chinese,
    Japanese and Korean words, which spaces do not part, are given as pairs of characters.
    """
    terms: dict[str, None] = {}
    for word in _WORD.findall(query.lower()):
        if word[0] >= _FIRST_UNSPACED:
            terms.update((word[place : place + 2], None) for place in range(max(1, len(word) - 1)))
        elif len(word) > 1 and word not in _FUNCTION_WORDS:
            terms[word] = None
    return list(terms)


def term_shares(texts: Sequence[str], terms: Sequence[str]) -> list[float]:
    """How much of a query each text holds, rare terms counting for more.

    Args:
        texts: texts of the chunks that compete; rarity is told by them alone.
        terms: what to look for, in lower case.

    Returns:
        For each text a number in [0, 1], the best text having 1; all 0 where no term is found.
    """
    sums = [0.0] * len(texts)
    lowered = [text.lower() for text in texts]
    for term in terms:
        found = [place for place, text in enumerate(lowered) if term in text]
        weight = math.log1p((len(texts) - len(found) + 0.5) / (len(found) + 0.5))
        for place in found:
            sums[place] += weight
    best = max(sums, default=0.0)
    return [value / best for value in sums] if best > 0 else sums


def spread(relevance: Sequence[float]) -> list[float]:
    """The relevance of chunks that follow one another, with what their neighbors lend them.

    Half of a chunk's relevance counts for the chunk beside it, and less with the square root of the
    distance, up to 8 chunks: a lone hit lifts little but itself, hits that lie close lift all that is
    between and around them. So the reach follows from how the hits lie, and not from a parameter.

    Args:
        relevance: of each chunk of a run, in reading order, 0 or more.

    Returns:
        A number for each chunk, to be compared with those of other runs.
    """
    values = list(relevance)
    for distance in range(1, min(SPREAD_CHUNKS, len(values) - 1) + 1):
        weight = SPREAD_SHARE / math.sqrt(distance)
        for place in range(distance, len(values)):
            values[place] += weight * relevance[place - distance]
            values[place - distance] += weight * relevance[place]
    return values

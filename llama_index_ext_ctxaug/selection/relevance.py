"""Relevance of chunks: their scores within the pool, the words of the query, and what neighbors lend."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from llama_index_ext_ctxaug.passages.passage import Chunk
from llama_index_ext_ctxaug.passages.scores import score_key

SPREAD_CHUNKS = 8
"""Chunks on each side to which a chunk lends relevance."""

SPREAD_SHARE = 0.5
"""Share of its relevance that a chunk lends to the chunk beside it; 1/sqrt(d) of that at distance d."""

_WORD = re.compile(r"\w+")
_FIRST_UNSPACED = "\u2e80"
"""First character (radicals, kana, ideographs, hangul) of scripts that put no spaces between words."""

_ENGLISH = """
an the of in on at to for from by with about into than then and or not as if so is are was were be been
being am do does did done has have had it its this that these those there here which who whom whose what
when where why how he she his her him they them their we us our you your me my can could would should will
may might shall must also any some
"""
_FUNCTION_WORDS = frozenset(_ENGLISH.split())
"""English function words: in a small pool, rarity alone does not separate them from the topic."""


def normalized_scores(scores: Sequence[float | None]) -> list[float]:
    """Normalize scores of any scale to (0, 1] within the pool.

    Args:
        scores: scores of the hits, best rank first; cosine, reciprocal ranks, logits, or None.

    Returns:
        For each hit the position of its score between one step below the lowest score and the highest.
        A step is the range of the pool divided by its length, so the lowest is above 0. Where no hit has a
        score, or all are equal, ranks are used instead.
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


def pool_scores(hits: Mapping[str, Chunk]) -> dict[str, float]:
    """Return the normalized score of each hit by node id.

    Nodes that an earlier augmenter added are candidates, and no hits beside those that they were added for.

    Args:
        hits: the incoming nodes by id, by rank; where all of them were added, all count as hits.
    """
    found = {id_: hit.score for id_, hit in hits.items() if hit.role == "hit"}
    found = found or {id_: hit.score for id_, hit in hits.items()}
    return dict(zip(found, normalized_scores(list(found.values())), strict=True))


def query_terms(query: str) -> list[str]:
    """Return the distinct content words of a query in lower case.

    English function words are left out; in other languages rarity has to separate them. Chinese,
    Japanese and Korean text, which has no spaces between words, gives pairs of characters.
    """
    terms: dict[str, None] = {}
    for word in _WORD.findall(query.lower()):
        if word[0] >= _FIRST_UNSPACED:
            terms.update((word[place : place + 2], None) for place in range(max(1, len(word) - 1)))
        elif len(word) > 1 and word not in _FUNCTION_WORDS:
            terms[word] = None
    return list(terms)


def term_shares(texts: Sequence[str], terms: Sequence[str]) -> list[float]:
    """Return the share of the query's terms that each text contains, weighted by rarity.

    Args:
        texts: texts of the competing chunks; rarity is measured among them.
        terms: terms to look for, in lower case.

    Returns:
        For each text a number in [0, 1], 1 for the best text; all 0 where no term is found.
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
    """Add to the relevance of each chunk of a run what its neighbors lend it.

    A chunk lends half of its relevance to the chunk beside it, and 1/sqrt(d) of that to the chunk at
    distance d, up to 8 chunks. A lone hit lifts little but itself; hits that lie close lift everything
    between and around them.

    Args:
        relevance: relevance of each chunk in reading order, 0 or more.

    Returns:
        A number for each chunk, comparable with those of other runs.
    """
    values = list(relevance)
    for distance in range(1, min(SPREAD_CHUNKS, len(values) - 1) + 1):
        weight = SPREAD_SHARE / math.sqrt(distance)
        for place in range(distance, len(values)):
            values[place] += weight * relevance[place - distance]
            values[place - distance] += weight * relevance[place]
    return values

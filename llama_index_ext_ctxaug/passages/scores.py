"""The score rules: which of two scores is better, and what score a neighbor gets."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Literal

from llama_index_ext_ctxaug.passages.passage import Chunk

MergedScore = Literal["max", "mean"]
NeighborScore = Literal["none", "inherit", "decay"]

PassageScore = Literal["best", "mean", "reciprocal_rank_sum"]


def score_key(score: float | None) -> tuple[bool, float]:
    """A sort key for scores: None and NaN rank below every number; 0.0 and negatives are scores."""
    if score is None or math.isnan(score):
        return (False, 0.0)
    return (True, score)


def best_first(chunk: Chunk) -> tuple[bool, float, int]:
    """A sort key for chunks: the best score first, then the first rank."""
    scored, score = score_key(chunk.score)
    return (not scored, -score, chunk.rank)


def neighbor_score(score: float | None, hops: int, rule: NeighborScore, decay: float) -> float | None:
    """The score of a node that was reached from a hit.

    Args:
        score: the hit's score.
        hops: links between hit and node, at least 1.
        rule: "none" gives None, "inherit" the hit's score, "decay" the hit's score lowered with
            each hop.
        decay: factor for each hop, in (0, 1]; a negative score (a logit) is divided by it, so that
            a neighbor never ranks above its hit.

    Returns:
        The score, or None.
    """
    if score is None or rule == "none":
        return None
    if rule == "inherit":
        return score
    factor = decay**hops
    if score >= 0:
        return score * factor
    lowest = -sys.float_info.max  # a number that a following postprocessor and JSON can handle
    return max(score / factor, lowest) if factor else lowest


def merged_score(scores: Iterable[float | None], rule: MergedScore) -> float | None:
    """The score of a node that takes the place of others; those without a score have no say.

    Args:
        scores: the scores of what it takes the place of; their order does not matter.
        rule: "max" gives the best, "mean" the mean.

    Returns:
        The score; None where none of them has one.
    """
    scored = [score for score in scores if score is not None and not math.isnan(score)]
    if not scored:
        return None
    # Sorted, so that the mean does not depend on their order; `fsum` refuses infinite scores.
    return max(scored) if rule == "max" else sum(sorted(scored)) / len(scored)


def passage_score(hits: Sequence[tuple[float | None, int]], rule: PassageScore) -> float | None:
    """The score of a passage from those of its hits.

    Args:
        hits: score and rank (from 0) of each hit in it.
        rule: "best" is the best score and "mean" the mean, both over the hits that have a score;
            "reciprocal_rank_sum" adds up 1 / (rank + 1), as RAGLite does for its chunk spans.

    Returns:
        The score; None where there is no hit, or none with a score.
    """
    if not hits:
        return None
    if rule == "reciprocal_rank_sum":
        return math.fsum(1 / (rank + 1) for _, rank in hits)
    return merged_score((score for score, _ in hits), "max" if rule == "best" else "mean")

"""Rules for comparing, deriving and combining scores."""

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
    """Return a sort key for a score: None and NaN rank below every number, 0.0 and negative ones included."""
    if score is None or math.isnan(score):
        return (False, 0.0)
    return (True, score)


def best_first(chunk: Chunk) -> tuple[bool, float, int]:
    """Return a sort key for a chunk: best score first, then lowest rank."""
    scored, score = score_key(chunk.score)
    return (not scored, -score, chunk.rank)


def neighbor_score(score: float | None, hops: int, rule: NeighborScore, decay: float) -> float | None:
    """Derive the score of a neighbor from that of its hit.

    Args:
        score: the hit's score.
        hops: number of links between hit and neighbor, at least 1.
        rule: "none" for None, "inherit" for the hit's score, "decay" for the hit's score lowered with
            each hop.
        decay: factor for each hop, in (0, 1]. A negative score (a logit) is divided by it, so that
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
    lowest = -sys.float_info.max  # finite, for JSON and following postprocessors
    return max(score / factor, lowest) if factor else lowest


def merged_score(scores: Iterable[float | None], rule: MergedScore) -> float | None:
    """Combine the scores of nodes that one node replaces; None and NaN are left out.

    Args:
        scores: the scores, in any order.
        rule: "max" for the best, "mean" for the mean.

    Returns:
        The score; None if no node has one.
    """
    scored = [score for score in scores if score is not None and not math.isnan(score)]
    if not scored:
        return None
    # Sorting makes the mean independent of their order; `fsum` refuses infinite scores.
    return max(scored) if rule == "max" else sum(sorted(scored)) / len(scored)


def passage_score(hits: Sequence[tuple[float | None, int]], rule: PassageScore) -> float | None:
    """Combine the scores of a passage's hits.

    Args:
        hits: score and rank (from 0) of each hit.
        rule: "best" for the best score and "mean" for the mean, both over the hits that have a score;
            "reciprocal_rank_sum" for the sum of 1 / (rank + 1), as RAGLite scores its chunk spans.

    Returns:
        The score; None if no hit has one.
    """
    if not hits:
        return None
    if rule == "reciprocal_rank_sum":
        return math.fsum(1 / (rank + 1) for _, rank in hits)
    return merged_score((score for score, _ in hits), "max" if rule == "best" else "mean")

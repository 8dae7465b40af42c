"""The score rules: which of two scores is better, and what score a neighbor gets."""

from __future__ import annotations

import math
from typing import Literal

NeighborScore = Literal["none", "inherit", "decay"]


def score_key(score: float | None) -> tuple[bool, float]:
    """A sort key for scores: None and NaN rank below every number; 0.0 and negatives are scores."""
    if score is None or math.isnan(score):
        return (False, 0.0)
    return (True, score)


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
    return score * factor if score >= 0 else score / factor

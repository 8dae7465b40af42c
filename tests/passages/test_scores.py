"""The score rules at numeric extremes."""

from __future__ import annotations

import json
import math

import pytest

from llama_index_ext_ctxaug.passages.scores import neighbor_score, passage_score, score_key


@pytest.mark.parametrize("hops", [1, 300, 100_000])
@pytest.mark.parametrize("score", [0.9, 0.0, -1.0, -1e300])
def test_decay_over_any_distance_is_a_number(score: float, hops: int) -> None:
    """At any distance a neighbor's score is finite, and not above that of its hit."""
    decayed = neighbor_score(score, hops, "decay", 0.1)
    assert decayed is not None
    assert math.isfinite(decayed)
    assert decayed <= score
    json.dumps(decayed, allow_nan=False)


@pytest.mark.parametrize("scores", [(math.inf, -math.inf), (1e308, 1e308), (math.nan, None)])
def test_a_mean_of_odd_scores_does_not_fail(scores: tuple[float | None, ...]) -> None:
    """Infinite scores and sums that overflow give a passage a score or None, never an error."""
    forth = passage_score([(score, rank) for rank, score in enumerate(scores)], "mean")
    back = passage_score([(score, rank) for rank, score in enumerate(scores[::-1])], "mean")
    assert repr(forth) == repr(back)


def test_nan_is_no_score() -> None:
    """NaN ranks with None, below every number, and does not count in a passage's score."""
    assert score_key(math.nan) == score_key(None) < score_key(-math.inf)
    assert passage_score([(math.nan, 0), (0.5, 1)], "best") == 0.5
    assert passage_score([(math.nan, 0), (0.5, 1)], "mean") == 0.5
    assert passage_score([(math.nan, 0)], "best") is None

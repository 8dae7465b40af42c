"""The choice: thresholds, strategies, intervals, ties."""

from __future__ import annotations

import random

import pytest

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation import choose, filter_by_threshold, mark
from llama_index_ext_ctxaug.evaluation.choice import Candidate, paired_interval


def candidate(name: str, scores: list[float], tokens: float, seconds: float = 0.1) -> Candidate:
    """A system with these scores under one metric."""
    return Candidate(name, {"recall": {str(n): score for n, score in enumerate(scores)}}, tokens, seconds)


LOW = [0.1, 0.3, 0.2, 0.4, 0.2, 0.3, 0.1, 0.2]
HIGH = [score + 0.5 for score in LOW]


def test_strategies_by_hand() -> None:
    """Mean, sum of reciprocal ranks, and mean of stretched metrics, worked out by hand."""
    means = {"a": {"x": 0.2, "y": 0.9}, "b": {"x": 0.6, "y": 0.5}, "c": {"x": 0.4, "y": 0.5}}
    assert mark(means, "mean") == pytest.approx({"a": 0.55, "b": 0.55, "c": 0.45})
    assert mark(means, "rank") == pytest.approx({"a": 1 / 3 + 1, "b": 1 + 1 / 2, "c": 1 / 2 + 1 / 2})
    assert mark(means, "normalize_mean") == pytest.approx({"a": 0.5, "b": 0.5, "c": 0.25})
    with pytest.raises(ConfigurationError, match="median"):
        mark(means, "median")


def test_a_clear_winner() -> None:
    """A system that is better at every question wins, and the interval excludes no difference."""
    choice = choose([candidate("base", LOW, 100), candidate("more", HIGH, 200)], "base")
    assert choice.winner == "more"
    interval = choice.against_baseline["more"]
    assert interval.mean == pytest.approx(0.5)
    assert interval.distinguishable
    assert "+0.500" in str(choice)


def test_a_hair_is_no_win() -> None:
    """A difference that chance explains goes to the cheaper system, and is said not to be distinguishable."""
    hair = [score + (0.05 if n % 2 else -0.04) for n, score in enumerate(LOW)]
    choice = choose([candidate("base", LOW, 100), candidate("more", hair, 200)], "base")
    assert (choice.top, choice.winner) == ("more", "base")
    assert "Not distinguishable" in str(choice)


def test_equal_systems_tie_to_the_cheaper() -> None:
    """Of systems of equal quality the one with fewer tokens wins, whatever their order."""
    systems = [candidate("base", LOW, 50), candidate("long", HIGH, 300), candidate("short", HIGH, 200)]
    for order in (systems, systems[::-1]):
        assert choose(order, "base").winner == "short"


def test_few_questions_tell_nothing() -> None:
    """Below six questions no difference is distinguishable, and the reasons say so."""
    choice = choose([candidate("base", LOW[:3], 100), candidate("more", HIGH[:3], 200)], "base")
    assert choice.winner == "base"
    assert "too few" in str(choice)


def test_thresholds() -> None:
    """What is slower or longer than allowed is left out by name; where nothing is within, all stay."""
    systems = [candidate("base", LOW, 100, 0.1), candidate("slow", HIGH, 200, 9.0)]
    fast = choose(systems, "base", speed_threshold=1)
    assert fast.winner == "base"
    assert "left out: slow" in str(fast)
    none = choose(systems, "base", token_threshold=10)
    assert none.winner == "slow"
    assert "No system is within 10 tokens, so all stay." in str(none)


def test_no_scores() -> None:
    """Without any score there is nothing to choose by."""
    with pytest.raises(ConfigurationError, match="no system has a score"):
        choose([candidate("base", [], 1)], "base")


def test_order_of_questions_changes_nothing() -> None:
    """The interval depends on the questions, not on their order."""
    differences = {str(n): value for n, value in enumerate(random.Random(3).choices(LOW, k=30))}
    shuffled = dict(random.Random(4).sample(list(differences.items()), 30))
    assert paired_interval(differences) == paired_interval(shuffled)


def test_filter_keeps_all_where_none_passes() -> None:
    """The filter tells whether anything passed."""
    assert filter_by_threshold(["a", "b"], [1, 2], 1) == (["a"], True)
    assert filter_by_threshold(["a", "b"], [1, 2], 0) == (["a", "b"], False)
    assert filter_by_threshold(["a", "b"], [1, 2], None) == (["a", "b"], True)

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


def test_the_mean_decides_by_default() -> None:
    """By default marks are means: a large gain under one metric outweighs two small losses."""
    scores = {"a": {"x": 0.9, "y": 0.4, "z": 0.4}, "b": {"x": 0.1, "y": 0.5, "z": 0.5}}
    systems = [
        Candidate(name, {metric: {"1": value} for metric, value in own.items()}, 10, 0)
        for name, own in scores.items()
    ]
    choice = choose(systems, "a")
    assert (choice.top, choose(systems, "a", strategy="rank").top) == ("a", "b")
    assert choice.marks["a"] == pytest.approx((0.9 + 0.4 + 0.4) / 3)


def test_a_clear_winner() -> None:
    """A system that is better at every question wins, and the interval excludes zero."""
    choice = choose([candidate("base", LOW, 100), candidate("more", HIGH, 200)], "base")
    assert choice.winner == "more"
    interval = choice.against_baseline["more"]
    assert interval.mean == pytest.approx(0.5)
    assert interval.distinguishable
    assert "+0.500" in str(choice)


def test_a_hair_is_no_win() -> None:
    """If chance explains the difference, the cheaper system wins and the two are not distinguishable."""
    hair = [score + (0.05 if n % 2 else -0.04) for n, score in enumerate(LOW)]
    choice = choose([candidate("base", LOW, 100), candidate("more", hair, 200)], "base")
    assert (choice.top, choice.winner) == ("more", "base")
    assert "Not distinguishable" in str(choice)


def test_equal_systems_tie_to_the_cheaper() -> None:
    """Of equally good systems, the one with fewer tokens wins, in any order."""
    systems = [candidate("base", LOW, 50), candidate("long", HIGH, 300), candidate("short", HIGH, 200)]
    for order in (systems, systems[::-1]):
        choice = choose(order, "base")
        assert (choice.winner, choice.top, list(choice.marks)) == (
            "short",
            "short",
            ["short", "long", "base"],
        )


def test_fewer_tokens_count_before_less_time() -> None:
    """Of equal systems, the one with fewer tokens wins even if slower; at equal tokens, the faster."""
    base = candidate("base", LOW, 50)
    slow, fast = candidate("slow", HIGH, 200, 9.0), candidate("fast", HIGH, 300, 0.1)
    for order in ([base, slow, fast], [fast, slow, base]):
        assert choose(order, "base").winner == "slow"
    equal = candidate("equal", HIGH, 200, 0.2)
    for order in ([base, slow, equal], [equal, slow, base]):
        assert choose(order, "base").winner == "equal"


def test_no_augmenter_is_the_simplest() -> None:
    """Of equally good and equally long systems the baseline wins, even if it measured slower."""
    systems = [candidate("other", LOW, 50, 0.1), candidate("base", LOW, 50, 0.2)]
    choice = choose(systems, "base")
    assert choice.winner == "base"
    assert "Use no augmenter" in str(choice)


def test_six_questions_suffice() -> None:
    """Six questions suffice if the systems differ at each of them."""
    choice = choose([candidate("base", LOW[:6], 100), candidate("more", HIGH[:6], 200)], "base")
    assert choice.winner == "more"
    assert "too few" not in str(choice)


def test_the_interval_holds_95_percent() -> None:
    """A difference that chance explains in three of a hundred samples is not distinguishable."""
    won = {str(number): 1.0 if number < 8 else -1.0 for number in range(10)}
    interval = paired_interval(won)  # no difference or less in 3.3 percent of all samples
    assert interval.mean == pytest.approx(0.6)
    assert interval.low <= 0
    assert not interval.distinguishable
    clear = paired_interval({**won, "10": 1.0, "11": 1.0, "12": 1.0})
    assert 0 < clear.low < clear.mean < clear.high <= 1
    assert paired_interval({id_: -value for id_, value in clear_wins(13).items()}).distinguishable


def clear_wins(count: int) -> dict[str, float]:
    """Differences of a system that is better at each question."""
    return {str(number): 0.5 + number / 100 for number in range(count)}


def test_the_baseline_is_compared_with_though_it_is_left_out() -> None:
    """The winner is compared with the baseline even if a threshold excludes the baseline."""
    systems = [candidate("base", LOW, 300), candidate("more", HIGH, 200)]
    choice = choose(systems, "base", token_threshold=250)
    assert choice.winner == "more"
    assert choice.against_baseline["more"].mean == pytest.approx(0.5)
    assert list(choice.marks) == ["more"]


def test_a_system_that_lacks_a_metric_is_left_out() -> None:
    """A system without a score for one of the metrics is named and left out."""
    both = {"recall": {"1": 0.2}, "found": {"1": 0.3}}
    systems = [Candidate("base", both, 10, 0), Candidate("half", {"recall": {"1": 1.0}, "found": {}}, 10, 0)]
    choice = choose(systems, "base")
    assert list(choice.marks) == ["base"]
    assert "half has no score and is left out." in str(choice)


@pytest.mark.parametrize("lacking", ["base", "more"])
def test_questions_that_one_system_failed_at_are_not_paired(lacking: str) -> None:
    """The difference of two systems covers only the questions that both have a score for."""
    scores = {"base": list(LOW), "more": list(HIGH)}
    systems = [candidate(name, scores[name], 100 if name == "base" else 200) for name in scores]
    del next(one for one in systems if one.name == lacking).scores["recall"]["3"]  # type: ignore[attr-defined]
    for order in (systems, systems[::-1]):
        interval = choose(order, "base").against_baseline["more"]
        assert interval.count == len(LOW) - 1
        assert interval.mean == pytest.approx(0.5)


def test_few_questions_distinguish_nothing() -> None:
    """Below six questions no difference is distinguishable, and the reasons state it."""
    choice = choose([candidate("base", LOW[:3], 100), candidate("more", HIGH[:3], 200)], "base")
    assert choice.winner == "base"
    assert "too few" in str(choice)


def test_thresholds() -> None:
    """A system over a threshold is named and left out; if all are over it, all stay."""
    systems = [candidate("base", LOW, 100, 0.1), candidate("slow", HIGH, 200, 9.0)]
    fast = choose(systems, "base", speed_threshold=1)
    assert fast.winner == "base"
    assert "left out: slow" in str(fast)
    none = choose(systems, "base", token_threshold=10)
    assert none.winner == "slow"
    assert "No system is within 10 tokens, so all stay." in str(none)


def test_within_a_budget_the_best_mark_wins() -> None:
    """At equal tokens the better mark wins, though chance explains it, and the equal systems are listed."""
    recall = [0.2, 0.9, 0.4, 0.8, 0.7, 0.9, 0.6]
    better = [0.9, 0.3, 0.9, 0.7, 0.9, 0.8, 0.7]
    systems = [candidate("base", recall, 988.1), candidate("more", better, 988.2)]
    assert choose(systems, "base").winner == "base"
    choice = choose(systems, "base", weigh_tokens=False)
    assert (choice.winner, choice.top) == ("more", "more")
    assert "Not distinguishable by these questions: more, base. more has the best mark." in str(choice)
    same = [candidate("base", recall, 50, 0.2), candidate("other", recall, 50, 0.1)]
    assert choose(same, "base", weigh_tokens=False).winner == "base"


def test_no_scores() -> None:
    """A choice without any score is an error."""
    with pytest.raises(ConfigurationError, match="no system has a score"):
        choose([candidate("base", [], 1)], "base")


def test_order_of_questions_changes_nothing() -> None:
    """The interval depends on the questions, not on their order."""
    differences = {str(n): value for n, value in enumerate(random.Random(3).choices(LOW, k=30))}
    shuffled = dict(random.Random(4).sample(list(differences.items()), 30))
    assert paired_interval(differences) == paired_interval(shuffled)


def test_filter_keeps_all_where_none_passes() -> None:
    """If no item passes, the filter keeps all and reports it."""
    assert filter_by_threshold(["a", "b"], [1, 2], 1) == (["a"], True)
    assert filter_by_threshold(["a", "b"], [1, 2], 0) == (["a", "b"], False)
    assert filter_by_threshold(["a", "b"], [1, 2], None) == (["a", "b"], True)

"""Choose the best system, and say whether the questions can decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation.extras import load_extra

Strategy = Literal["mean", "rank", "normalize_mean"]
T = TypeVar("T")

MIN_QUESTIONS = 6
"""Fewer paired questions cannot separate two systems at 5 percent: even a sign test needs six."""

_SAMPLES = 5000


@dataclass(frozen=True, slots=True)
class Interval:
    """The mean of paired differences with its 95 percent confidence interval.

    Attributes:
        mean: mean of the differences.
        low: lower end.
        high: upper end.
        count: number of questions.
    """

    mean: float
    low: float
    high: float
    count: int

    @property
    def distinguishable(self) -> bool:
        """True if the interval excludes zero, over enough questions."""
        return self.count >= MIN_QUESTIONS and (self.low > 0 or self.high < 0)

    def __str__(self) -> str:
        return f"{self.mean:+.3f} (95% interval {self.low:+.3f} to {self.high:+.3f}, {self.count} questions)"


@dataclass(frozen=True)
class Candidate:
    """A system as the choice sees it: scores by metric and question id, larger is better, and mean costs."""

    name: str
    scores: Mapping[str, Mapping[str, float]]
    tokens: float
    seconds: float

    @property
    def is_measured(self) -> bool:
        """True if each metric has a score at some question."""
        return bool(self.scores) and all(self.scores.values())


@dataclass(frozen=True)
class Choice:
    """The chosen system, and why.

    Attributes:
        winner: the system to use.
        top: the system with the highest mark, which an equal and cheaper one may have replaced.
        marks: the mark of each system that was considered, best first.
        against_baseline: for each other system, its difference to the baseline over the metrics' mean.
        reasons: the choice in sentences.
    """

    winner: str
    top: str
    marks: dict[str, float]
    against_baseline: dict[str, Interval]
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.reasons)


def paired_differences(one: Candidate, other: Candidate) -> dict[str, float]:
    """Return how much better one system is at each question, on the mean over the metrics both have."""
    differences: dict[str, list[float]] = {}
    for metric, scores in one.scores.items():
        for id_, value in scores.items():
            if id_ in other.scores[metric]:
                differences.setdefault(id_, []).append(value - other.scores[metric][id_])
    return {id_: sum(values) / len(values) for id_, values in sorted(differences.items())}


def paired_interval(differences: Mapping[str, float], seed: int = 0) -> Interval:
    """Return the mean of paired differences with its percentile bootstrap interval (Efron 1979).

    Args:
        differences: by question id; their order does not matter.
        seed: seed of the resampling; the same rows give the same interval.
    """
    values = np.array([differences[id_] for id_ in sorted(differences)], dtype=float)
    if values.size < 2:
        mean = float(values.sum())
        return Interval(mean, mean, mean, int(values.size))
    result = load_extra("scipy.stats", "eval").bootstrap(
        (values,), np.mean, n_resamples=_SAMPLES, batch=500, method="percentile", rng=seed
    )
    low, high = result.confidence_interval
    return Interval(float(values.mean()), float(low), float(high), int(values.size))


def filter_by_threshold(
    items: Sequence[T], values: Sequence[float], threshold: float | None
) -> tuple[list[T], bool]:
    """Return the items with values up to the threshold.

    Args:
        items: the items to filter.
        values: the value of each item.
        threshold: maximum value; None lets everything pass.

    Returns:
        The items, and True if any passed. If none does, all stay, as in AutoRAG.
    """
    if threshold is None:
        return list(items), True
    kept = [item for item, value in zip(items, values, strict=True) if value <= threshold]
    return (kept, True) if kept else (list(items), False)


def mark(means: Mapping[str, Mapping[str, float]], strategy: Strategy) -> dict[str, float]:
    """Return one number for each system from its means by AutoRAG's strategies; the largest is the best.

    Args:
        means: for each system, the mean of each metric.
        strategy: "mean" of the metrics; "rank", the sum of one divided by the rank under each metric;
            "normalize_mean", the mean of the metrics after each is stretched to 0 to 1.

    Raises:
        ConfigurationError: an unknown strategy.
    """
    if strategy not in ("mean", "rank", "normalize_mean"):
        raise ConfigurationError(f"strategy must be 'mean', 'rank' or 'normalize_mean', is {strategy!r}")
    names = list(means)
    table = np.array([list(means[name].values()) for name in names], dtype=float)
    if strategy == "rank":
        ranks = 1 + (table[None, :, :] > table[:, None, :]).sum(axis=1)
        marks = (1 / ranks).sum(axis=1)
    elif strategy == "normalize_mean":
        span = table.max(axis=0) - table.min(axis=0)
        marks = np.where(span > 0, (table - table.min(axis=0)) / np.where(span > 0, span, 1), 0).mean(axis=1)
    else:
        marks = table.mean(axis=1)
    return {name: float(value) for name, value in zip(names, marks, strict=True)}


def choose(
    candidates: Sequence[Candidate],
    baseline: str,
    *,
    strategy: Strategy = "mean",
    weigh_tokens: bool = True,
    speed_threshold: float | None = None,
    token_threshold: float | None = None,
) -> Choice:
    """Choose the system with the best mark, or a cheaper one that the questions cannot separate from it.

    Args:
        candidates: the systems, the baseline among them.
        baseline: name of the baseline.
        weigh_tokens: let the cheapest of the systems that the questions cannot separate win; False where a
            budget grants all of them the same tokens, so that the best mark wins.
        strategy: how several metrics become one mark.
        speed_threshold: maximum mean seconds for a question; if no system is within, all stay.
        token_threshold: maximum mean tokens of a context; if no system is within, all stay.

    Raises:
        ConfigurationError: nothing to choose from, or an unknown strategy.
    """
    considered, reasons = _within(candidates, speed_threshold, token_threshold)
    measured = [c for c in considered if c.is_measured]
    reasons += [f"{c.name} has no score and is left out." for c in considered if not c.is_measured]
    if not measured:
        raise ConfigurationError("no system has a score to choose by: see the report's problems")
    marks = mark({c.name: {m: _mean(s) for m, s in c.scores.items()} for c in measured}, strategy)

    def cost(candidate: Candidate) -> tuple[float, float]:
        return candidate.tokens, candidate.seconds if candidate.name != baseline else 0.0

    ranked = sorted(measured, key=lambda c: (-marks[c.name], *cost(c), c.name))
    top = ranked[0]
    equal = [top] + [c for c in ranked[1:] if not _difference(top, c).distinguishable]
    winner = min(equal, key=cost) if weigh_tokens else top
    base = next((c for c in candidates if c.name == baseline and c.is_measured), None)
    against = {c.name: _difference(c, base) for c in measured if base and c.name != baseline}
    advantage = (
        f"is the cheapest of them ({winner.tokens:.0f} tokens)" if weigh_tokens else "has the best mark"
    )
    reasons += _explain(winner, equal, advantage, baseline, against)
    return Choice(winner.name, top.name, {c.name: marks[c.name] for c in ranked}, against, tuple(reasons))


def _within(
    candidates: Sequence[Candidate], speed: float | None, tokens: float | None
) -> tuple[list[Candidate], list[str]]:
    kept, reasons = list(candidates), []
    for attribute, threshold in (("seconds", speed), ("tokens", tokens)):
        before, unit = kept, "seconds for a question" if attribute == "seconds" else "tokens"
        kept, passed = filter_by_threshold(before, [getattr(c, attribute) for c in before], threshold)
        if not passed:
            reasons.append(f"No system is within {threshold:g} {unit}, so all stay.")
        elif len(kept) < len(before):
            names = ", ".join(c.name for c in before if c not in kept)
            reasons.append(f"Over {threshold:g} {unit}, so left out: {names}.")
    return kept, reasons


def _explain(
    winner: Candidate,
    equal: Sequence[Candidate],
    advantage: str,
    baseline: str,
    against: Mapping[str, Interval],
) -> list[str]:
    others = [c.name for c in equal if c is not winner]
    if others:
        reasons = [
            f"Not distinguishable by these questions: {', '.join([winner.name, *others])}. "
            f"{winner.name} {advantage}."
        ]
    else:
        reasons = [f"{winner.name} has the best mark, and no other system is as good."]
    count = max((interval.count for interval in against.values()), default=MIN_QUESTIONS)
    if count < MIN_QUESTIONS:
        reasons.append(f"{count} questions are too few to separate systems; {MIN_QUESTIONS} is the minimum.")
    if winner.name in against:
        interval = against[winner.name]
        verdict = "" if interval.distinguishable else "; this is not distinguishable from no difference"
        reasons.append(f"{winner.name} against {baseline}: {interval}{verdict}.")
    elif winner.name == baseline:
        reasons.append("Use no augmenter: none is better by more than chance.")
    return reasons


def _mean(scores: Mapping[str, float]) -> float:
    return sum(scores[id_] for id_ in sorted(scores)) / len(scores)


def _difference(one: Candidate, other: Candidate) -> Interval:
    return paired_interval(paired_differences(one, other))

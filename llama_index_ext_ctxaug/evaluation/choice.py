"""Which system is the best, and whether the questions can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from llama_index_ext_ctxaug import ConfigurationError

Strategy = Literal["mean", "rank", "normalize_mean"]
T = TypeVar("T")

MIN_QUESTIONS = 6
"""Fewer paired questions cannot tell two systems apart at 5 percent: even a sign test needs six."""

_SAMPLES = 5000
_BLOCK = 500


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean of paired differences, and where it lies with 95 percent confidence.

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
        """Whether the questions tell the difference from none."""
        return self.count >= MIN_QUESTIONS and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Candidate:
    """What the choice needs to know of a system.

    Attributes:
        name: the system.
        scores: for each metric of the choice, the score by question id; larger is better.
        tokens: mean tokens of its context.
        seconds: mean time for a question.
    """

    name: str
    scores: Mapping[str, Mapping[str, float]]
    tokens: float
    seconds: float


@dataclass(frozen=True)
class Choice:
    """The answer to which system helps.

    Attributes:
        winner: the system to use.
        top: the system with the highest mark, which a cheaper one that is as good may have replaced.
        marks: what the strategy gave each system that was considered, best first.
        against_baseline: for each other system, its difference to the baseline, over the metrics' mean.
        reasons: the choice in sentences.
    """

    winner: str
    top: str
    marks: dict[str, float]
    against_baseline: dict[str, Interval]
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.reasons)


def paired_interval(differences: Mapping[str, float], seed: int = 0) -> Interval:
    """The mean of paired differences with its 95 percent percentile bootstrap interval (Efron 1979).

    Args:
        differences: by question id; their order does not matter.
        seed: of the resampling, so that the same rows give the same interval.
    """
    values = np.array([differences[id_] for id_ in sorted(differences)], dtype=float)
    if values.size == 0:
        return Interval(0.0, 0.0, 0.0, 0)
    generator = np.random.default_rng(seed)
    means = np.concatenate(
        [
            values[generator.integers(0, values.size, (_BLOCK, values.size))].mean(axis=1)
            for _ in range(_SAMPLES // _BLOCK)
        ]
    )
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(float(values.mean()), float(low), float(high), int(values.size))


def filter_by_threshold(
    items: Sequence[T], values: Sequence[float], threshold: float | None
) -> tuple[list[T], bool]:
    """The items whose value is at most the threshold.

    Args:
        items: what is filtered.
        values: the value of each item.
        threshold: the most that is let pass; None lets everything pass.

    Returns:
        The items, and whether any passed: where none does, all stay, as in AutoRAG.
    """
    if threshold is None:
        return list(items), True
    kept = [item for item, value in zip(items, values, strict=True) if value <= threshold]
    return (kept, True) if kept else (list(items), False)


def mark(means: Mapping[str, Mapping[str, float]], strategy: Strategy) -> dict[str, float]:
    """One number for each system from its means, as AutoRAG's strategies do; the largest is the best.

    Args:
        means: for each system, the mean of each metric.
        strategy: "mean" of the metrics; "rank", the sum of one divided by the rank under each metric;
            "normalize_mean", the mean of the metrics after each is stretched to 0 to 1.
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
    speed_threshold: float | None = None,
    token_threshold: float | None = None,
) -> Choice:
    """The system with the best mark, or a cheaper one that the questions cannot tell from it.

    Args:
        candidates: the systems, the baseline among them.
        baseline: name of the baseline.
        strategy: how several metrics become one mark.
        speed_threshold: most seconds for a question, on the mean; where no system is within, all stay.
        token_threshold: most tokens of a context, on the mean; the same.

    Raises:
        ConfigurationError: nothing to choose from, or an unknown strategy.
    """
    considered, reasons = _within(candidates, speed_threshold, token_threshold)
    measured = [c for c in considered if c.scores and all(c.scores.values())]
    reasons += [f"{c.name} has no score and is left out." for c in considered if c not in measured]
    if not measured:
        raise ConfigurationError("no system has a score to choose by: see the report's problems")
    marks = mark({c.name: {m: _mean(s) for m, s in c.scores.items()} for c in measured}, strategy)
    ranked = sorted(measured, key=lambda c: (-marks[c.name], c.tokens, c.seconds, c.name))
    top = ranked[0]
    equal = [top] + [c for c in ranked[1:] if not _difference(top, c).distinguishable]
    winner = min(equal, key=lambda c: (c.tokens, c.seconds if c.name != baseline else 0.0, -marks[c.name]))
    known = {c.name: c for c in candidates if c.scores and all(c.scores.values())}
    against = {
        c.name: _difference(c, known[baseline]) for c in measured if baseline in known and c.name != baseline
    }
    reasons += _explain(winner, top, equal, baseline, against)
    ordered = {c.name: marks[c.name] for c in ranked}
    return Choice(winner.name, top.name, ordered, against, tuple(reasons))


def _within(
    candidates: Sequence[Candidate], speed: float | None, tokens: float | None
) -> tuple[list[Candidate], list[str]]:
    kept, reasons = list(candidates), []
    limits = (
        (speed, [c.seconds for c in kept], "seconds for a question"),
        (tokens, [c.tokens for c in kept], "tokens"),
    )
    for threshold, values, unit in limits:
        value_of = {c.name: value for c, value in zip(candidates, values, strict=True)}
        before = kept
        kept, passed = filter_by_threshold(before, [value_of[c.name] for c in before], threshold)
        if not passed:
            reasons.append(f"No system is within {threshold:g} {unit}, so all stay.")
        elif len(kept) < len(before):
            names = ", ".join(c.name for c in before if c not in kept)
            reasons.append(f"Over {threshold:g} {unit}, so left out: {names}.")
    return kept, reasons


def _explain(
    winner: Candidate,
    top: Candidate,
    equal: Sequence[Candidate],
    baseline: str,
    against: Mapping[str, Interval],
) -> list[str]:
    reasons = []
    others = [c.name for c in equal if c is not winner]
    if others:
        reasons.append(
            f"Not distinguishable by these questions: {', '.join([winner.name, *others])}. "
            f"{winner.name} is the cheapest of them ({winner.tokens:.0f} tokens)."
        )
    else:
        reasons.append(f"{winner.name} has the best mark, and no other system is as good.")
    count = max((interval.count for interval in against.values()), default=MIN_QUESTIONS)
    if count < MIN_QUESTIONS:
        reasons.append(f"{count} questions are too few to tell systems apart; {MIN_QUESTIONS} is the least.")
    interval = against.get(winner.name)
    if interval is not None:
        verdict = "" if interval.distinguishable else "; this is not distinguishable from no difference"
        reasons.append(
            f"{winner.name} against {baseline}: {interval.mean:+.3f} "
            f"(95% interval {interval.low:+.3f} to {interval.high:+.3f}, "
            f"{interval.count} questions){verdict}."
        )
    elif winner.name == baseline:
        reasons.append("Use no augmenter: none is better by more than chance.")
    return reasons


def _mean(scores: Mapping[str, float]) -> float:
    return sum(scores[id_] for id_ in sorted(scores)) / len(scores)


def _difference(one: Candidate, other: Candidate) -> Interval:
    """The paired difference of two systems, for each question the mean over the metrics that it has."""
    sums: dict[str, list[float]] = {}
    for metric, scores in one.scores.items():
        for id_, value in scores.items():
            if id_ in other.scores[metric]:
                sums.setdefault(id_, []).append(value - other.scores[metric][id_])
    return paired_interval({id_: sum(values) / len(values) for id_, values in sums.items()})

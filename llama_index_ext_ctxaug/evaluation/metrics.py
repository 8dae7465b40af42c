"""Metrics of a context: small classes, each with one number for one question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.llms import LLM

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation.answer_metrics import AnswerExact, AnswerF1, judges
from llama_index_ext_ctxaug.evaluation.outcome import FunctionMetric, Metric, Outcome, repeated, words
from llama_index_ext_ctxaug.evaluation.questions import Question
from llama_index_ext_ctxaug.evaluation.ranking import RANK_METRICS


class EvidenceRecall(Metric):
    """Share of the evidence's words that the context holds.

    Measured on the text, whichever nodes it comes from, so that a useful neighbor counts. A word counts if it
    is part of a run of six words that both texts have.
    """

    name, quality = "evidence_recall", True

    def score(self, outcome: Outcome) -> float | None:
        """Return the words found divided by all words of the evidence."""
        total = sum(count for _, count in outcome.covered)
        return sum(hit for hit, _ in outcome.covered) / total if total else None


class EvidencePrecision(Metric):
    """Share of the context's words that are evidence, each word of the evidence counted once."""

    name = "evidence_precision"

    def score(self, outcome: Outcome) -> float | None:
        """Return the words of the evidence found divided by all words of the context."""
        if not outcome.covered:
            return None
        return sum(hit for hit, _ in outcome.covered) / len(outcome.words) if outcome.words else 0.0


class EvidenceWhole(Metric):
    """1 if the context holds every word of the evidence, else 0."""

    name = "evidence_whole"

    def score(self, outcome: Outcome) -> float | None:
        """Return 1.0 or 0.0, or None if the question has nothing to look for."""
        if not outcome.covered:
            return None
        return float(all(hit == count for hit, count in outcome.covered))


class AnswerFound(Metric):
    """1 if the context holds one of the expected answers word for word, else 0."""

    name, quality = "answer_found", True

    def score(self, outcome: Outcome) -> float | None:
        """Return 1.0 or 0.0, or None if the question has nothing to look for."""
        answers = [f" {' '.join(words(answer))} " for answer in outcome.question.answers]
        answers = [answer for answer in answers if answer.strip()]
        text = f" {' '.join(outcome.words)} "
        return float(any(answer in text for answer in answers)) if answers else None


class Repeated(Metric):
    """Share of the context's words that repeat an earlier run of six words."""

    name, larger_is_better = "repeated", False

    def score(self, outcome: Outcome) -> float | None:
        """Return the repeated words divided by all words."""
        return repeated(outcome.words) / len(outcome.words) if outcome.words else 0.0


class _Cost(Metric):
    larger_is_better = False

    def score(self, outcome: Outcome) -> float | None:
        """Return the attribute of the outcome that has the metric's name."""
        cost: float | None = getattr(outcome, self.name)
        return cost


class Tokens(_Cost):
    """Tokens of the context, metadata and separators included."""

    name = "tokens"


class Reads(_Cost):
    """Keys read from the docstore; unknown for postprocessors that do not report it."""

    name = "reads"


class LLMCalls(_Cost):
    """Calls of a language model that the postprocessors made."""

    name = "llm_calls"


class Seconds(_Cost):
    """Time of the postprocessors, without the retrieval."""

    name, unit = "seconds", "s"


def default_metrics(questions: Sequence[Question], llm: LLM | None = None) -> list[Metric]:
    """Return the metrics that the questions have something to measure by, and the costs.

    Args:
        questions: the questions.
        llm: a model that answers and judges; None to measure without one.
    """
    metrics: list[Metric] = []
    if any(question.evidence for question in questions):
        metrics += [EvidenceRecall(), EvidencePrecision(), EvidenceWhole()]
    if any(question.answers for question in questions):
        metrics += [AnswerFound(), *([AnswerF1(), AnswerExact()] if llm else [])]
    if any(question.expected_ids for question in questions):
        metrics += [metric() for metric in RANK_METRICS]
    if llm:
        metrics += judges(llm)
    return [*metrics, Repeated(), Tokens(), Reads(), LLMCalls(), Seconds()]


def check_metrics(metrics: Sequence[Any]) -> list[Metric]:
    """Return metrics with distinct names; a function becomes a metric under its own name.

    Raises:
        ConfigurationError: an item is not a metric, or two share a name.
    """
    result: list[Metric] = []
    for metric in metrics:
        if isinstance(metric, Metric):
            result.append(metric)
        elif callable(metric) and not isinstance(metric, type):
            result.append(FunctionMetric(metric.__name__, metric))
        else:
            raise ConfigurationError(f"metrics: {metric!r} is neither a Metric nor a function of an Outcome")
    names = [metric.name for metric in result]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"metrics: names must differ, got {names!r}")
    return result

"""What is measured of a context: small classes, each with one number for one question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.evaluation import BaseEvaluator, FaithfulnessEvaluator, RelevancyEvaluator
from llama_index.core.llms import LLM
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import MetadataMode

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation.matching import repeated, words
from llama_index_ext_ctxaug.evaluation.outcome import FunctionMetric, Metric, Outcome
from llama_index_ext_ctxaug.evaluation.questions import Question
from llama_index_ext_ctxaug.evaluation.ranking import (
    RetrievalF1,
    RetrievalMAP,
    RetrievalMRR,
    RetrievalNDCG,
    RetrievalPrecision,
    RetrievalRecall,
)


class EvidenceRecall(Metric):
    """Share of the evidence's words that the context holds.

    Measured on the text that goes out, whichever nodes it comes from, so that a right neighbor counts as
    right. A word counts where it stands in a run of six words that both texts have.
    """

    name, quality = "evidence_recall", True

    def score(self, outcome: Outcome) -> float | None:
        """Words found of all words of the evidence."""
        total = sum(count for _, count in outcome.covered)
        return sum(hit for hit, _ in outcome.covered) / total if total else None


class EvidencePrecision(Metric):
    """Share of the context's words that are evidence, each word of it counted once."""

    name = "evidence_precision"

    def score(self, outcome: Outcome) -> float | None:
        """Words of the evidence that were found, of all words of the context."""
        if not outcome.covered:
            return None
        return sum(hit for hit, _ in outcome.covered) / len(outcome.words) if outcome.words else 0.0


class EvidenceWhole(Metric):
    """1 where the context holds all the evidence to the last word, else 0."""

    name = "evidence_whole"

    def score(self, outcome: Outcome) -> float | None:
        """1.0 or 0.0."""
        if not outcome.covered:
            return None
        return float(all(hit == count for hit, count in outcome.covered))


class AnswerFound(Metric):
    """1 where one of the expected answers stands in the context, word for word, else 0."""

    name, quality = "answer_found", True

    def score(self, outcome: Outcome) -> float | None:
        """1.0 or 0.0."""
        answers = [f" {' '.join(words(answer))} " for answer in outcome.question.answers]
        answers = [answer for answer in answers if answer.strip()]
        text = f" {' '.join(outcome.words)} "
        return float(any(answer in text for answer in answers)) if answers else None


class Repeated(Metric):
    """Share of the context's words that stood in it before, in a run of six words."""

    name, larger_is_better = "repeated", False

    def score(self, outcome: Outcome) -> float | None:
        """Repeated words of all words."""
        return repeated(outcome.words) / len(outcome.words) if outcome.words else 0.0


class Tokens(Metric):
    """Tokens that the model gets to read, metadata and separators included."""

    name, larger_is_better = "tokens", False

    def score(self, outcome: Outcome) -> float | None:
        """A number of tokens."""
        return outcome.tokens


class Reads(Metric):
    """Keys read from the docstore; unknown for postprocessors that do not report it."""

    name, larger_is_better = "reads", False

    def score(self, outcome: Outcome) -> float | None:
        """A number of keys."""
        return outcome.reads


class LLMCalls(Metric):
    """Calls of a language model that the postprocessors made."""

    name, larger_is_better = "llm_calls", False

    def score(self, outcome: Outcome) -> float | None:
        """A number of calls."""
        return outcome.llm_calls


class Seconds(Metric):
    """Time of the postprocessors, without the retrieval."""

    name, larger_is_better = "seconds", False

    def score(self, outcome: Outcome) -> float | None:
        """Seconds."""
        return outcome.seconds


class JudgeMetric(Metric):
    """What one of LlamaIndex's evaluators says of the answer that a model gives from the context.

    Args:
        name: its column in the report.
        evaluator: the judge.
        llm: the model that answers; it is asked once for each context, whatever the number of judges.
    """

    def __init__(self, name: str, evaluator: BaseEvaluator, llm: LLM) -> None:
        self.name = name
        self.evaluator = evaluator
        self.llm = llm

    def score(self, outcome: Outcome) -> float | None:
        """Not to be had: a judge is asked in `ascore` only."""
        raise NotImplementedError(f"{self.name} is measured with `await metric.ascore(outcome)`")

    async def ascore(self, outcome: Outcome) -> float | None:
        """The judge's score."""
        result = await self.evaluator.aevaluate(
            query=outcome.question.text,
            response=await self._answer(outcome),
            contexts=[hit.node.get_content(metadata_mode=MetadataMode.LLM) for hit in outcome.nodes],
        )
        if result.invalid_result:
            raise ValueError(f"the evaluator gave no valid result: {result.invalid_reason}")
        return result.score

    async def _answer(self, outcome: Outcome) -> str:
        key = id(self.llm)
        if key not in outcome.answers:
            synthesizer = get_response_synthesizer(llm=self.llm)
            outcome.answers[key] = str(
                await synthesizer.asynthesize(outcome.question.text, list(outcome.nodes))
            )
        return outcome.answers[key]


def judges(llm: LLM) -> list[Metric]:
    """LlamaIndex's Faithfulness and Relevancy evaluators as metrics."""
    return [
        JudgeMetric("faithfulness", FaithfulnessEvaluator(llm=llm), llm),
        JudgeMetric("relevancy", RelevancyEvaluator(llm=llm), llm),
    ]


def default_metrics(questions: Sequence[Question], llm: LLM | None = None) -> list[Metric]:
    """What can be measured by what the questions say, and what every context costs.

    Args:
        questions: the questions.
        llm: a model that answers and judges; None to measure without one.
    """
    metrics: list[Metric] = []
    if any(question.evidence for question in questions):
        metrics += [EvidenceRecall(), EvidencePrecision(), EvidenceWhole()]
    if any(question.answers for question in questions):
        metrics.append(AnswerFound())
    if any(question.expected_ids for question in questions):
        metrics += [RetrievalRecall(), RetrievalPrecision(), RetrievalF1()]
        metrics += [RetrievalNDCG(), RetrievalMRR(), RetrievalMAP()]
    costs: list[Metric] = [Repeated(), Tokens(), Reads(), LLMCalls(), Seconds()]
    return [*metrics, *(judges(llm) if llm else []), *costs]


def check_metrics(metrics: Sequence[Any]) -> list[Metric]:
    """Metrics with distinct names; a function becomes a metric under its own name.

    Raises:
        ConfigurationError: something is no metric, or two have one name.
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

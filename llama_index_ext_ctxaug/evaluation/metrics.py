"""What is measured of a context: small classes, each with one number for one question."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from llama_index.core.evaluation import BaseEvaluator, FaithfulnessEvaluator, RelevancyEvaluator
from llama_index.core.llms import LLM
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore

from llama_index_ext_ctxaug import ConfigurationError, read_provenance
from llama_index_ext_ctxaug.evaluation.matching import found, repeated, words
from llama_index_ext_ctxaug.evaluation.questions import Evidence, Question

_DOCUMENT_KEYS = ("file_path", "file_name", "file", "doc_id", "source")


@dataclass
class Outcome:
    """What one system gave for one question.

    Attributes:
        question: the question.
        hits: what the retriever returned.
        nodes: what goes to the model, in its order.
        tokens: tokens of the text that goes to the model.
        seconds: time of the postprocessors, without the retrieval.
        reads: keys read from the docstore; None where the system does not say.
        llm_calls: calls of a language model.
        answers: answers that a model gave from this context, by the model, so that it is asked once.
    """

    question: Question
    hits: Sequence[NodeWithScore]
    nodes: Sequence[NodeWithScore]
    tokens: int = 0
    seconds: float = 0.0
    reads: int | None = None
    llm_calls: int = 0
    answers: dict[int, str] = field(default_factory=dict)

    @cached_property
    def node_ids(self) -> list[str]:
        """Ids of the chunks whose text goes to the model, each once: those in a passage or parent too."""
        return list(dict.fromkeys(id_ for hit in self.nodes for id_ in _chunk_ids(hit.node)))

    @cached_property
    def words(self) -> list[str]:
        """Words of the text that goes to the model, without metadata."""
        return [word for part in self._parts for word in part]

    def words_of(self, evidence: Evidence) -> list[str]:
        """Words of those nodes that may hold the evidence: of its document, or of an unknown one."""
        if evidence.document is None:
            return self.words
        pairs = zip(self.nodes, self._parts, strict=True)
        return [word for hit, part in pairs if _may_be_of(hit.node, evidence.document) for word in part]

    @cached_property
    def covered(self) -> list[tuple[int, int]]:
        """For each piece of evidence, words of it in the context, and all its words."""
        pieces = [(piece, words(piece.text)) for piece in self.question.evidence]
        return [(found(wanted, self.words_of(piece)), len(wanted)) for piece, wanted in pieces if wanted]

    @cached_property
    def _parts(self) -> list[list[str]]:
        return [words(hit.node.get_content(metadata_mode=MetadataMode.NONE)) for hit in self.nodes]


def _chunk_ids(node: BaseNode) -> list[str]:
    provenance = read_provenance(node)
    if provenance is None or provenance.role == "neighbor":
        return [node.node_id]
    if provenance.pieces:
        return [piece.node_id for piece in provenance.pieces]
    return list(provenance.hits) or [node.node_id]


def _may_be_of(node: BaseNode, document: str) -> bool:
    names = [node.ref_doc_id, *(node.metadata.get(key) for key in _DOCUMENT_KEYS)]
    known = [str(name) for name in names if name is not None]
    return not known or document in known


class Metric(ABC):
    """One number for one question and one system; subclass it for a metric of your own.

    Attributes:
        name: its column in the report.
        larger_is_better: None for what is neither good nor bad by itself.
        quality: whether the choice of the best system may go by it where no metric is named.
    """

    name: str
    larger_is_better: bool | None = True
    quality: bool = False

    @abstractmethod
    def score(self, outcome: Outcome) -> float | None:
        """The number, or None where the question says nothing to measure it by."""

    async def ascore(self, outcome: Outcome) -> float | None:
        """The number; override it where measuring waits for something."""
        return self.score(outcome)


class FunctionMetric(Metric):
    """A metric of a function.

    Args:
        name: its column in the report.
        function: gives the number, or None where there is nothing to measure.
        larger_is_better: whether more is better.
    """

    def __init__(
        self, name: str, function: Callable[[Outcome], float | None], *, larger_is_better: bool | None = True
    ) -> None:
        self.name = name
        self.function = function
        self.larger_is_better = larger_is_better

    def score(self, outcome: Outcome) -> float | None:
        """What the function gives."""
        return self.function(outcome)


class IdMetric(Metric):
    """A rank metric on node ids, by ir-measures (extra `eval`).

    One node of each group of `expected_ids` is wanted, as in AutoRAG: the first of a group in the result
    stands for the group, further ones of it are left out of the ranking. Every node counts once.
    """

    measure: ClassVar[str]

    def score(self, outcome: Outcome) -> float | None:
        """The measure over the ranking of groups."""
        groups = outcome.question.expected_ids
        if not groups:
            return None
        ranking = _group_ranking(outcome.node_ids, groups)
        return _measure(self.measure, ranking, [_group_name(number) for number in range(len(groups))])


class RetrievalRecall(IdMetric):
    """Share of the groups of which a node is in the context."""

    name, measure, quality = "retrieval_recall", "R", True


class RetrievalNDCG(IdMetric):
    """Normalized discounted cumulative gain (Järvelin and Kekäläinen 2002)."""

    name, measure = "retrieval_ndcg", "nDCG"


class RetrievalMRR(IdMetric):
    """One divided by the rank of the first expected node."""

    name, measure = "retrieval_mrr", "RR"


class RetrievalMAP(IdMetric):
    """Average precision over the groups."""

    name, measure = "retrieval_map", "AP"


class RetrievalPrecision(Metric):
    """Share of the context's nodes that are expected; it punishes a neighbor that completes a hit."""

    name = "retrieval_precision"

    def score(self, outcome: Outcome) -> float | None:
        """Precision over the distinct node ids."""
        expected = [id_ for group in outcome.question.expected_ids for id_ in group]
        return _measure("P", outcome.node_ids, expected) if expected else None


class RetrievalF1(Metric):
    """Harmonic mean of recall by groups and precision by nodes."""

    name = "retrieval_f1"

    def score(self, outcome: Outcome) -> float | None:
        """The harmonic mean, 0 where both are 0."""
        recall, precision = RetrievalRecall().score(outcome), RetrievalPrecision().score(outcome)
        if recall is None or precision is None:
            return None
        return 2 * recall * precision / (recall + precision) if recall + precision else 0.0


def _group_name(number: int) -> str:
    return f"group {number}"


def _group_ranking(ids: Sequence[str], groups: Sequence[Sequence[str]]) -> list[str]:
    group_of = {id_: number for number, group in reversed(list(enumerate(groups))) for id_ in group}
    return list(
        dict.fromkeys(_group_name(group_of[id_]) if id_ in group_of else f"node {id_}" for id_ in ids)
    )


def _measure(name: str, ranking: Sequence[str], relevant: Sequence[str]) -> float:
    try:
        import ir_measures
    except ImportError as error:
        raise ConfigurationError(
            "metrics on node ids need ir-measures: pip install 'llama-index-ext-ctxaug[eval]'"
        ) from error
    if not ranking:
        return 0.0
    measure = getattr(ir_measures, name)
    if name in ("R", "P"):
        measure = measure @ len(ranking)
    run = [ir_measures.ScoredDoc("q", id_, float(-rank)) for rank, id_ in enumerate(ranking)]
    qrels = [ir_measures.Qrel("q", id_, 1) for id_ in dict.fromkeys(relevant)]
    [result] = ir_measures.iter_calc([measure], qrels, run)
    return float(result.value)


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

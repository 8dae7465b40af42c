"""What one system gave for one question, and what a metric is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore

from llama_index_ext_ctxaug import read_provenance
from llama_index_ext_ctxaug.evaluation.matching import found, words
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

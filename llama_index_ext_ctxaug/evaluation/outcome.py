"""The outcome of one system at one question, matched in words, and the base class of metrics."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore

from llama_index_ext_ctxaug import read_provenance
from llama_index_ext_ctxaug.evaluation.questions import Evidence, Question

_DOCUMENT_KEYS = ("file_path", "file_name", "file", "doc_id", "source")

RUN = 6
"""Length of a run that counts, in words; a shorter text must be found whole."""

_NO_SPACES = r"\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"(?=\w)[{_NO_SPACES}]|[^\W{_NO_SPACES}]+")


@dataclass
class Outcome:
    """The context that one system built for one question.

    Attributes:
        question: the question.
        hits: the hits that the system got.
        nodes: the context, in the order in which the model reads it.
        tokens: tokens of the context.
        seconds: time of the postprocessors, without the retrieval.
        reads: keys read from the docstore; None if the system does not report it.
        llm_calls: calls of a language model.
        answer: the answer that a model gave from this context; None if none was asked.
    """

    question: Question
    hits: Sequence[NodeWithScore]
    nodes: Sequence[NodeWithScore]
    tokens: int = 0
    seconds: float = 0.0
    reads: int | None = None
    llm_calls: int = 0
    answer: str | None = None

    @cached_property
    def node_ids(self) -> list[str]:
        """Ids of the chunks in the context, each once, those in a passage or parent included."""
        return list(dict.fromkeys(id_ for hit in self.nodes for id_ in _chunk_ids(hit.node)))

    @cached_property
    def words(self) -> list[str]:
        """Words of the context, without metadata."""
        return [word for part in self._parts for word in part]

    def words_of(self, evidence: Evidence) -> list[str]:
        """Return the words of the nodes of the evidence's document, or of an unknown one."""
        if evidence.document is None:
            return self.words
        pairs = zip(self.nodes, self._parts, strict=True)
        return [word for hit, part in pairs if _may_be_of(hit.node, evidence.document) for word in part]

    @cached_property
    def covered(self) -> list[tuple[int, int]]:
        """For each piece of evidence, the number of its words in the context and in all."""
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


def words(text: str) -> list[str]:
    """Return the casefolded words of a text; in scripts without spaces each letter is one."""
    return _WORD.findall(text.casefold())


def found(wanted: Sequence[str], text: Sequence[str]) -> int:
    """Count the words of `wanted`, each once, that the text holds as part of a run of `RUN` words."""
    size = min(RUN, len(wanted))
    if size == 0:
        return 0
    runs = {tuple(text[start : start + size]) for start in range(len(text) - size + 1)}
    count = reached = 0
    for start in range(len(wanted) - size + 1):
        if tuple(wanted[start : start + size]) in runs:
            count += start + size - max(reached, start)
            reached = start + size
    return count


def repeated(text: Sequence[str]) -> int:
    """Count the words of a text that belong to a run of `RUN` words it held before."""
    seen: dict[tuple[str, ...], int] = {}
    count = reached = 0
    for start in range(len(text) - RUN + 1):
        first = seen.setdefault(tuple(text[start : start + RUN]), start)
        if first + RUN <= start:
            count += start + RUN - max(reached, start)
            reached = start + RUN
    return count


class Metric(ABC):
    """One number for one question and one system; subclass it for your own metric.

    Attributes:
        name: its column in the report.
        unit: unit of the number; "s" is shown as seconds or milliseconds.
        larger_is_better: None for a number that is neither good nor bad by itself.
        needs_answer: True if it measures the answer of a model.
        quality: True if the choice of the best system goes by it when no metric is named.
    """

    name: str
    unit: str = ""
    larger_is_better: bool | None = True
    quality: bool = False
    needs_answer: bool = False

    @abstractmethod
    def score(self, outcome: Outcome) -> float | None:
        """Return the number, or None if the question has nothing to measure it by."""

    async def ascore(self, outcome: Outcome) -> float | None:
        """Return the number; override it if measuring waits for something."""
        return self.score(outcome)


class FunctionMetric(Metric):
    """A metric made of a function.

    Args:
        name: its column in the report.
        function: returns the number, or None if there is nothing to measure.
        larger_is_better: True if more is better.
    """

    def __init__(
        self, name: str, function: Callable[[Outcome], float | None], *, larger_is_better: bool | None = True
    ) -> None:
        self.name = name
        self.function = function
        self.larger_is_better = larger_is_better

    def score(self, outcome: Outcome) -> float | None:
        """Return the function's number."""
        return self.function(outcome)

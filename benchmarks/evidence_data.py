"""The data of `evidence.py`: documents, questions, exact evidence, and chunks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import Document, TextNode
from llama_index.core.utils import get_tokenizer

OWN_QUESTIONS = Path(__file__).parent / "data" / "python_topics.json"

Span = tuple[str, int, int]
"""A document, the first of its characters, and the end of them, exclusive."""


@dataclass
class Question:
    """A question, and the places of its evidence in documents.

    Attributes:
        text: the question.
        document: id of the document.
        spans: characters of the evidence, ends exclusive.
        split: "tune" or "eval".
    """

    text: str
    document: str
    spans: list[tuple[int, int]]
    split: str


@dataclass
class Corpus:
    """Documents that are searched as one index, and questions on them."""

    name: str
    documents: dict[str, str]
    questions: list[Question]


@dataclass
class Chunks:
    """A corpus cut into chunks, in reading order.

    Attributes:
        nodes: the chunks, linked, document after document.
        spans: place of the text of each, by node id.
        tokens: tokens of each, by node id.
    """

    nodes: list[TextNode]
    spans: dict[str, Span] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = get_tokenizer()
        for node in self.nodes:
            start, end = node.start_char_idx or 0, node.end_char_idx or 0
            self.spans[node.node_id] = (node.ref_doc_id or "", start, end)
            self.tokens[node.node_id] = len(count(node.text))


def own_corpus() -> Corpus:
    """Return Python's own help topics, with the questions whose evidence this Python's topics have."""
    entries = json.loads(OWN_QUESTIONS.read_text(encoding="utf-8"))
    questions = []
    for entry in entries:
        text = topics.get(entry["topic"], "")
        found = [_between(text, *ends) for ends in entry["evidence"]]
        spans = [span for span in found if span]
        if len(spans) == len(found):
            questions.append(Question(entry["question"], entry["topic"], spans, "eval"))
    return Corpus("python_topics", dict(topics), questions)


def _between(text: str, begin: str, end: str) -> tuple[int, int] | None:
    """Return the place of the text from one phrase to another; white space between words may differ."""
    first, last = (r"\s+".join(map(re.escape, phrase.split())) for phrase in (begin, end))
    match = re.search(first + ".*?" + last, text, re.DOTALL)
    return match.span() if match else None


def load_corpus(folder: Path) -> Corpus:
    """Load a folder with `docs/*.txt` and `questions.jsonl`; without splits, questions alternate."""
    documents = {path.stem: path.read_bytes().decode() for path in sorted(folder.glob("docs/*.txt"))}
    questions = []
    for number, line in enumerate((folder / "questions.jsonl").read_text(encoding="utf-8").splitlines()):
        entry = json.loads(line)
        spans = [(one["start"], one["end"]) for one in entry["evidence"]]
        questions.append(Question(entry["question"], entry["doc_id"], spans, entry["split"]))
        if folder.name == "qmsum":  # published with one split only
            questions[-1].split = "eval" if number % 2 else "tune"
    return Corpus(folder.name, documents, questions)


def cut(corpus: Corpus, size: int) -> Chunks:
    """Cut with LlamaIndex's splitter, without overlap; ids name document and place."""
    splitter = SentenceSplitter(
        chunk_size=size, chunk_overlap=0, id_func=lambda place, document: f"{document.node_id}-{place}"
    )
    nodes: list[TextNode] = []
    for id_, text in corpus.documents.items():
        found = splitter.get_nodes_from_documents([Document(id_=id_, text=text)])
        start = 0
        for node in found:
            assert isinstance(node, TextNode)
            # The splitter finds a repeated text at its first place: each search here starts after the last.
            start = text.index(node.text, start)
            node.start_char_idx, node.end_char_idx = start, start + len(node.text)
            start += len(node.text)
            nodes.append(node)
    return Chunks(nodes)


class Evidence:
    """Counts how much of a question's evidence spans of text hold, without white space."""

    def __init__(self, corpus: Corpus, question: Question) -> None:
        text = corpus.documents[question.document]
        wanted = np.zeros(len(text) + 1, dtype=np.int64)
        for start, end in question.spans:
            wanted[start + 1 : end + 1] = [not character.isspace() for character in text[start:end]]
        self._document, self._before = question.document, np.cumsum(wanted)
        self.total = int(self._before[-1])
        self.parts = len(question.spans)

    def covered(self, spans: Iterable[Span]) -> int:
        """Return the characters of evidence that these spans hold; spans may not overlap (see `distinct`)."""
        return sum(
            int(self._before[end] - self._before[start])
            for document, start, end in spans
            if document == self._document
        )


def distinct(spans: Iterable[Span]) -> list[Span]:
    """Return the same characters, each once, in spans that do not touch."""
    joined: list[Span] = []
    for document, start, end in sorted(spans):
        if joined and joined[-1][0] == document and start <= joined[-1][2]:
            joined[-1] = (document, joined[-1][1], max(end, joined[-1][2]))
        else:
            joined.append((document, start, end))
    return joined


def length(spans: Iterable[Span]) -> int:
    """Return the characters of all spans."""
    return sum(end - start for _, start, end in spans)


def spread_out(count: int, most: int) -> list[int]:
    """Return numbers below `count`, evenly spaced, since adjacent questions are about one document."""
    most = min(most, count)
    return [place * count // most for place in range(most)]

"""What `evidence.py` measures on: documents, questions, exact evidence; chunks; hits of a retriever."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import Document, NodeWithScore, TextNode
from llama_index.core.utils import get_tokenizer

OWN_QUESTIONS = Path(__file__).parent / "data" / "python_topics.json"
_WORD = re.compile(r"[^\W_]+")


@dataclass
class Question:
    """A question and where in which document its evidence stands.

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
        spans: the document and the characters of each, by node id.
        tokens: tokens of each, by node id.
    """

    nodes: list[TextNode]
    spans: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = get_tokenizer()
        for node in self.nodes:
            start, end = node.start_char_idx or 0, node.end_char_idx or 0
            self.spans[node.node_id] = (node.ref_doc_id or "", start, end)
            self.tokens[node.node_id] = len(count(node.text))


def own_corpus() -> Corpus:
    """Python's own help topics, with questions of this project; what another version lacks is left out."""
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
    """From one phrase to another, white space of any kind between their words."""
    first, last = (r"\s+".join(map(re.escape, phrase.split())) for phrase in (begin, end))
    match = re.search(first + ".*?" + last, text, re.DOTALL)
    return match.span() if match else None


def load_corpus(folder: Path) -> Corpus:
    """A folder with `docs/*.txt` and `questions.jsonl`; without splits, questions alternate."""
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
    """Cut by LlamaIndex's splitter without overlap, offsets noted, ids that tell document and place."""
    splitter = SentenceSplitter(chunk_size=size, chunk_overlap=0)
    nodes: list[TextNode] = []
    for id_, text in corpus.documents.items():
        found = splitter.get_nodes_from_documents([Document(id_=id_, text=text)])
        start = 0
        for node in found:
            assert isinstance(node, TextNode)
            # The splitter finds a repeated text at its first place: here each is looked for after the last.
            start = text.index(node.text, start)
            node.start_char_idx, node.end_char_idx = start, start + len(node.text)
            start += len(node.text)
            nodes.append(node)
    return Chunks(nodes)


class Evidence:
    """How much of a question's evidence spans of text hold, white space not counted."""

    def __init__(self, corpus: Corpus, question: Question) -> None:
        text = corpus.documents[question.document]
        wanted = np.zeros(len(text) + 1, dtype=np.int64)
        for start, end in question.spans:
            wanted[start:end] = [not character.isspace() for character in text[start:end]]
        self._document, self._wanted = question.document, wanted
        self.total = int(wanted.sum())
        self.parts = len(question.spans)

    def covered(self, spans: Iterable[tuple[str, int, int]]) -> int:
        """Characters of the evidence that these spans hold, each once."""
        left = self._wanted.copy()
        for document, start, end in spans:
            if document == self._document:
                left[start:end] = 0
        return self.total - int(left.sum())


def bm25(texts: Sequence[str], queries: Sequence[str], k1: float = 1.5, b: float = 0.75) -> np.ndarray:
    """Okapi BM25 over words, and over pairs of characters where spaces part no words."""
    lists = [_tokens(text) for text in texts]
    mean = sum(map(len, lists)) / len(lists)
    postings: dict[str, list[tuple[int, float]]] = {}
    for place, tokens in enumerate(lists):
        length = k1 * (1 - b + b * len(tokens) / mean)
        for token, count in Counter(tokens).items():
            postings.setdefault(token, []).append((place, count * (k1 + 1) / (count + length)))
    scores = np.zeros((len(queries), len(texts)), dtype=np.float32)
    for row, query in enumerate(queries):
        for token in set(_tokens(query)) & postings.keys():
            found = postings[token]
            weight = math.log(1 + (len(texts) - len(found) + 0.5) / (len(found) + 0.5))
            places, values = zip(*found, strict=True)
            scores[row, list(places)] += weight * np.array(values)
    return scores


def _tokens(text: str) -> list[str]:
    tokens = []
    for word in _WORD.findall(text.lower()):
        tokens += [word[i : i + 2] for i in range(len(word) - 1)] or [word] if word[0] >= "\u2e80" else [word]
    return tokens


def cosine(texts: Sequence[str], queries: Sequence[str], model: str, cache: Path | None) -> np.ndarray:
    """Cosine by an embedding model; with `cache` the vectors are kept in files of this prefix."""
    vectors = []
    for kind, strings in (("chunks", texts), ("questions", queries)):
        path = cache.with_name(f"{cache.name}-{kind}.npy") if cache else None
        if path and path.exists():
            vectors.append(np.load(path))
            continue
        from sentence_transformers import SentenceTransformer

        found = SentenceTransformer(model).encode(list(strings), normalize_embeddings=True)
        vectors.append(np.asarray(found, dtype=np.float32))
        if path:
            np.save(path, vectors[-1])
    return vectors[1] @ vectors[0].T


def pools(scores: np.ndarray, nodes: Sequence[TextNode], size: int) -> list[list[NodeWithScore]]:
    """For each question its best hits, best first; equal scores in reading order."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :size]
    return [
        [NodeWithScore(node=nodes[place], score=float(scores[row, place])) for place in places]
        for row, places in enumerate(best)
    ]

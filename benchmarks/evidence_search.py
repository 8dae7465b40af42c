"""The retrievers of `evidence.py`: BM25, an embedding model and their fusion; and rescoring with them."""

from __future__ import annotations

import hashlib
import json
import math
import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

_WORD = re.compile(r"[^\W_]+")
RANK_CONSTANT = 60
"""The constant of reciprocal rank fusion, as in LlamaIndex's QueryFusionRetriever."""


class BM25:
    """Okapi BM25 over words, and over pairs of characters in scripts without spaces."""

    def __init__(self, texts: Sequence[str], k1: float = 1.5, b: float = 0.75) -> None:
        self._k1, self._b, self._size = k1, b, len(texts)
        counts = [_count(text) for text in texts]
        mean = sum(map(Counter.total, counts)) / len(counts)
        self._postings: dict[str, list[tuple[int, float]]] = {}
        for place, count in enumerate(counts):
            for word in count:
                self._postings.setdefault(word, []).append((place, self._value(count, word, mean)))

    def search(self, queries: Sequence[str]) -> np.ndarray:
        """Return the scores of all texts for each query: an array of queries by texts."""
        scores = np.zeros((len(queries), self._size), dtype=np.float32)
        for row, query in enumerate(queries):
            for word, rarity in self._rarities(query).items():
                places, values = zip(*self._postings[word], strict=True)
                scores[row, list(places)] += rarity * np.array(values)
        return scores

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the scores of other texts for a query, with word rarities of the searched texts."""
        counts = [_count(text) for text in texts]
        mean = max(1.0, sum(map(Counter.total, counts)) / max(1, len(counts)))
        rarities = self._rarities(query)
        return [
            sum(rarity * self._value(count, word, mean) for word, rarity in rarities.items() if word in count)
            for count in counts
        ]

    def _value(self, count: Counter[str], word: str, mean: float) -> float:
        length = self._k1 * (1 - self._b + self._b * count.total() / mean)
        return count[word] * (self._k1 + 1) / (count[word] + length)

    def _rarities(self, query: str) -> dict[str, float]:
        return {word: self._rarity(word) for word in _count(query) if word in self._postings}

    def _rarity(self, word: str) -> float:
        found = len(self._postings[word])
        return math.log(1 + (self._size - found + 0.5) / (found + 0.5))


@lru_cache(maxsize=50_000)
def _count(text: str) -> Counter[str]:
    return Counter(_words(text))


def _words(text: str) -> list[str]:
    words = []
    for word in _WORD.findall(text.lower()):
        words += [word[i : i + 2] for i in range(len(word) - 1)] or [word] if word[0] >= "\u2e80" else [word]
    return words


class BM25Rescore(BaseNodePostprocessor):
    """Score and sort nodes by BM25, in place of an embedding model for data sets without one."""

    _index: BM25 = PrivateAttr()

    def __init__(self, index: BM25) -> None:
        super().__init__()
        self._index = index

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = query_bundle.query_str if query_bundle else ""
        scores = self._index.score(query, [hit.node.get_content() for hit in nodes])
        scored = [NodeWithScore(node=hit.node, score=s) for hit, s in zip(nodes, scores, strict=True)]
        return sorted(scored, key=lambda hit: -(hit.score or 0.0))


class Encoder:
    """A sentence-transformers model that encodes nothing twice.

    Args:
        model: its folder.
        cache: a folder that keeps the vectors: an array for the chunks of each cut and for the
            questions, and one file for all other texts, by the tokens that the model reads.
    """

    def __init__(self, model: str, cache: Path | None) -> None:
        self._path, self._cache = model, cache
        self._kept: dict[bytes, np.ndarray] = {}
        self._file = cache and sqlite3.connect(cache / "texts.sqlite", timeout=600)
        if self._file:
            self._file.execute("CREATE TABLE IF NOT EXISTS texts (hash BLOB PRIMARY KEY, vector BLOB)")

    def array(self, name: str, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of many texts under a name, texts by dimensions."""
        path = self._cache / f"{name}.npy" if self._cache else None
        if path and path.exists():
            found = np.load(path)
            if len(found) == len(texts):
                return found
        vectors = self._encode(texts)
        if path:
            np.save(path, vectors)
        return vectors

    def vectors(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the vectors of any texts."""
        keys = self._keys(texts)
        missing = {}
        for key, text in zip(keys, texts, strict=True):
            if key not in self._kept and not self._look_up(key):
                missing[key] = text
        if missing:
            for key, vector in zip(missing, self._encode(list(missing.values())), strict=True):
                self._kept[key] = vector
            if self._file:
                rows = [(key, self._kept[key].tobytes()) for key in missing]
                with self._file:
                    self._file.executemany("INSERT OR IGNORE INTO texts VALUES (?, ?)", rows)
        return [self._kept[key] for key in keys]

    def _keys(self, texts: Sequence[str]) -> list[bytes]:
        """Return a hash of the tokens of each text that the model reads: it cuts off the rest."""
        read = self._tokenizer(list(texts), truncation=True, max_length=self._most_tokens)["input_ids"]
        return [hashlib.sha1(np.array(ids, dtype=np.int32).tobytes()).digest() for ids in read]

    def _look_up(self, key: bytes) -> bool:
        row = self._file and self._file.execute("SELECT vector FROM texts WHERE hash = ?", (key,)).fetchone()
        if row:
            self._kept[key] = np.frombuffer(row[0], dtype=np.float32)
        return bool(row)

    def _encode(self, texts: Sequence[str]) -> np.ndarray:
        found = self._model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(found, dtype=np.float32)

    @cached_property
    def _most_tokens(self) -> int:
        settings = Path(self._path, "sentence_bert_config.json").read_text(encoding="utf-8")
        return int(json.loads(settings)["max_seq_length"])

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self._path)

    @cached_property
    def _model(self) -> Any:
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(1)
        return SentenceTransformer(self._path, device="cpu")


class CachedEmbedding(BaseEmbedding):
    """The encoder as LlamaIndex's embedding model; it knows questions and chunks beforehand."""

    _encoder: Encoder = PrivateAttr()
    _known: dict[str, np.ndarray] = PrivateAttr()

    def __init__(self, encoder: Encoder, known: dict[str, np.ndarray]) -> None:
        super().__init__(model_name="cached", embed_batch_size=2048)
        self._encoder, self._known = encoder, known

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        others = list({text: None for text in texts if text not in self._known})
        found = dict(zip(others, self._encoder.vectors(others) if others else [], strict=True))
        return [(self._known[text] if text in self._known else found[text]).tolist() for text in texts]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


def pools(scores: np.ndarray, nodes: Sequence[TextNode], size: int) -> list[list[NodeWithScore]]:
    """Return the best hits for each question, best first; equal scores in reading order."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :size]
    return [
        [NodeWithScore(node=nodes[place], score=float(scores[row, place])) for place in places]
        for row, places in enumerate(best)
    ]


def fused(lists: Sequence[Sequence[NodeWithScore]], size: int) -> list[NodeWithScore]:
    """Fuse lists of hits by reciprocal rank."""
    nodes = {hit.node.node_id: hit.node for hits in lists for hit in hits}
    scores = dict.fromkeys(nodes, 0.0)
    for hits in lists:
        for rank, hit in enumerate(hits):
            scores[hit.node.node_id] += 1 / (rank + RANK_CONSTANT)
    best = sorted(nodes, key=lambda id_: -scores[id_])[:size]
    return [NodeWithScore(node=nodes[id_], score=scores[id_]) for id_ in best]

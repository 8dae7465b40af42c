"""Rank metrics on node ids, with AutoRAG's names and definitions.

Each group of `expected_ids` wants one of its nodes; every node of the context counts once, at its first rank.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

from llama_index_ext_ctxaug.evaluation.outcome import Metric, Outcome

Groups = Sequence[frozenset[str]]


class RankMetric(Metric):
    """Base class of the metrics on node ids."""

    def score(self, outcome: Outcome) -> float | None:
        """Return the metric, 0 for an empty context, or None if no ids are expected."""
        groups = [frozenset(group) for group in outcome.question.expected_ids]
        if not groups:
            return None
        return self._score(outcome.node_ids, groups) if outcome.node_ids else 0.0

    @abstractmethod
    def _score(self, ids: Sequence[str], groups: Groups) -> float:
        """Return the metric of distinct ids in the order of the context."""


class RetrievalRecall(RankMetric):
    """Share of the groups that have a node in the context."""

    name, quality = "retrieval_recall", True

    def _score(self, ids: Sequence[str], groups: Groups) -> float:
        return sum(not group.isdisjoint(ids) for group in groups) / len(groups)


class RetrievalPrecision(RankMetric):
    """Share of the context's nodes that are expected; a neighbor that completes a hit lowers it."""

    name = "retrieval_precision"

    def _score(self, ids: Sequence[str], groups: Groups) -> float:
        return sum(_relevance(ids, groups)) / len(ids)


class RetrievalF1(RankMetric):
    """Harmonic mean of recall by groups and precision by nodes; 0 if both are 0."""

    name = "retrieval_f1"

    def _score(self, ids: Sequence[str], groups: Groups) -> float:
        recall, precision = (m._score(ids, groups) for m in (RetrievalRecall(), RetrievalPrecision()))
        return 2 * recall * precision / (recall + precision) if recall + precision else 0.0


class RetrievalNDCG(RankMetric):
    """Normalized discounted cumulative gain (Järvelin and Kekäläinen 2002).

    The ideal ranking has all expected nodes first, those of one group included.
    """

    name = "retrieval_ndcg"

    def _score(self, ids: Sequence[str], groups: Groups) -> float:
        expected = sum(map(len, groups))
        return _gain(_relevance(ids, groups)) / _gain([1] * min(expected, len(ids)))


class RetrievalMRR(RankMetric):
    """Mean over the groups of one divided by the rank of the group's first node; 0 for a missing group."""

    name = "retrieval_mrr"

    def _score(self, ids: Sequence[str], groups: Groups) -> float:
        firsts = [next((1 / (r + 1) for r, id_ in enumerate(ids) if id_ in group), 0.0) for group in groups]
        return sum(firsts) / len(groups)


class RetrievalMAP(RankMetric):
    """Mean over the groups of the average precision at the group's nodes found; 0 for a missing group."""

    name = "retrieval_map"

    def _score(self, ids: Sequence[str], groups: Groups) -> float:
        return sum(_average_precision(ids, group) for group in groups) / len(groups)


RANK_METRICS = RetrievalRecall, RetrievalPrecision, RetrievalF1, RetrievalNDCG, RetrievalMRR, RetrievalMAP


def _relevance(ids: Sequence[str], groups: Groups) -> list[int]:
    return [int(any(id_ in group for group in groups)) for id_ in ids]


def _gain(relevance: Sequence[int]) -> float:
    return sum(value / math.log2(rank + 2) for rank, value in enumerate(relevance))


def _average_precision(ids: Sequence[str], group: frozenset[str]) -> float:
    ranks = [rank for rank, id_ in enumerate(ids, 1) if id_ in group]
    return sum(found / rank for found, rank in enumerate(ranks, 1)) / len(ranks) if ranks else 0.0

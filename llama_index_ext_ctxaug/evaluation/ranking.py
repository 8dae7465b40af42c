"""Rank metrics on node ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from llama_index_ext_ctxaug.evaluation.extras import load_extra
from llama_index_ext_ctxaug.evaluation.outcome import Metric, Outcome


class IdMetric(Metric):
    """A rank metric on node ids, by ir-measures (extra `eval`).

    One node of each group of `expected_ids` is wanted, as in AutoRAG: the first of a group in the context
    represents the group, and further ones are left out of the ranking. A node of several groups represents
    each of them; apart from that every node counts once.
    """

    measure: ClassVar[str]

    def score(self, outcome: Outcome) -> float | None:
        """Return the measure over the ranking of groups."""
        groups = outcome.question.expected_ids
        if not groups:
            return None
        ranking = _group_ranking(outcome.node_ids, groups)
        return _measure(self.measure, ranking, [_group_name(number) for number in range(len(groups))])


class RetrievalRecall(IdMetric):
    """Share of the groups that have a node in the context."""

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
    """Share of the context's nodes that are expected; a neighbor that completes a hit lowers it."""

    name = "retrieval_precision"

    def score(self, outcome: Outcome) -> float | None:
        """Return the precision over the distinct node ids."""
        expected = [id_ for group in outcome.question.expected_ids for id_ in group]
        return _measure("P", outcome.node_ids, expected) if expected else None


class RetrievalF1(Metric):
    """Harmonic mean of recall by groups and precision by nodes."""

    name = "retrieval_f1"

    def score(self, outcome: Outcome) -> float | None:
        """Return the harmonic mean, 0 if both are 0."""
        recall, precision = RetrievalRecall().score(outcome), RetrievalPrecision().score(outcome)
        if recall is None or precision is None:
            return None
        return 2 * recall * precision / (recall + precision) if recall + precision else 0.0


def _group_name(number: int) -> str:
    return f"group {number}"


def _group_ranking(ids: Sequence[str], groups: Sequence[Sequence[str]]) -> list[str]:
    ranking: dict[str, None] = {}
    for id_ in ids:
        names = [_group_name(number) for number, group in enumerate(groups) if id_ in group]
        ranking.update(dict.fromkeys(names or [f"node {id_}"]))
    return list(ranking)


def _measure(name: str, ranking: Sequence[str], relevant: Sequence[str]) -> float:
    if not ranking:
        return 0.0
    ir_measures = load_extra("ir_measures", "eval")
    measure = getattr(ir_measures, name)
    if name in ("R", "P"):
        measure = measure @ len(ranking)
    run = [ir_measures.ScoredDoc("q", id_, float(-rank)) for rank, id_ in enumerate(ranking)]
    qrels = [ir_measures.Qrel("q", id_, 1) for id_ in dict.fromkeys(relevant)]
    [result] = ir_measures.iter_calc([measure], qrels, run)
    return float(result.value)

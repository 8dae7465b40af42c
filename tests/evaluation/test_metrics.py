"""Metrics, each compared with a value worked out by hand."""

from __future__ import annotations

import math

import pytest
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from llama_index_ext_ctxaug import AutoMergingPostprocessor, ConfigurationError, PrevNextNodePostprocessor
from llama_index_ext_ctxaug.evaluation import (
    AnswerFound,
    Evidence,
    EvidencePrecision,
    EvidenceRecall,
    EvidenceWhole,
    Metric,
    Outcome,
    Question,
    Repeated,
    RetrievalF1,
    RetrievalMAP,
    RetrievalMRR,
    RetrievalNDCG,
    RetrievalPrecision,
    RetrievalRecall,
    default_metrics,
)
from llama_index_ext_ctxaug.evaluation.metrics import check_metrics
from llama_index_ext_ctxaug.testing import docstore_of, hits, linked_document


def node(id_: str, text: str = "", document: str | None = None) -> NodeWithScore:
    """Return a node with this id, text and document."""
    made = TextNode(id_=id_, text=text)
    if document:
        made.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=document)
    return NodeWithScore(node=made)


def outcome(question: Question, *nodes: NodeWithScore) -> Outcome:
    """Return an outcome of these nodes."""
    return Outcome(question, nodes, nodes)


GROUPS = Question("q", "?", (("4", "5"), ("6", "7"), ("8",)))


@pytest.mark.parametrize(
    ("metric", "ids", "value"),
    [
        (RetrievalRecall(), "6xyz", 1 / 3),
        (RetrievalPrecision(), "6xyz", 1 / 4),
        (RetrievalF1(), "6xyz", 2 / 7),
        (RetrievalMRR(), "xy67", (1 / 3) / 3),
        (RetrievalMAP(), "6x8", (1 / 1 + 1 / 3) / 3),
        (
            RetrievalNDCG(),
            "x48",
            (1 / math.log2(3) + 1 / math.log2(4)) / (1 + 1 / math.log2(3) + 1 / math.log2(4)),
        ),
        (RetrievalRecall(), "66", 1 / 3),
        (RetrievalPrecision(), "66x", 1 / 2),
        (RetrievalMAP(), "458", ((1 / 1 + 2 / 2) / 2 + 1 / 3) / 3),
        (RetrievalMAP(), "x4y5", ((1 / 2 + 2 / 4) / 2) / 3),
        (RetrievalNDCG(), "45678xy", 1.0),
        (RetrievalF1(), "xyz", 0.0),
        (RetrievalRecall(), "", 0.0),
    ],
)
def test_id_metrics(metric: Metric, ids: str, value: float) -> None:
    """Rank metrics have AutoRAG's values, each worked out by hand; every node counts once."""
    assert metric.score(outcome(GROUPS, *map(node, ids))) == pytest.approx(value)


@pytest.mark.parametrize("expected", [(), ((),)])
def test_nothing_expected_is_not_counted(expected: tuple) -> None:
    """Without expected ids there is no score, not a zero."""
    for metric in (RetrievalRecall(), RetrievalPrecision(), RetrievalF1(), RetrievalNDCG()):
        assert metric.score(outcome(Question("q", "?", tuple(g for g in expected if g)), node("a"))) is None


def test_ids_in_a_passage_count() -> None:
    """The chunks of a passage are in the context under their own ids."""
    nodes = linked_document(5)
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode="both", output="passages")
    [passage] = augmenter.postprocess_nodes(hits(nodes, [2]))
    question = Question("q", "?", ((nodes[1].node_id,), (nodes[4].node_id,)))
    assert RetrievalRecall().score(outcome(question, passage)) == 1 / 2
    assert RetrievalPrecision().score(outcome(question, passage)) == pytest.approx(1 / 3)


def test_a_node_of_several_groups_counts_for_each() -> None:
    """An expected node of two groups counts for both."""
    question = Question("q", "?", (("a", "x"), ("a", "b"), ("c",)))
    assert RetrievalRecall().score(outcome(question, node("a"))) == pytest.approx(2 / 3)
    assert RetrievalRecall().score(outcome(question, node("b"))) == pytest.approx(1 / 3)
    assert RetrievalMRR().score(outcome(question, node("y"), node("a"))) == pytest.approx((1 / 2 + 1 / 2) / 3)


def test_ids_below_a_parent_count() -> None:
    """Retrieved chunks below a merged parent count as part of the context."""
    leaves = linked_document(3)
    parent = TextNode(id_="parent", text="all of it")
    parent.relationships[NodeRelationship.CHILD] = [leaf.as_related_node_info() for leaf in leaves]
    for leaf in leaves:
        leaf.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id="parent")
    parent.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="doc")
    merger = AutoMergingPostprocessor(docstore=docstore_of(leaves, [parent]))
    merged = merger.postprocess_nodes(hits(leaves, [2, 0]))
    assert [hit.node.node_id for hit in merged] == ["parent"]
    assert outcome(GROUPS, *merged).node_ids == [leaves[2].node_id, leaves[0].node_id]


TEXT = "one two three four five six seven eight nine ten"


@pytest.mark.parametrize(
    ("texts", "recall", "precision", "whole"),
    [
        ([f"zero {TEXT} eleven"], 1, 10 / 12, 1),
        (["One two, three four", "five six seven eight nine ten."], 1, 1, 1),
        (["one two three four five six seven alpha"], 7 / 10, 7 / 8, 0),
        (["one two three four five", "other"], 0, 0, 0),
        ([TEXT, TEXT], 1, 10 / 20, 1),
        ([], 0, 0, 0),
    ],
)
def test_evidence(texts: list[str], recall: float, precision: float, whole: float) -> None:
    """Evidence is found in runs of six words across nodes, and repeating it gains nothing."""
    result = outcome(Question("q", "?", evidence=(Evidence(TEXT),)), *(node(t, t) for t in texts))
    assert EvidenceRecall().score(result) == pytest.approx(recall)
    assert EvidencePrecision().score(result) == pytest.approx(precision)
    assert EvidenceWhole().score(result) == whole


def test_evidence_in_pieces() -> None:
    """Evidence is whole if each of its pieces is; recall covers the words of all pieces."""
    question = Question("q", "?", evidence=(Evidence(TEXT), Evidence("alpha beta gamma delta epsilon zeta")))
    half = outcome(question, node("a", TEXT))
    assert EvidenceRecall().score(half) == pytest.approx(10 / 16)
    assert EvidenceWhole().score(half) == 0
    assert (
        EvidenceWhole().score(outcome(question, node("a", f"Alpha beta gamma delta epsilon zeta {TEXT}")))
        == 1
    )


@pytest.mark.parametrize("evidence", [(), (Evidence("..."),)])
def test_no_evidence_is_not_counted(evidence: tuple) -> None:
    """Without evidence there is no score, neither zero nor one."""
    result = outcome(Question("q", "?", evidence=evidence, answers=("?!",)), node("a", TEXT))
    for metric in (EvidenceRecall(), EvidencePrecision(), EvidenceWhole(), AnswerFound()):
        assert metric.score(result) is None


def test_evidence_of_its_document() -> None:
    """Text of another document is not evidence; a node without a document may hold it."""
    question = Question("q", "?", evidence=(Evidence(TEXT, "right"),))
    assert EvidenceRecall().score(outcome(question, node("a", TEXT, "wrong"))) == 0
    assert EvidenceRecall().score(outcome(question, node("a", TEXT, "right"))) == 1
    assert EvidenceRecall().score(outcome(question, node("a", TEXT))) == 1


@pytest.mark.parametrize(
    ("evidence", "answer", "text", "recall", "precision", "whole", "found", "again"),
    [
        ("今天天气很好我们去", "天气", "昨天下雨。今天天气很好，我", 7 / 9, 7 / 11, 0, 1, 0),
        ("今天天气很好", "明天", "今天天气很好。今天天气很好。", 6 / 6, 6 / 12, 1, 0, 6 / 12),
        ("東京タワーは高い", "タワー", "あの東京タワーは高い。", 8 / 8, 8 / 10, 1, 1, 0),
        ("東京タワーは高い塔", "京都", "東京タワーは赤い塔", 6 / 9, 6 / 9, 0, 0, 0),
        ("서울은 큰 도시다", "도시", "오늘 서울은 큰 도시다!", 7 / 7, 7 / 9, 1, 1, 0),
        ("Größe und Straße der alten Stadt", "straße", "GRÖSSE UND STRASSE der alten Stadt", 1, 1, 1, 1, 0),
    ],
)
def test_languages(
    evidence: str,
    answer: str,
    text: str,
    recall: float,
    precision: float,
    whole: float,
    found: float,
    again: float,
) -> None:
    """In a script without spaces each character counts as a word; case is folded in all others."""
    result = outcome(Question("q", "?", evidence=(Evidence(evidence),), answers=(answer,)), node("a", text))
    assert EvidenceRecall().score(result) == pytest.approx(recall)
    assert EvidencePrecision().score(result) == pytest.approx(precision)
    assert EvidenceWhole().score(result) == whole
    assert AnswerFound().score(result) == found
    assert Repeated().score(result) == pytest.approx(again)


def test_repeated() -> None:
    """Words of a run that occurred before count as repeated."""
    result = outcome(Question("q", "?"), node("a", TEXT), node("b", "eight nine new " + TEXT))
    assert Repeated().score(result) == pytest.approx(10 / 23)
    for count, repeated in (
        (4, 0),
        (7, 0),
        (11, 0),
        (12, 6),
        (13, 7),
    ):  # a run must end before it repeats
        many = outcome(Question("q", "?"), node("a", "word " * count))
        assert Repeated().score(many) == pytest.approx(repeated / count)


@pytest.mark.parametrize(
    ("answers", "value"), [(("Two three",), 1), (("wo thre",), 0), (("x", "ten"), 1), ((), None)]
)
def test_answer_found(answers: tuple[str, ...], value: float | None) -> None:
    """An answer counts if the context contains it word for word."""
    assert AnswerFound().score(outcome(Question("q", "?", answers=answers), node("a", TEXT))) == value


def test_defaults_follow_the_questions() -> None:
    """The default metrics are those that the questions have expectations for."""
    names = {metric.name for metric in default_metrics([Question("q", "?", answers=("x",))])}
    costs = {"repeated", "tokens", "reads", "llm_calls", "seconds"}
    assert names == costs | {"answer_found"}
    mixed = [Question("p", "?"), Question("q", "?", (("a",),), ("x",), (Evidence("y"),)), Question("r", "?")]
    assert {"answer_found", "evidence_recall", "retrieval_recall"} < {
        metric.name for metric in default_metrics(mixed)
    }
    assert {metric.name for metric in default_metrics([Question("p", "?")])} == costs


def test_own_metrics() -> None:
    """A function is a metric under its name; duplicate names and other objects are rejected."""

    def nodes(outcome: Outcome) -> float:
        return len(outcome.nodes)

    [metric] = check_metrics([nodes])
    assert (metric.name, metric.score(outcome(GROUPS, node("a")))) == ("nodes", 1)
    for wrong in ([nodes, nodes], ["recall"], [RetrievalRecall]):
        with pytest.raises(ConfigurationError, match="metrics"):
            check_metrics(wrong)

"""Evaluate, filter and choose passage augmenters as AutoRAG's users expect."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from pyarrow import parquet

from llama_index_ext_ctxaug import (
    EmbeddingRescorePostprocessor,
    MetadataReplacementPostProcessor,
    PrevNextNodePostprocessor,
)
from llama_index_ext_ctxaug.evaluation import (
    BASELINE,
    Outcome,
    Question,
    RetrievalF1,
    RetrievalPrecision,
    RetrievalRecall,
    Tokens,
    choose,
    compare,
    filter_by_threshold,
    mark,
)
from llama_index_ext_ctxaug.evaluation.choice import Candidate
from llama_index_ext_ctxaug.evaluation.cli import ctxaug
from llama_index_ext_ctxaug.testing import WordEmbedding, docstore_of, hits, linked_document

NODES = linked_document(30)


class Fixed(BaseRetriever):
    """A retriever that returns the given hits for each question."""

    def __init__(self, results: dict[str, list[NodeWithScore]]) -> None:
        super().__init__()
        self.results = results

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.results[query_bundle.query_str]


RESULTS = {"a": hits(NODES, [1, 5], [0.8, 0.1]), "b": hits(NODES, [3, 9], [0.2, 0.1])}
ASKED = [Question(text, text, ((NODES[place].node_id,),)) for text, place in (("a", 2), ("b", 4))]


def test_the_pass_module() -> None:
    """The pass-through returns the contents, ids and scores that were retrieved."""
    seen: dict[str, list[NodeWithScore]] = {}

    def keep(outcome: Outcome) -> float:
        seen[outcome.question.id] = list(outcome.nodes)
        return 0.0

    report = compare(Fixed(RESULTS), {}, ASKED, metrics=[keep], top_k=2)
    assert seen == RESULTS
    blocks = [[block.score for block in row.blocks] for row in report.rows if row.system == BASELINE]
    assert blocks == [[0.8, 0.1], [0.2, 0.1]]


def test_two_nodes_for_each_question() -> None:
    """Adding the next chunk and keeping the two nearest by embedding gives falling scores."""
    seen: list[list[NodeWithScore]] = []

    def keep(outcome: Outcome) -> float:
        seen.append(list(outcome.nodes))
        return 0.0

    system = [
        PrevNextNodePostprocessor(docstore=docstore_of(NODES)),
        EmbeddingRescorePostprocessor(embed_model=WordEmbedding(), top_k=2),
    ]
    compare(Fixed(RESULTS), {"next": system}, ASKED, metrics=[keep])
    corpus = {node.node_id: node.text for node in NODES}
    augmented = seen[1::2]  # every other context is the pass-through's
    assert [len(nodes) for nodes in augmented] == [2, 2]
    for nodes in augmented:
        assert all(corpus[hit.node.node_id] == hit.text for hit in nodes)
        scores = [hit.score for hit in nodes]
        assert all(isinstance(score, float) for score in scores)
        assert scores == sorted(scores, reverse=True)


def test_a_run_of_a_file(tmp_path: Path) -> None:
    """A run writes a summary, parameters, times, a best flag, and metrics before and after."""
    docs, out = tmp_path / "docs", tmp_path / "out"
    docs.mkdir()
    paragraphs = [
        f"The keeper{n} of tower{n} lit lantern{n} in year{n} and wrote book{n}." for n in range(20)
    ]
    (docs / "a.txt").write_text("\n\n".join(paragraphs), "utf-8")
    questions = tmp_path / "q.jsonl"
    asked = [
        {"qid": f"q{n}", "query": f"keeper{n}", "retrieval_gt": [[f"a.txt#{n}"], [f"a.txt#{n + 1}"]]}
        for n in range(8)
    ]
    questions.write_text("\n".join(map(json.dumps, asked)), "utf-8")
    config = tmp_path / "c.yaml"
    config.write_text(
        "node_type: passage_augmenter\n"
        "strategy: {metrics: [retrieval_f1, retrieval_recall], strategy: rank, speed_threshold: 5}\n"
        "top_k: 1\n"
        "modules: [{module_type: prev_next_augmenter, num_passages: 1, mode: next}]\n",
        "utf-8",
    )
    arguments = ["compare", "--docs", docs, "--questions", questions, "--config", config, "--out", out]
    arguments += ["--chunk-size", 32, "--chunk-overlap", 0]
    done = CliRunner().invoke(ctxaug, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    with (out / "summary.csv").open(encoding="utf-8") as file:
        before, [row] = (records := list(csv.DictReader(file)))[0], records[1:]
    each = [
        r for r in parquet.read_table(out / "questions.parquet").to_pylist() if r["system"] == row["system"]
    ]
    for metric in ("retrieval_f1", "retrieval_recall"):
        prefixed = [record[f"passage_augmenter_{metric}"] for record in each]
        assert float(row[metric]) == pytest.approx(sum(prefixed) / len(prefixed))
        assert float(before[metric]) == pytest.approx(sum(record[metric] for record in each) / len(each))
    assert len(each) == 8
    assert row["settings"] == "PrevNextNodePostprocessor()"
    assert row["system"] == "prev_next_augmenter num_passages=1 mode=next"
    assert float(row["seconds"]) > 0
    assert (before["is_best"], row["is_best"]) == ("False", "True")
    assert float(before["retrieval_recall"]) < float(row["retrieval_recall"])


def test_windows_and_contents_are_measured_as_sent() -> None:
    """Metrics use the window if the metadata holds one, and the content otherwise."""
    nodes = [
        NodeWithScore(node=TextNode(text="short", metadata={"window": "a longer window"})),
        NodeWithScore(node=TextNode(text="plain")),
    ]
    texts: list[list[str]] = []

    def keep(outcome: Outcome) -> float:
        texts.append([hit.text for hit in outcome.nodes])
        return 0.0

    replacement = MetadataReplacementPostProcessor("window")
    compare(Fixed({"a": nodes}), {"windows": replacement}, ASKED[:1], metrics=[keep])
    assert texts == [["short", "plain"], ["a longer window", "plain"]]


def test_the_speed_filter() -> None:
    """A limit of 3 keeps the items with values 1 to 3, and their labels."""
    items = [("m1", "one"), ("m2", "two"), ("m3", "three"), ("m4", "four")]
    assert filter_by_threshold(items, [1, 2, 3, 4], 3) == (items[:3], True)


@pytest.mark.parametrize("strategy", ["mean", "rank", "normalize_mean"])
def test_the_strategies(strategy: str) -> None:
    """Of three results with rising means, the third wins under every strategy."""
    means = {f"m{n}": {"f1": n / 10, "recall": n / 5} for n in (1, 2, 3)}
    marks = mark(means, strategy)
    assert max(marks, key=marks.__getitem__) == "m3"
    candidates = [
        Candidate(name, {m: {str(q): value for q in range(8)} for m, value in scores.items()}, 100 * place, 1)
        for place, (name, scores) in enumerate(means.items())
    ]
    assert choose(candidates, "m1", strategy=strategy).winner == "m3"


def test_groups_of_ground_truth() -> None:
    """Ground truth [[4,5],[6,7],[8]] and the result 6,x,y,z give recall 1/3, precision 1/4 and F1 2/7."""
    question = Question("q", "?", (("4", "5"), ("6", "7"), ("8",)))
    result = Outcome(question, [], [NodeWithScore(node=TextNode(id_=id_, text="")) for id_ in "6xyz"])
    assert RetrievalRecall().score(result) == pytest.approx(1 / 3)
    assert RetrievalPrecision().score(result) == 0.25
    assert RetrievalF1().score(result) == pytest.approx(2 / 7)


def test_no_ground_truth() -> None:
    """A question without expected ids has no score and is not part of the mean."""
    asked = [ASKED[0], Question("b", "b")]
    store = docstore_of(NODES)
    report = compare(
        Fixed(RESULTS),
        {"next": PrevNextNodePostprocessor(docstore=store)},
        asked,
        metrics=[RetrievalRecall(), Tokens()],
    )
    scores = [row.scores["retrieval_recall"] for row in report.rows if row.system == "next"]
    assert scores == [1.0, None]
    assert next(r for r in report.summary() if r["system"] == "next")["retrieval_recall"] == 1.0

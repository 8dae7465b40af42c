"""Comparison: runs, counts, failures and interruptions."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle

from llama_index_ext_ctxaug import BRSRPostprocessor, ConfigurationError, PrevNextNodePostprocessor
from llama_index_ext_ctxaug.evaluation import (
    BASELINE,
    Evidence,
    EvidenceRecall,
    FunctionMetric,
    Outcome,
    Question,
    Report,
    Tokens,
    acompare,
    compare,
)
from llama_index_ext_ctxaug.evaluation.systems import make_systems
from llama_index_ext_ctxaug.testing import ScriptedLLM, docstore_of, linked_document

TEXTS = [f"alpha{n} beta{n} gamma{n} delta{n} epsilon{n} zeta{n} eta{n} theta{n}. " for n in range(30)]
NODES = linked_document(TEXTS, offsets=True)
STORE = docstore_of(NODES)


class ByNumber(BaseRetriever):
    """Return the named chunk and those ten and twenty chunks later; record the calls."""

    def __init__(self, nodes: Sequence[BaseNode] = NODES) -> None:
        super().__init__()
        self.nodes = nodes
        self.calls: list[str] = []

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.calls.append(query_bundle.query_str)
        place = int(query_bundle.query_str)
        size = len(self.nodes)
        return [
            NodeWithScore(node=self.nodes[(place + step) % size], score=1 - step / 100)
            for step in (0, 10, 20)
        ]


class Broken(BaseNodePostprocessor):
    """Fails at one question."""

    at: str = "1"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        assert query_bundle
        if query_bundle.query_str == self.at:
            raise OSError("no more memory")
        return nodes


class Asking(BaseNodePostprocessor):
    """Asks a model twice."""

    llm: Any = None

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        from llama_index.core.prompts import PromptTemplate

        for _ in range(2):
            self.llm.predict(PromptTemplate("Is it so?"))
        return nodes


def questions(count: int = 8) -> list[Question]:
    """Return questions with the named chunk and the next one as evidence."""
    return [
        Question(str(n), str(n), evidence=(Evidence(TEXTS[n] + TEXTS[n + 1], "doc"),)) for n in range(count)
    ]


def following() -> PrevNextNodePostprocessor:
    """Return an augmenter that adds the next chunk."""
    return PrevNextNodePostprocessor(docstore=STORE, num_nodes=1)


def rows(report: Report, system: str, budget: int | None = None) -> list[dict[str, float | None]]:
    """Return the scores of a system."""
    return [row.scores for row in report.rows if row.system == system and row.budget == budget]


def test_retrieval_runs_once_for_all() -> None:
    """Each question is retrieved once, the baseline takes part, and the better system is chosen."""
    retriever = ByNumber()
    report = compare(retriever, {"next": following()}, questions())
    assert sorted(retriever.calls) == [str(n) for n in range(8)]
    assert [scores["evidence_recall"] for scores in rows(report, BASELINE)] == [0.5] * 8
    assert [scores["evidence_recall"] for scores in rows(report, "next")] == [1.0] * 8
    assert report.choice.winner == "next"
    assert [type(p) for p in report.best] == [PrevNextNodePostprocessor]


def test_reads_and_calls_are_counted() -> None:
    """Docstore reads and LLM calls are counted for each system, with concurrent questions too."""
    asking = Asking(llm=ScriptedLLM(answers=["yes"]))
    report = compare(ByNumber(), {"next": following(), "asking": asking}, questions(), max_concurrency=4)
    assert {scores["reads"] for scores in rows(report, "next")} == {3}
    assert {scores["llm_calls"] for scores in rows(report, "next")} == {0}
    assert {scores["llm_calls"] for scores in rows(report, "asking")} == {2}
    assert {scores["reads"] for scores in rows(report, "asking")} == {None}


def test_equal_tokens() -> None:
    """No system exceeds a budget, and the pass-through may fill it with all hits."""
    report = compare(ByNumber(), {"next": following()}, questions(), budgets=[60], top_k=1)
    assert len(report.rows) == 8 * 4
    free, bound = (rows(report, BASELINE, budget) for budget in (None, 60))
    assert all(a["tokens"] < b["tokens"] <= 60 for a, b in zip(free, bound, strict=True))
    assert all(scores["tokens"] <= 60 for scores in rows(report, "next", 60))
    assert report.choose(budget=60).winner in (BASELINE, "next")
    assert report.best[-1].token_budget == 60


def test_hits_by_system() -> None:
    """A system that the mapping of hits does not name gets all hits."""
    report = compare(ByNumber(), {"next": following()}, questions(), top_k={BASELINE: 2}, metrics=[nodes_out])
    assert [scores["nodes_out"] for scores in rows(report, BASELINE)] == [2] * 8
    assert [scores["nodes_out"] for scores in rows(report, "next")] == [6] * 8


def nodes_out(outcome: Outcome) -> float:
    """Return the number of nodes in the context."""
    return len(outcome.nodes)


def test_within_a_budget_only_the_baseline_gets_all_hits() -> None:
    """With room left, the pass-through uses all hits and the others expand their own."""
    report = compare(
        ByNumber(), {"next": following()}, questions(2), budgets=[900, 900], top_k=1, metrics=[nodes_out]
    )
    assert [scores["nodes_out"] for scores in rows(report, BASELINE, 900)] == [3, 3]
    assert [scores["nodes_out"] for scores in rows(report, "next", 900)] == [2, 2]
    assert [bool(row.blocks) for row in report.rows if row.question_id == "0"] == [True, True, False, False]


def test_thresholds_without_their_metrics() -> None:
    """Seconds and tokens are measured for the thresholds, whatever metrics are named."""
    report = compare(ByNumber(), {"next": following()}, questions(), metrics=[EvidenceRecall()])
    assert report.choose().winner == "next"
    assert all(row.tokens and row.seconds is not None for row in report.rows)
    longest = max(row.tokens or 0 for row in report.rows if row.system == BASELINE)
    assert report.choose(token_threshold=longest).winner == BASELINE
    assert f"Over {longest} tokens, so left out: next." in str(report.choice)
    assert "so all stay" in str(report.choose(speed_threshold=-1.0))


def test_each_budget_has_a_choice() -> None:
    """The report names a best system without a limit and within each budget, by the same rules."""
    report = compare(ByNumber(), {"next": following()}, questions(), budgets=[60, 90], top_k=1)
    report.choose(strategy="rank", budget=90)
    best = {r["budget"]: r["system"] for r in report.summary() if r["is_best"]}
    assert best == {budget: report.choice_within(budget).winner for budget in (None, 60, 90)}
    assert report.choice == report.choice_within(90)
    for text in (str(report), report.to_markdown(), report.to_html()):
        titles = ("Without a limit, 8 questions", "Within 60 tokens, 8", "Within 90 tokens, 8")
        assert all(title in text for title in titles)
    with pytest.raises(ConfigurationError, match="budget 5 was not run"):
        report.choose(budget=5)
    assert report.choice == report.choice_within(90)


def test_a_budget_is_spent_by_the_last_step() -> None:
    """A postprocessor with its own budget gets the comparison's, so its output is not cut afterwards."""
    brsr = BRSRPostprocessor(docstore=STORE, reranker=Broken(at=""), max_context_tokens="llm")
    [_, system] = make_systems({"brsr": brsr})
    own, cap = system.within(40)
    assert (own.max_context_tokens, cap.token_budget) == (40, 40)
    assert brsr.max_context_tokens == "llm"


def test_a_smaller_budget_of_its_own_holds() -> None:
    """A system with a smaller budget than the comparison keeps its own."""
    short = PrevNextNodePostprocessor(docstore=STORE, num_nodes=1, token_budget=1)
    report = compare(ByNumber(), {"short": short}, questions(1), budgets=[900], metrics=[nodes_out])
    assert rows(report, "short", 900) == [{"nodes_out": 1.0}]


class Clearing(BaseNodePostprocessor):
    """Empties the list that it is given."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        nodes.clear()
        return nodes


def test_a_system_cannot_take_hits_from_the_record() -> None:
    """A system that changes its list affects neither the recorded hits nor those of later systems."""

    def retrieved(outcome: Outcome) -> float:
        return len(outcome.hits)

    systems = {"clearing": Clearing(), "next": following()}
    report = compare(ByNumber(), systems, questions(1), metrics=[retrieved, nodes_out])
    assert rows(report, "clearing") == [{"retrieved": 3.0, "nodes_out": 0.0}]
    assert rows(report, "next") == [{"retrieved": 3.0, "nodes_out": 6.0}]


def test_the_baseline_reads_nothing() -> None:
    """The pass-through reads nothing, and the report shows it."""
    assert {scores["reads"] for scores in rows(compare(ByNumber(), {}, questions(1)), BASELINE)} == {0}


def test_a_metric_that_lacks_its_package_ends_the_run() -> None:
    """A configuration error is raised at the first question, not recorded for each."""

    def unusable(outcome: Outcome) -> float:
        raise ConfigurationError("install it")

    with pytest.raises(ConfigurationError, match="install it"):
        compare(ByNumber(), {}, questions(2), metrics=[unusable])


def test_order_of_questions_changes_nothing() -> None:
    """The same questions in another order give the same rows and choice."""
    metrics = [EvidenceRecall(), Tokens()]
    one = compare(ByNumber(), {"next": following()}, questions(), metrics=metrics)
    other = compare(ByNumber(), {"next": following()}, questions()[::-1], metrics=metrics, max_concurrency=3)
    assert one.rows == other.rows
    assert one.to_markdown() == other.to_markdown()


def test_failures_are_records() -> None:
    """A failing retrieval, system or metric and a NaN are reported, and everything else is measured."""

    def sometimes(outcome: Any) -> float:
        if outcome.question.id == "2":
            raise KeyError("what")
        return math.nan if outcome.question.id == "3" else 1.0

    asked = [*questions(), Question("x", "not a number", evidence=(Evidence("a"),))]
    metrics = [EvidenceRecall(), FunctionMetric("sometimes", sometimes)]
    report = compare(ByNumber(), {"broken": Broken()}, asked, metrics=metrics)
    text = "\n".join(report.problems)
    assert "question 'x', pass-through: retrieval failed: ValueError" in text
    assert "question '1', broken: failed: OSError('no more memory')" in text
    assert "question '2', broken: metric 'sometimes' failed: KeyError('what')" in text
    assert "question '3', pass-through: metric 'sometimes' gave nan" in text
    broken = next(record for record in report.summary() if record["system"] == "broken")
    assert (broken["failed"], broken["sometimes"], broken["evidence_recall"]) == (4, 1.0, 0.5)


class Stop(BaseException):
    """An interruption."""


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    """Saved questions are not run again, a half-written one is, and the report equals that of a full run."""
    path = tmp_path / "rows.jsonl"
    metrics = [EvidenceRecall(), Tokens()]

    def stop(outcome: Any) -> float:
        if outcome.question.id == "5":
            raise Stop
        return 1.0

    interrupted = [EvidenceRecall(), FunctionMetric("tokens", stop)]
    with pytest.raises(Stop):
        compare(ByNumber(), {"next": following()}, questions(), metrics=interrupted, save_to=path)
    whole_lines = path.read_bytes()
    saved = (whole_lines.count(b"\n") - 1) // 2
    assert 5 <= saved < 8
    path.write_bytes(whole_lines + b'\n{"key": "half')
    retriever = ByNumber()
    report = compare(retriever, {"next": following()}, questions(), metrics=metrics, save_to=path)
    assert "5" in retriever.calls
    assert len(retriever.calls) == 8 - saved
    assert len(report.rows) == 16
    again = compare(ByNumber(), {"next": following()}, questions(), metrics=metrics, save_to=path)
    assert again.rows == report.rows


def test_what_failed_or_lacks_a_system_is_run_again(tmp_path: Path) -> None:
    """A question at which a system failed or lacks a row is run again."""
    path = tmp_path / "rows.jsonl"
    compare(ByNumber(), {"broken": Broken()}, questions(4), save_to=path, metrics=[nodes_out])
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-1]), "utf-8")
    retriever = ByNumber()
    report = compare(retriever, {"broken": Broken()}, questions(4), save_to=path, metrics=[nodes_out])
    last = json.loads(lines[-1])["question_id"]
    assert sorted(retriever.calls) == sorted({"1", last})
    assert [row.question_id for row in report.rows] == [id_ for id_ in "0123" for _ in range(2)]


def test_moving_a_question_in_its_file_is_no_change(tmp_path: Path) -> None:
    """A question that moved to another line is not run again."""
    path = tmp_path / "rows.jsonl"
    compare(ByNumber(), {}, [replace(one, line=1) for one in questions(2)], save_to=path)
    retriever = ByNumber()
    compare(retriever, {}, [replace(one, line=7) for one in questions(2)], save_to=path)
    assert retriever.calls == []


def test_a_changed_question_is_run_again(tmp_path: Path) -> None:
    """Saved rows count only if the question is unchanged."""
    path = tmp_path / "rows.jsonl"
    compare(ByNumber(), {}, questions(3), save_to=path)
    changed = [*questions(2), Question("2", "2", evidence=(Evidence(TEXTS[2], "doc"),))]
    retriever = ByNumber()
    report = compare(retriever, {}, changed, save_to=path)
    assert retriever.calls == ["2"]
    assert [scores["evidence_recall"] for scores in rows(report, BASELINE)] == [0.5, 0.5, 1.0]


def test_a_run_of_other_systems_is_not_mixed_in(tmp_path: Path) -> None:
    """A saved run of other systems, or a file of another kind, is rejected with the remedy."""
    path = tmp_path / "rows.jsonl"
    compare(ByNumber(), {"next": following()}, questions(1), save_to=path)
    other = PrevNextNodePostprocessor(docstore=STORE, num_nodes=2)
    with pytest.raises(ConfigurationError, match="other systems or settings; delete it"):
        compare(ByNumber(), {"next": other}, questions(1), save_to=path)
    header = path.read_text("utf-8").split("\n")[1]
    for text in ("hello\n", "5", "[]", f"{header}\n5\n", f'{header}\n{{"key": "x"}}\n'):
        path.write_text(text, "utf-8")
        with pytest.raises(ConfigurationError, match="is not a saved run"):
            compare(ByNumber(), {"next": other}, questions(1), save_to=path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"questions": []}, "questions: there are none"),
        ({"questions": [Question("a", "1"), Question("a", "2")]}, "ids must differ"),
        ({"augmenters": {BASELINE: following()}}, "'pass-through' cannot be a name"),
        ({"augmenters": {"x": ["y"]}}, "is not a BaseNodePostprocessor"),
        ({"max_concurrency": 0}, "max_concurrency must be at least 1"),
        ({"budgets": [0]}, "budgets must be at least 1"),
        ({"top_k": -1}, "top_k must be at least 1"),
        ({"metrics": ["x"]}, "neither a Metric"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    """An invalid argument is named in the error."""
    arguments = {"retriever": ByNumber(), "augmenters": {"next": following()}, "questions": questions(1)}
    with pytest.raises(ConfigurationError, match=message):
        compare(**{**arguments, **change})


async def test_inside_an_event_loop() -> None:
    """`acompare` leaves the loop free and limits the number of concurrent questions."""
    running = most = 0

    class Slow(ByNumber):
        async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            return self._retrieve(query_bundle)

    await acompare(Slow(), {}, questions(), max_concurrency=3)
    assert most == 3
    most = 0
    await acompare(Slow(), {}, questions(3))
    assert most == 1


def test_budgets_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Hits that a budget leaves out are not logged during a comparison."""
    compare(ByNumber(), {}, questions(2), budgets=[20])
    assert not caplog.records

"""The report: tables, files, the page, the context map, and hostile documents."""

from __future__ import annotations

import csv
import html
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.node_parser import HierarchicalNodeParser, get_leaf_nodes
from llama_index.core.schema import NodeWithScore, TextNode
from pyarrow import parquet
from test_compare import ByNumber, following, questions

from llama_index_ext_ctxaug import AutoMergingPostprocessor, ConfigurationError, PrevNextNodePostprocessor
from llama_index_ext_ctxaug.evaluation import (
    BASELINE,
    Choice,
    ContextMap,
    Evidence,
    EvidenceRecall,
    Outcome,
    Question,
    Report,
    RetrievalRecall,
    Tokens,
    choose,
    compare,
    explain,
)
from llama_index_ext_ctxaug.evaluation.context_blocks import blocks_of
from llama_index_ext_ctxaug.evaluation.escaping import for_cell, for_terminal
from llama_index_ext_ctxaug.evaluation.tables import Table, to_text
from llama_index_ext_ctxaug.testing import docstore_of, hits, linked_document

ESCAPE = "\x1b[2J\x1b]0;owned\x07"
TURN = "\u202egnp.exe\u2066"
HARM = [
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "</pre></bdi></details><script>alert(2)</script>",
    "]]><!-- <style>*{display:none}</style>",
    '" onmouseover="alert(3)',
    ESCAPE,
    TURN,
    "=HYPERLINK(1)",
    "x" * 1_000_000,
    "\ud800 half a character",
]


class Tags(HTMLParser):
    """Collects the tags and attributes of a page, and checks that they are closed."""

    void = frozenset({"meta", "br", "rect", "line", "circle", "polygon", "polyline"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that is closed at once."""
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        """Close the innermost tag."""
        assert self.open.pop() == tag


def assert_harmless(page: str) -> None:
    """Check that a page runs and loads nothing."""
    tags = Tags(page)
    assert not tags.open
    assert not tags.tags & {"script", "img", "iframe", "object", "link", "base", "form", "a:"}
    assert not {name for name in tags.attributes if name.startswith("on") or name in ("src", "action")}
    assert "default-src 'none'" in page
    assert not {character for character in page if ord(character) < 32} - {"\n", "\t"}
    page.encode("utf-8")


@pytest.fixture(scope="module")
def harmful() -> Report:
    """Return a report on hostile documents, questions and names."""
    nodes = linked_document(HARM, source_id="<b>doc", metadata={"file_name": f"<i>{ESCAPE}.txt"})
    asked = [
        Question(f"={n}<b>", str(n), evidence=(Evidence(HARM[0] + HARM[1]),)) for n in range(len(HARM) - 3)
    ]
    asked.append(Question(f"@{ESCAPE}", f"|<script>{TURN}", evidence=(Evidence("x"),)))
    asked.append(Question("half", "8", evidence=(Evidence(HARM[-1] * 3),), answers=("\ud800",)))
    asked.append(Question("\udc00", "\ud800 half", evidence=(Evidence("x"),)))
    name = "=cmd|' /C calc'!A0 <script>"
    return compare(ByNumber(nodes), {name: PrevNextNodePostprocessor(docstore=docstore_of(nodes))}, asked)


def test_harmful_documents_stay_in_the_page(harmful: Report) -> None:
    """Scripts, closing tags, quotes and control characters are text, and a line of a million is cut."""
    page = harmful.to_html()
    assert_harmless(page)
    assert html.escape(HARM[0]) in page
    assert len(page) < 500_000
    assert_harmless(explain(harmful_hits()).to_html())


def harmful_hits() -> list[NodeWithScore]:
    """Return hits with hostile texts and metadata."""
    return [
        NodeWithScore(
            node=TextNode(text=text, metadata={"title": text[:200], "context_augmentation": text[:9]})
        )
        for text in HARM
    ]


def test_harmful_documents_stay_in_the_terminal(harmful: Report) -> None:
    """No control character and no change of reading direction reaches the terminal."""
    for text in (str(harmful), str(explain(harmful_hits())), harmful.to_markdown()):
        for character in ("\x1b", "\x07", "\u202e", "\u2066", "\ud800", "\r"):
            assert character not in text
    assert "<script>" not in harmful.to_markdown().replace("\\<", "")
    assert len(for_terminal("x" * 1000)) == 200


def test_no_formulas_in_csv(harmful: Report, tmp_path: Path) -> None:
    """No text cell starts like a formula, and files have one record per row."""
    harmful.save(tmp_path)
    for name, records in (("summary", harmful.summary()), ("questions", harmful.questions())):
        with (tmp_path / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            read = list(csv.reader(file))
        assert len(read) == len(records) + 1
        assert not [cell for row in read for cell in row if cell.startswith(("=", "@", "+", "\t"))]
        assert parquet.read_table(tmp_path / f"{name}.parquet").num_rows == len(records)


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", "\t=1", " =1", "＝1", "\r=1"])
def test_formula_cells(text: str) -> None:
    """Text that a spreadsheet would evaluate starts with an apostrophe; numbers stay numbers."""
    assert str(for_cell(text)).startswith("'")
    assert for_cell(-1.5) == -1.5
    assert for_cell("a=1") == "a=1"


def test_summary_is_the_mean_of_the_rows() -> None:
    """A summary figure is the mean over the questions that have one."""
    asked = [*questions(7), Question("7", "7")]
    report = compare(ByNumber(), {"next": following()}, asked)
    for record in report.summary():
        scores = [row.scores["evidence_recall"] for row in report.rows if row.system == record["system"]]
        known = [score for score in scores if score is not None]
        assert len(known) == 7
        assert record["evidence_recall"] == pytest.approx(sum(known) / 7)


def test_page_of_a_comparison() -> None:
    """The page has the table, the charts, wins and losses, and a map for each question."""
    report = compare(ByNumber(), {"next": following()}, questions(), budgets=[60])
    page = report.to_html()
    assert_harmless(page)
    assert "next: 8 better, 0 worse, 0 equal" in page
    assert page.count('<details class="question"') == 8
    assert page.count('<svg class="strip"') == 8
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    assert report.differences("next") == {str(n): 0.5 for n in range(8)}
    assert report._repr_html_().startswith('<iframe sandbox=""')


def test_map_shows_roles_and_reasons(tmp_path: Path) -> None:
    """The map shows each document's hits and neighbors, with letters, and why expansion ended."""
    nodes = linked_document(6, offsets=True)
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode="both", output="passages")
    context = explain(augmenter.postprocess_nodes(hits(nodes, [0])), "mine")
    path = context.save(tmp_path / "context.html")
    page = path.read_text("utf-8")
    assert 'aria-label="mine: 1 hit, 1 neighbor"' in page
    assert ">H</text>" in page
    assert "expansion before it ended: the document ends here" in page
    assert "expansion after it ended: the wanted number was reached" in page
    assert "[neighbor, doc, characters" in str(context)
    assert "srcdoc=" in context._repr_html_()


def test_map_of_merged_parents() -> None:
    """A merged parent has a role of its own, and its chunks count as in the context."""
    text = " ".join(f"Sentence {number} tells of the harbor." for number in range(60))
    nodes = HierarchicalNodeParser.from_defaults([128, 32], chunk_overlap=0).get_nodes_from_documents(
        [Document(text=text)]
    )
    leaves = get_leaf_nodes(nodes)
    merging = AutoMergingPostprocessor(docstore=docstore_of(nodes))
    first = [leaf for leaf in leaves if leaf.parent_node == leaves[0].parent_node]
    merged = merging.postprocess_nodes([NodeWithScore(node=leaf, score=0.5) for leaf in first])
    context = ContextMap({"hits": blocks_of(hits(first, [0])), "merged": blocks_of(merged)})
    page = context.to_html()
    assert_harmless(page)
    assert 'aria-label="hits: 1 hit; merged: 1 parent"' in page
    assert ">P</text>" in page
    question = Question("q", "?", tuple((leaf.node_id,) for leaf in first))
    assert RetrievalRecall().score(Outcome(question, [], merged)) == 1


def test_map_of_nothing_and_of_unknown_places() -> None:
    """An empty context, and nodes without a document or offsets, have a map."""
    assert "Nothing went to the model" in explain([]).to_html()
    page = explain([NodeWithScore(node=TextNode(text="alone"))]).to_html()
    assert "no document" in page


def test_choose_refuses_what_was_not_run() -> None:
    """An unknown metric or budget is an error that lists the known ones."""
    report = compare(ByNumber(), {"next": following()}, questions(2))
    with pytest.raises(ConfigurationError, match=r"\['recall'\] were not measured.*evidence_recall"):
        report.choose(["recall"])
    with pytest.raises(ConfigurationError, match=r"budget 5 was not run"):
        report.choose(budget=5)


def test_each_choice_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables, page and best system share one choice per budget, until `choose` sets other rules."""
    report = compare(ByNumber(), {"next": following()}, questions(), budgets=[60, 90])
    made: list[bool] = []

    def counted(*args: Any, **kwargs: Any) -> Choice:
        made.append(kwargs["weigh_tokens"])
        return choose(*args, **kwargs)

    monkeypatch.setattr("llama_index_ext_ctxaug.evaluation.report.choose", counted)
    for _ in range(2):
        report.to_html(), report.to_markdown(), str(report), report.best
    assert sorted(made) == [False, False, True]
    report.choose(["tokens"], budget=60)
    assert (report.choice.winner, report.choice_within(90).winner) == (BASELINE, BASELINE)
    assert len(made) == 5


def test_nothing_to_measure_by() -> None:
    """Questions that expect nothing give a report of costs, which states that there is no choice."""
    report = compare(ByNumber(), {"next": following()}, [Question("1", "1")])
    assert "No choice: " in str(report)
    assert BASELINE in str(report)
    assert_harmless(report.to_html())


def test_saving_without_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without pyarrow everything else is written, and a line names each omitted file."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    page = compare(ByNumber(), {"next": following()}, questions(2)).save(tmp_path)
    assert "<h1>Comparison of augmenters</h1>" in page.read_text("utf-8")
    names = {"report.html", "report.md", "summary.csv", "questions.csv"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert [record.message.split(" cannot")[0] for record in caplog.records] == [
        f"{name}.parquet is left out: pyarrow" for name in ("summary", "questions")
    ]


def test_important_columns_come_first() -> None:
    """The metrics of the choice, tokens and seconds come first; settings are outside of the table."""
    report = compare(ByNumber(), {"next": following()}, questions(), budgets=[60])
    report.choose(["evidence_whole"])
    for section in report.sections():
        assert list(section.table.columns[:4]) == ["system", "evidence whole", "tokens", "seconds"]
        assert "settings" not in section.table.columns
        assert [row[0] for row in section.table.rows] == [BASELINE, "next"]
        assert section.choice
        assert section.table.best is not None
        assert section.table.rows[section.table.best][0] == section.choice.winner
    page = report.to_html()
    assert "<b>next</b>: PrevNextNodePostprocessor()" in page
    assert page.count("A row for your notes") == 2


def test_a_row_for_notes() -> None:
    """The note is one row of a Markdown table: questions, winner, figures, and the interval."""
    report = compare(ByNumber(), {"next": following()}, questions(), metrics=[EvidenceRecall(), Tokens()])
    [section] = report.sections()
    cells = [cell.strip() for cell in section.note.strip("|").split("|")]
    assert cells[:3] == ["Without a limit, 8 questions", "next", "evidence recall 1"]
    assert cells[4].startswith("against pass-through +0.500 (95% interval +0.500 to +0.500, 8 questions)")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "", "–"),
        (0.0, "", "0"),
        (1.0, "", "1"),
        (0.92549, "", "0.925"),
        (2.1111, "", "2.11"),
        (16.24, "", "16.2"),
        (988.1, "", "988"),
        (0.00004, "", "4e-05"),
        (0.00042, "s", "0.42 ms"),
        (0.0123, "s", "12 ms"),
        (2.34, "s", "2.3 s"),
    ],
)
def test_numbers_for_a_reader(value: float | None, unit: str, text: str) -> None:
    """Numbers have two or three digits, and seconds their unit."""
    assert to_text(value, unit) == text


def test_the_terminal_breaks_headings_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a narrow terminal headings wrap between words, and no cell is cut."""
    monkeypatch.setenv("COLUMNS", "40")
    table = Table(["system", "evidence precision"], [["a long name of a system", "0.123"], ["b", "988"]])
    assert [line.split() for line in table.to_terminal().splitlines() if "─" not in line] == [
        ["evidence"],
        ["system", "precision"],
        ["a", "long", "name", "of", "a", "system", "0.123"],
        ["b", "988"],
    ]


def test_the_question_is_on_the_map() -> None:
    """A map shows the question, and labels keep their size on a narrow page."""
    nodes = hits(linked_document(2), [0])
    context = explain(nodes, question="Why <b>?")
    page = context.to_html()
    assert_harmless(page)
    assert "Why &lt;b&gt;?" in page
    assert str(context).startswith("Question: Why <b>?")
    assert '<svg class="strip" height=' in page
    assert "viewBox" not in page.split('<svg class="strip"')[1].split(">")[0]

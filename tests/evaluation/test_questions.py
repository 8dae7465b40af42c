"""Questions: each kind of file, and invalid lines."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation import Evidence, Question, check_questions, load_questions


def test_jsonl(tmp_path: Path) -> None:
    """Each line of a JSONL file is a question with ids, evidence and answers."""
    path = tmp_path / "q.jsonl"
    path.write_text(
        '{"id": "a", "question": "Why?", "expected_ids": ["n1", ["n2", "n3"]], "answers": "because"}\n\n'
        '{"question": "Where?", "doc_id": "d", "evidence": ["here", {"start": 3, "end": 6}]}\n',
        encoding="utf-8",
    )
    assert load_questions(path, documents={"d": "I am there"}) == [
        Question("a", "Why?", (("n1",), ("n2", "n3")), answers=("because",)),
        Question("3", "Where?", evidence=(Evidence("here", "d"), Evidence("m t", "d", 3, 6))),
    ]


def test_csv(tmp_path: Path) -> None:
    """A CSV field holds one value or a JSON list; a question's line is that of the file."""
    path = tmp_path / "q.csv"
    path.write_text('id,question,evidence,answers\n1,"Why\nso?",it is,"[""x"", ""y""]"\n2,How?,,\n', "utf-8")
    first, second = load_questions(path)
    assert first == Question("1", "Why\nso?", evidence=(Evidence("it is"),), answers=("x", "y"))
    assert (first.line, second.line) == (2, 4)


def test_autorag_parquet(tmp_path: Path) -> None:
    """AutoRAG's qa.parquet is read with its groups of ids and its answers."""
    path = tmp_path / "qa.parquet"
    table = {
        "qid": ["q"],
        "query": ["Why?"],
        "retrieval_gt": [[["4", "5"], ["6"]]],
        "generation_gt": [["so"]],
    }
    parquet.write_table(pa.table(table), path)
    assert load_questions(path) == [Question("q", "Why?", (("4", "5"), ("6",)), answers=("so",))]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: is not JSON"),
        ("[1]", "line 2: must be an object"),
        ('{"id": 1}', "line 2: has no question"),
        ('{"question": " "}', "line 2: has no question"),
        ('{"id": 1, "question": "b"}', "line 2: the id '1' is that of line 1 too"),
        ('{"question": "b", "evidence": [{"start": 1}]}', "line 2: evidence needs a text"),
        ('{"question": "b", "evidence": [5]}', "line 2: evidence must be"),
        ('{"question": "b", "evidence": [{"start": 0, "end": 1, "document": "x"}]}', "'x' is not among"),
        ("\udcff", "line 2: is not JSON in UTF-8"),
    ],
)
def test_bad_lines(tmp_path: Path, line: str, message: str) -> None:
    """An invalid line is named; if problems are collected, the other lines are read."""
    path = tmp_path / "q.jsonl"
    text = f'{{"id": 1, "question": "a"}}\n{line}\n{{"question": "c"}}\n'
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigurationError, match="line 2"):
        load_questions(path)
    problems: list[str] = []
    assert [q.text for q in load_questions(path, problems=problems)] == ["a", "c"]
    assert len(problems) == 1
    assert message in problems[0]


@pytest.mark.parametrize("name", ["empty.jsonl", "empty.csv", "absent.jsonl", "questions.docx", "no.parquet"])
def test_unusable_files(tmp_path: Path, name: str) -> None:
    """An empty, missing or unsupported file is named in the message."""
    if not name.startswith("absent"):
        (tmp_path / name).write_text("", "utf-8")
    with pytest.raises(ConfigurationError, match=name):
        load_questions(tmp_path / name, problems=[])


def test_what_is_not_there() -> None:
    """A document or id that does not exist is named with its question and line."""
    questions = [
        Question("a", "Why?", evidence=(Evidence("x", "gone.txt"),), line=7),
        Question("b", "How?", (("n1", "n2"),)),
        Question("c", "Who?", (("n1",),), (Evidence("x", "there"),)),
    ]
    first, second = check_questions(questions, documents={"there"}, node_ids={"n1"})
    assert "line 7" in first
    assert "'gone.txt'" in first
    assert "'n2'" in second


def test_ragas_csv(tmp_path: Path) -> None:
    """A CSV of ragas, with lists as pandas writes them, gives question, evidence and reference answer."""
    path = tmp_path / "q.csv"
    path.write_text(
        "user_input,reference_contexts,reference,response\n"
        'Why?,"[\'It\\\'s so.\', ""because""]",So.,A system said this.\n'
        'How?,"[""one""]",,\n',
        "utf-8",
    )
    assert load_questions(path) == [
        Question("2", "Why?", evidence=(Evidence("It's so."), Evidence("because")), answers=("So.",)),
        Question("3", "How?", evidence=(Evidence("one"),)),
    ]


@pytest.mark.parametrize(
    "answers",
    [
        '{"text": ["1901", "in 1901"], "answer_start": [3, 0]}',
        '[{"text": "1901", "answer_start": 3}, {"text": "in 1901", "answer_start": 0}]',
        "\"{'text': ['1901', 'in 1901'], 'answer_start': [3, 0]}\"",
    ],
)
def test_squad_answers(tmp_path: Path, answers: str) -> None:
    """SQuAD's answers are read as an object with several texts, as several objects, and from a CSV's text."""
    path = tmp_path / "q.jsonl"
    path.write_text(
        f'{{"id": "5", "title": "x", "context": "...", "question": "When?", "answers": {answers}}}'
    )
    assert load_questions(path) == [Question("5", "When?", answers=("1901", "in 1901"))]


def test_answers_that_cannot_be_read(tmp_path: Path) -> None:
    """An object of answers in an unknown format is rejected, not taken for an answer."""
    path = tmp_path / "q.csv"
    path.write_text("question,answers\nWhen?,\"{'text': array(['1901'], dtype=object)}\"\n", "utf-8")
    with pytest.raises(ConfigurationError, match="cannot be read; write them as a JSON list"):
        load_questions(path)
    path.write_text('question,answers,evidence\nWhen?,[1901] or so,"{x: 1}"\n', "utf-8")
    assert load_questions(path) == [Question("2", "When?", (), (Evidence("{x: 1}"),), ("[1901] or so",))]

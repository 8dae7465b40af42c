"""Drafted questions: evidence that is part of the text, dropped drafts, the sheet, the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from llama_index.core import Document
from pytest_httpserver import HTTPServer
from test_report import assert_harmless
from werkzeug import Request, Response

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation import (
    Drafts,
    Evidence,
    Question,
    check_questions,
    draft_questions,
    load_questions,
)
from llama_index_ext_ctxaug.evaluation.cli import ctxaug
from llama_index_ext_ctxaug.evaluation.corpus import build_corpus
from llama_index_ext_ctxaug.testing import ScriptedLLM

TEXTS = {
    "a.txt": "\n\n".join(f"Keeper {n} lit\nthe lantern of tower {n} in {1800 + n}." for n in range(40)),
    "b.txt": "".join(f"第{n}座灯塔由{n}号看守人于{1800 + n}年点亮。" for n in range(40)),
}


def passage_of(prompt: str) -> str:
    """Return the passage of a prompt."""
    return prompt.removeprefix("Passage:\n").split("\n\nWrite one question")[0]


def drafted(answer: Callable[[str], str], count: int = 6) -> tuple[Drafts, ScriptedLLM]:
    """Draft over both texts with a scripted model."""
    corpus = build_corpus([Document(id_=id_, text=text) for id_, text in TEXTS.items()], 48, 8)
    llm = ScriptedLLM(answers=lambda prompt: answer(passage_of(prompt)))
    return draft_questions(TEXTS, corpus.nodes, llm, count), llm


def first_sentence(passage: str) -> str:
    """Reply with the passage's first whole sentence as evidence, with changed white space."""
    end = "。" if "。" in passage else "."
    sentence = " ".join(passage.split(end, maxsplit=1)[0].split()) + end
    record = {"question": f"Who? {len(passage)} {sentence}", "answer": "a keeper", "evidence": sentence}
    return f"Here it is:\n```json\n{json.dumps(record, ensure_ascii=False)}\n```"


def test_evidence_is_part_of_the_document() -> None:
    """Evidence has the document's own characters and place, from runs of one to three chunks."""
    drafts, llm = drafted(first_sentence)
    assert len(drafts.kept) == 6
    assert drafts.dropped == {}
    for draft in drafts.kept:
        [piece] = draft.question.evidence
        assert piece.document
        assert TEXTS[piece.document][piece.start : piece.end] == piece.text
        assert [text for text, is_evidence in draft.parts if is_evidence] == [piece.text]
        assert "".join(text for text, _ in draft.parts) in TEXTS[piece.document]
    assert {draft.question.evidence[0].document for draft in drafts.kept} == {"a.txt", "b.txt"}
    lengths = [len(passage_of(prompt)) for prompt in llm.prompts[:3]]
    assert lengths[0] < lengths[1] < lengths[2]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("I cannot.", "the reply lacks question, answer or evidence"),
        ("{broken}", "the reply lacks question, answer or evidence"),
        ("[1]", "the reply lacks question, answer or evidence"),
        (
            '{"question": "Who?", "answer": "", "evidence": "x"}',
            "the reply lacks question, answer or evidence",
        ),
        (
            '{"question": "Who?", "answer": "x", "evidence": []}',
            "the reply lacks question, answer or evidence",
        ),
        (
            '{"question": "W?", "answer": "x", "evidence": "never said"}',
            "the evidence is not part of the passage",
        ),
        (
            '{"question": "W?", "answer": "x", "evidence": ["Keeper", "never said"]}',
            "the evidence is not part of the passage",
        ),
    ],
)
def test_what_is_dropped(reply: str, reason: str) -> None:
    """A reply without a question, or with evidence that is not in the passage, is dropped and counted."""
    drafts, _ = drafted(lambda passage: first_sentence(passage) if "Keeper 0 " in passage else reply)
    assert len(drafts.kept) == 1
    assert drafts.dropped == {reason: 5}
    with pytest.raises(ConfigurationError, match="no question of 6 drafts was kept"):
        drafted(lambda passage: reply)


def test_repeated_questions_and_failing_calls() -> None:
    """A repeated question is dropped, and a failing call costs one question."""

    def reply(passage: str) -> str:
        if "灯塔" in passage:
            raise TimeoutError("too long")
        return json.dumps({"question": "Who?", "answer": "x", "evidence": [passage[:8], passage[4:30]]})

    drafts, _ = drafted(reply)
    assert drafts.dropped == {
        "the question was drafted before": 2,
        "the model failed: TimeoutError('too long')": 3,
    }
    [draft] = drafts.kept
    assert [piece.text for piece in draft.question.evidence] == [TEXTS["a.txt"][:8], TEXTS["a.txt"][4:30]]
    assert "".join(text for text, is_evidence in draft.parts if is_evidence) == TEXTS["a.txt"][:30]


def test_files(tmp_path: Path) -> None:
    """The file is read back as the same questions; the sheet marks the evidence and runs nothing."""
    drafts, _ = drafted(first_sentence)
    sheet = drafts.save(tmp_path / "new" / "q.jsonl")
    questions = load_questions(tmp_path / "new" / "q.jsonl", documents=TEXTS)
    assert questions == [draft.question for draft in drafts.kept]
    assert check_questions(questions, documents=TEXTS) == []
    page = sheet.read_text("utf-8")
    assert_harmless(page)
    assert page.count("<mark>") == 6


def test_hostile_documents(tmp_path: Path) -> None:
    """Markup and control characters in documents and replies are plain text on the sheet."""
    text = "<script>alert(1)</script>\x1b[2J </pre>&amp; end."
    corpus = build_corpus([Document(id_="<b>.txt", text=text)], 64, 0)
    reply = json.dumps({"question": "<img src=x>\x07?", "answer": "</p>", "evidence": text[:25]})
    drafts = draft_questions({"<b>.txt": text}, corpus.nodes, ScriptedLLM(answers=[reply]), 3)
    assert drafts.kept[0].question == Question(
        "q1", "<img src=x>\x07?", evidence=(Evidence(text[:25], "<b>.txt", 0, 25),), answers=("</p>",)
    )
    assert_harmless(drafts.save(tmp_path / "q.jsonl").read_text("utf-8"))


def test_the_command(tmp_path: Path, httpserver: HTTPServer) -> None:
    """`ctxaug questions` writes questions that `ctxaug compare` accepts, and reports what was dropped."""

    def reply(request: Request) -> Response:
        prompt = json.loads(request.data)["messages"][-1]["content"]
        text = "no" if "tower 0 " in prompt else first_sentence(passage_of(prompt))
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        return Response(json.dumps(body), content_type="application/json")

    httpserver.expect_request("/v1/chat/completions", method="POST").respond_with_handler(reply)
    docs, out = tmp_path / "docs", tmp_path / "q.jsonl"
    docs.mkdir()
    for name, text in TEXTS.items():
        (docs / name).write_text(text, "utf-8")
    common = ["--docs", docs, "--chunk-size", 48, "--llm", "any", "--llm-url", httpserver.url_for("/v1")]
    given = ["questions", *common, "--count", 6, "--out", out, "--cache", tmp_path / "cache"]
    done = CliRunner().invoke(ctxaug, list(map(str, given)))
    assert done.exit_code == 0, done.output
    assert "dropped 1: the reply lacks question, answer or evidence" in done.stderr
    assert f"5 questions: {out}" in done.stdout
    compare = ["compare", "--docs", docs, "--chunk-size", 48, "--questions", out, "--out", tmp_path / "out"]
    assert CliRunner().invoke(ctxaug, list(map(str, compare))).exit_code == 0

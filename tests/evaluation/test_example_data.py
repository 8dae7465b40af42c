"""The questions that ship with the example."""

from __future__ import annotations

from pathlib import Path

from llama_index_ext_ctxaug.evaluation import check_questions, load_questions

DATA = Path(__file__).parents[2] / "examples" / "data"


def test_evidence_is_part_of_its_document() -> None:
    """Each question's evidence is part of its document, word for word."""
    documents = {path.name: path.read_text("utf-8") for path in (DATA / "harbor").glob("*.md")}
    questions = load_questions(DATA / "harbor_questions.jsonl")
    assert len(questions) == 18
    assert not check_questions(questions, documents=documents)
    for question in questions:
        assert all(piece.text in documents[piece.document or ""] for piece in question.evidence)

"""benchmarks/answers.py: paired answers of a served model, resumed and reported."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from llama_index_ext_ctxaug.evaluation import paired_interval

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))  # they are scripts, not a package

import answers


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write a data set of two documents and ten questions, two of them of the other split."""
    folder = tmp_path / "towers"
    (folder / "docs").mkdir(parents=True)
    records = []
    for name in ("north", "south"):
        sentences = [
            f"Keeper {name}{n} lit the lantern of tower {name}{n} in the year {1800 + n} after a long storm."
            for n in range(40)
        ]
        text = " ".join(sentences)
        (folder / "docs" / f"{name}.txt").write_text(text, "utf-8")
        for n in range(0, 40, 8):
            start = text.index(sentences[n])
            records.append({
                "id": f"{name}-{n}", "doc_id": name, "question": f"When did keeper {name}{n} light it?",
                "evidence": [{"start": start, "end": start + len(sentences[n]), "text": sentences[n]}],
                "answers": [{"start": 0, "end": 4, "text": str(1800 + n)}],
                "split": "tune" if n == 32 else "eval",
            })  # fmt: skip
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, records)), "utf-8")
    return folder


def reply(request: Request) -> Response:
    """Answer with the year of the keeper in the question, if the context holds it."""
    prompt = json.loads(request.data)["messages"][-1]["content"]
    keeper = re.findall(r"keeper (\w+) light", prompt)[-1]
    year = re.search(rf"tower {keeper} in the year (\d+)", prompt)
    message = {"role": "assistant", "content": f"In {year.group(1)}." if year else "unknown"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    return Response(json.dumps(body), content_type="application/json")


def run(monkeypatch: pytest.MonkeyPatch, server: HTTPServer, data: Path, *options: str) -> str:
    """Run the program and return its report."""
    out = data.parent / "answers.md"
    common = ["answers.py", "--data", str(data), "--llm", "any", "--llm-url", server.url_for("/v1")]
    common += ["--replies", str(data.parent / "replies.jsonl"), "--out", str(out), "--budgets", "150"]
    monkeypatch.setattr(sys, "argv", [*common, *options])
    answers.main()
    return out.read_text("utf-8")


def cells(report: str, way: str) -> list[str]:
    """Return the cells of a way's row."""
    [row] = [line for line in report.splitlines() if line.startswith(f"| {way} |")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_answers_of_all_ways(monkeypatch: pytest.MonkeyPatch, httpserver: HTTPServer, data: Path) -> None:
    """Each way answers the same questions, equal contexts once, and a second run asks nothing."""
    httpserver.expect_request("/v1/chat/completions", method="POST").respond_with_handler(reply)
    report = run(monkeypatch, httpserver, data)
    assert "## towers, 150 tokens" in report
    assert f"8 questions, {8 * len(answers.WAYS)} contexts." in report
    for way in answers.WAYS:
        row = cells(report, way)
        assert row[1:5] == ["0.667", "0.000", "1.000", "1.000"]  # "In 1800." has one of two words right
        assert 0 < int(row[5]) <= 150
    prompts = [request.data for request, _ in httpserver.log]
    assert len(prompts) == len(set(prompts)) < 8 * len(answers.WAYS)
    assert run(monkeypatch, httpserver, data) == report
    assert len(httpserver.log) == len(prompts)
    assert "4 questions, " in run(monkeypatch, httpserver, data, "--questions", "4")


def test_a_stopped_run_is_paired_and_resumes(
    monkeypatch: pytest.MonkeyPatch, httpserver: HTTPServer, data: Path
) -> None:
    """A run that is stopped in mid-question reports the questions before, and resumes there."""
    calls = 0

    def stop(request: Request) -> Response:
        nonlocal calls
        calls += 1
        return reply(request)

    httpserver.expect_request("/v1/chat/completions", method="POST").respond_with_handler(stop)
    score = answers.score

    def interrupted(*given: object) -> dict[str, float]:
        if calls >= 4:
            raise KeyboardInterrupt
        return score(*given)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(answers, "score", interrupted)
        part = run(patch, httpserver, data)
    count = int(re.search(r"(\d+) questions, (\d+) contexts", part).group(1))  # type: ignore[union-attr]
    assert f"{count} questions, {len(answers.WAYS) * count} contexts" in part
    assert 0 < count < 8
    whole = run(monkeypatch, httpserver, data)
    assert f"8 questions, {8 * len(answers.WAYS)} contexts." in whole
    prompts = [request.data for request, _ in httpserver.log]
    assert len(prompts) == len(set(prompts))  # no call is repeated, even for the interrupted question


def test_forms_and_splits(monkeypatch: pytest.MonkeyPatch, httpserver: HTTPServer, data: Path) -> None:
    """Forms of one context are compared on the tuning questions, and all ways on request."""
    httpserver.expect_request("/v1/chat/completions", method="POST").respond_with_handler(reply)
    report = run(monkeypatch, httpserver, data, "--forms", "--split", "tune")
    assert "2 questions, 20 contexts." in report
    prompts = [json.loads(request.data)["messages"][-1]["content"] for request, _ in httpserver.log]
    assert any("[north]\n" in prompt for prompt in prompts)
    everything = run(monkeypatch, httpserver, data, "--all", "--split", "tune")
    assert "| BRSR, windows 128/64 |" in everything


def test_the_figures() -> None:
    """Means, paired intervals and associations match values worked out by hand."""

    def row(f1: float, recall: float) -> dict[str, float]:
        base = {"answer_exact": 0.0, "answer_found": 1.0, "tokens": 100.0}
        return {"answer_f1": f1, "evidence_recall": recall, **base}

    ways = {
        "top-k": {str(n): row(0.0 if n % 2 else 0.5, 0.0) for n in range(8)},
        "RelevantSegments": {str(n): row(1.0 if n < 4 else 0.25, 1.0) for n in range(8)},
    }
    text = answers.report([answers.Scores("x, 500 tokens", ways), answers.Scores("empty")], "m", "eval")
    gains = {str(n): (1.0 if n < 4 else 0.25) - (0.0 if n % 2 else 0.5) for n in range(8)}
    interval = paired_interval(gains)
    assert interval.mean == pytest.approx((4 * 1.25 - 4 * 0.5) / 8)
    assert cells(text, "RelevantSegments")[1:] == [
        "0.625", "0.000", "1.000", "1.000", "100", f"+0.375 ({interval.low:+.3f} to {interval.high:+.3f})",
    ]  # fmt: skip
    assert cells(text, "top-k")[1:] == ["0.250", "0.000", "1.000", "0.000", "100", ""]
    assert "Mean F1 of the 8 contexts with all of the evidence: 0.625." in text
    assert "Mean F1 of the 8 contexts with none of the evidence: 0.250." in text
    assert "empty" not in text

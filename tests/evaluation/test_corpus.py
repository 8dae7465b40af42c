"""The folder of a comparison: formats, names, chunks in several processes, the kept index."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation import Evidence, load_questions
from llama_index_ext_ctxaug.evaluation import corpus as corpus_module
from llama_index_ext_ctxaug.evaluation.corpus import build_corpus, make_retriever, read_documents
from llama_index_ext_ctxaug.testing import WordEmbedding


def write_pdf(path: Path, pages: Sequence[str]) -> None:
    """Write a PDF with one line of text on each page."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    data, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(data))
        data += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    data += (
        f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R >>\n"
        f"startxref\n{len(data)}\n%%EOF\n"
    ).encode()
    path.write_bytes(data)


def write_docx(path: Path, paragraphs: Sequence[str]) -> None:
    """Write a DOCX with these paragraphs."""
    body = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    with zipfile.ZipFile(path, "w") as file:
        space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
        file.writestr(
            "word/document.xml", f'<w:document xmlns:w="{space}"><w:body>{body}</w:body></w:document>'
        )


def test_formats(tmp_path: Path) -> None:
    """Text, PDF, HTML and DOCX are read; the pages of a PDF are one document, and no words are joined."""
    write_pdf(tmp_path / "a.pdf", ["The harbor opened in 1901.", "It closed in 1950."])
    (tmp_path / "b.html").write_text(
        "<html><head><title>no</title><style>p {}</style></head><body><script>no()</script><div><p>One"
        "<b>half</b></p><p>two</p><table><tr><td>x</td><td>y</td></tr></table></div>tail<br>end</body></html>",
        "utf-8",
    )
    write_docx(tmp_path / "c.docx", ["First paragraph.", "Second paragraph."])
    (tmp_path / "d.md").write_bytes("\ufeff# Größe".encode())
    (tmp_path / "e.xyz").write_text("unknown", "utf-8")
    texts = {document.id_: document.text for document in read_documents(tmp_path)}
    assert texts["a.pdf"].split("\n") == ["The harbor opened in 1901.", "It closed in 1950."]
    assert texts["b.html"].split("\n") == ["Onehalf", "two", "x", "y", "tail", "end"]
    assert texts["c.docx"].split("\n\n") == ["First paragraph.", "Second paragraph."]
    assert texts["d.md"] == "# Größe"
    assert len(texts) == 4


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.txt"])
def test_damaged_files_are_named(tmp_path: Path, name: str) -> None:
    """A damaged or empty file is named and skipped, and the others are read."""
    (tmp_path / name).write_bytes(b"\xff\xfe damaged")
    (tmp_path / "empty.html").write_text("<p> </p>", "utf-8")
    (tmp_path / "good.txt").write_text("good", "utf-8")
    problems: list[str] = []
    assert [document.id_ for document in read_documents(tmp_path, problems=problems)] == ["good.txt"]
    first, second = problems
    assert f"{name}' cannot be read and is left out" in first
    assert "empty.html' has no text" in second


def test_names_of_documents(tmp_path: Path) -> None:
    """A document is found by any end of its path; an ambiguous name is an error that names two matches."""
    texts = {"a/README.md": "one", "b/README.md": "two", "b/notes.v2.txt": "three", "README.txt": "four"}
    path = tmp_path / "q.jsonl"

    def document(name: str) -> str | None:
        path.write_text(f'{{"question": "?", "document": "{name}", "evidence": "x"}}', "utf-8")
        return load_questions(path, documents=texts)[0].evidence[0].document

    assert document("b/README.md") == "b/README.md"
    assert document("b/README") == "b/README.md"
    assert document("notes.v2") == "b/notes.v2.txt"
    assert document("README.txt") == "README.txt"
    assert document("elsewhere.md") == "elsewhere.md"
    for name, first, second in (
        ("README.md", "a/README.md", "b/README.md"),
        ("README", "a/README.md", "b/README.md"),
    ):
        with pytest.raises(
            ConfigurationError, match=rf"{name}' may be '{first}' or '{second}'; give its path"
        ):
            document(name)
    path.write_text('{"question": "?", "doc_id": "notes.v2", "evidence": {"start": 0, "end": 2}}', "utf-8")
    [question] = load_questions(path, documents=texts)
    assert question.evidence == (Evidence("th", "b/notes.v2.txt", 0, 2),)


def texts_of(folder: Path) -> None:
    """Write four texts of several chunks."""
    for name in "abcd":
        text = " ".join(f"Sentence {number} of {name} names the harbor{number}." for number in range(40))
        (folder / f"{name}.txt").write_text(text, "utf-8")


def test_processes_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long corpora split in several processes give the same chunks in the same order."""
    texts_of(tmp_path)
    documents = read_documents(tmp_path)
    alone = build_corpus(documents, 64, 0)
    monkeypatch.setattr(corpus_module, "_PARALLEL_CHARACTERS", 0)
    monkeypatch.setattr(corpus_module, "_BATCH", 3)
    assert build_corpus(documents, 64, 0).nodes == alone.nodes
    assert len(alone.nodes) > 20
    with pytest.raises(ConfigurationError, match="chunks of 5 tokens"):
        build_corpus(documents, 5, 20)


@pytest.mark.parametrize("model", [None, WordEmbedding()])
def test_the_index_is_kept(
    tmp_path: Path, model: WordEmbedding | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run reads chunks and index from the cache; a changed text or size rebuilds them."""
    docs, cache = tmp_path / "docs", tmp_path / "cache"
    docs.mkdir()
    texts_of(docs)
    documents = read_documents(docs)
    first = build_corpus(documents, 64, 0, cache=cache)
    found = make_retriever(first, 3, model).retrieve("harbor7")
    with monkeypatch.context() as patch:
        patch.setattr(corpus_module, "_split", None)
        again = build_corpus(documents, 64, 0, cache=cache)
        kept = make_retriever(again, 3, model).retrieve("harbor7")
        with pytest.raises(TypeError):
            build_corpus(documents, 65, 0, cache=cache)
    assert again.nodes == first.nodes
    assert [(hit.node_id, hit.score) for hit in kept] == [(hit.node_id, hit.score) for hit in found]
    assert len(make_retriever(again, 5, model).retrieve("harbor7")) == 5
    assert (
        again.docstore.get_node(kept[0].node_id).prev_node
        == first.docstore.get_node(kept[0].node_id).prev_node
    )
    (docs / "a.txt").write_text("changed", "utf-8")
    assert build_corpus(read_documents(docs), 64, 0, cache=cache).fingerprint != first.fingerprint

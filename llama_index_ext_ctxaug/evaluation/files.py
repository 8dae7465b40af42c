"""Read the text of a file, by LlamaIndex's readers for other formats than text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llama_index_ext_ctxaug.evaluation.extras import load_extra

_BLOCKS = {
    *("address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "fieldset", "figcaption"),
    *("figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav"),
    *("ol", "p", "pre", "section", "table", "td", "th", "tr", "ul"),
}


def read_file(path: Path) -> str:
    """Return the text of a file; the pages of a PDF are one text.

    Raises:
        ConfigurationError: the format needs the extra `readers`, which is not installed.
        Exception: the file cannot be read.
    """
    text: str = READERS[path.suffix.lower()](path)
    return text


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 ({error})") from error


def _pdf(path: Path) -> str:
    load_extra("pypdf", "readers")
    return _by_reader("PDFReader", path, return_full_document=True)


def _docx(path: Path) -> str:
    load_extra("docx2txt", "readers")
    return _by_reader("DocxReader", path)


def _by_reader(name: str, path: Path, **options: Any) -> str:
    reader = getattr(load_extra("llama_index.readers.file", "readers"), name)(**options)
    return "\n\n".join(document.text for document in reader.load_data(path))


def _html(path: Path) -> str:
    """Return the text of a page; LlamaIndex's HTMLTagReader joins words of neighboring blocks."""
    soup = load_extra("bs4", "readers").BeautifulSoup(path.read_bytes(), "html.parser")
    body = soup.body or soup
    for block in body.find_all(_BLOCKS):
        block.insert_before("\n")
        block.insert_after("\n")
    lines = [" ".join(line.split()) for line in body.get_text().splitlines()]
    return "\n".join(line for line in lines if line)


READERS = {
    ".txt": _text,
    ".md": _text,
    ".rst": _text,
    ".pdf": _pdf,
    ".html": _html,
    ".htm": _html,
    ".docx": _docx,
}
"""Readers by the suffix of the file."""

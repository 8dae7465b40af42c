"""Separators between chunks when nothing shows what lies between them."""

from __future__ import annotations

import time

import pytest

from llama_index_ext_ctxaug.passages.joining import join_texts
from llama_index_ext_ctxaug.passages.offsets import TextChunk
from llama_index_ext_ctxaug.passages.separators import HOLE_SEPARATOR, has_words, separator, stripped_space


@pytest.mark.parametrize(
    ("before", "after", "between"),
    [
        ("One sentence.", "Another one.", " "),
        ("cut within", "a sentence", " "),
        ("One sentence. ", "Another one.", ""),
        ("One sentence.", "\nAnother one.", ""),
        ("Release Notes", "Version 2 is faster.", "\n"),
        ("name anna\nage 3", "name bert\nage 4", "\n"),
        ("Intro text here.", "# Two\n\nMore text here.", "\n\n"),
        ("# One", "Text of it.", "\n\n"),
        ("What is needed:", "- a lamp", "\n"),
        ("What is needed:", "1. a lamp", "\n"),
        ("| a | 1 |", "| b | 2 |", "\n"),
        ("| a | 1", "| b | 2 |", " "),
        ("| a | 1 |", "That was the table.", "\n"),
        ("Run this:", "```python", "\n"),
        ("256.", "BRSRPostprocessor", " "),
        ("他说：好。", "走吧。", ""),
        ("สวัสดี", "ครับ", ""),
        ("안녕하세요.", "반갑습니다.", " "),
        ("", "Text.", ""),
    ],
)
def test_separators(before: str, after: str, between: str) -> None:
    """The separator is a line break, blank line, space or nothing, by script and markup."""
    assert separator(before, after) == between
    assert join_texts([before, after]).text == before + between + after
    assert join_texts([before, after], chunk_separator="|").text == f"{before}|{after}"


def test_a_few_characters_may_be_stripped_and_many_are_a_hole() -> None:
    """Linked chunks a few characters apart had white space between them; farther apart, text is missing."""
    text = "x" * 300
    first = TextChunk(text[:100], 0, 100, "doc", document="doc")
    for gap, between in ((1, " "), (2, "\n\n"), (5, "\n\n   "), (50, HOLE_SEPARATOR)):
        second = TextChunk(text[:80], 100 + gap, 180 + gap, "doc", document="doc")
        assert join_texts([first, second]).text == first.text + between + second.text
    assert stripped_space(1, "好。", "走") == "\n"


def test_markup_between_chunks_is_no_hole() -> None:
    """Tags and attributes between chunks are not text; words between tags are."""
    page = "<p>One thing is so.</p>\n<p class='wide'>And so is another.</p><p>Left out.</p><p>The end.</p>"
    page += "<p>" + "More than a line was left out here, and nobody says so. " * 3 + "</p><p>Behind it.</p>"
    texts = ["One thing is so.", "And so is another.", "The end.", "Behind it."]
    joined = join_texts([TextChunk(text, base="doc", document="doc") for text in texts], texts={"doc": page})
    assert joined.text == " ".join(texts[:3]) + HOLE_SEPARATOR + texts[3]
    assert [page[start:].startswith(text) for start, text in zip(joined.sources, texts, strict=True)] == [
        True
    ] * 4
    assert not joined.exact


def test_repeated_table_headers_come_once() -> None:
    """Chunks that each repeat the header of a table give it once, and no row is lost."""
    header = "| name | size |\n|---|---|\n"
    chunks = [f"{header}| a | 1 |\n| b | 2 |", f"{header}| c | 3 |", f"{header}| d | 4 |"]
    joined = join_texts(chunks)
    assert joined.text == f"{header}| a | 1 |\n| b | 2 |\n| c | 3 |\n| d | 4 |"
    other = join_texts([chunks[0], "| name | age |\n|---|---|\n| e | 5 |"])
    assert other.text.count("|---|---|") == 2


@pytest.mark.parametrize("part", ["<", "<!--", "<script>", "&", "<a "])
def test_what_is_almost_markup_takes_linear_time(part: str) -> None:
    """Text made to mislead the search for markup is scanned in well under a second."""
    began = time.perf_counter()
    has_words(part * (4_900 // len(part)))
    assert time.perf_counter() - began < 2

"""Joining many chunks into one text."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from llama_index.core.schema import TextNode
from text_strategies import Parsed, parsed_documents

from llama_index_ext_ctxaug.passages.joining import join_texts
from llama_index_ext_ctxaug.passages.offsets import TextChunk
from llama_index_ext_ctxaug.passages.separators import HOLE_SEPARATOR
from llama_index_ext_ctxaug.passages.shared_text import common_length


def chunk(document: str, start: int, end: int, **more: object) -> TextChunk:
    """Return the chunk that covers these characters of a document."""
    return TextChunk(document[start:end], start, end, base="doc", **more)


def chunks_of(nodes: list[TextNode]) -> list[TextChunk]:
    """Return parsed nodes as chunks that follow one another."""
    return [TextChunk(node.text, node.start_char_idx, node.end_char_idx, base="doc") for node in nodes]


DOCUMENT = "".join(chr(0x4E00 + number) for number in range(300))


def test_overlap_known_from_offsets_appears_once():
    """Chunks that overlap by their offsets become the slice of the document that they cover."""
    joined = join_texts([chunk(DOCUMENT, 0, 43), chunk(DOCUMENT, 20, 73), chunk(DOCUMENT, 43, 95)])
    assert joined.text == DOCUMENT[:95]
    assert joined.span == (0, 95)
    assert joined.spans == ((0, 43), (20, 73), (43, 95))
    assert joined.sources == (0, 20, 43)


def test_an_overlap_shorter_than_the_minimum_is_cut_if_offsets_show_it():
    """A single shared character is cut if the offsets show it and the texts agree."""
    assert join_texts([chunk(DOCUMENT, 0, 10), chunk(DOCUMENT, 9, 20)]).text == DOCUMENT[:20]


def test_offsets_that_the_text_contradicts_cut_nothing():
    """If offsets claim overlap and the characters differ, both texts are kept whole."""
    joined = join_texts([TextChunk("a" * 100, 0, 100, "doc"), TextChunk("b" * 120, 80, 200, "doc")])
    assert joined.text == "a" * 100 + " " + "b" * 120
    assert joined.span is None
    assert joined.sources == (None, None)


def test_equal_neighbors_without_overlap_are_both_kept():
    """Equal chunks appear twice: with offsets that separate them or, if short, without."""
    row = "| one | two | three |\n"
    first = TextChunk(row * 2, 0, len(row) * 2, "doc")
    second = TextChunk(row * 3, len(row) * 2, len(row) * 5, "doc")
    assert join_texts([first, second]).text == row * 5
    assert join_texts(["好。", "好。"]).text == "好。好。"


def test_a_short_sentence_that_a_parser_found_too_early_is_not_lost():
    """A sentence located at its twin inside the previous one is placed after it, and the next one fits."""
    document = "他说：好。好。走吧。"
    early = TextChunk("好。", 3, 5, "doc")
    joined = join_texts([chunk(document, 0, 5), early, chunk(document, 7, 10)])
    assert joined.text == document
    assert joined.span == (0, 10)
    assert join_texts([chunk(document, 0, 5), early]).span is None
    settled = join_texts([chunk(document, 0, 5), early], texts={"doc": document})
    assert settled.text == document[:7]
    assert settled.span == (0, 7)


def test_texts_without_offsets_share_what_is_end_and_start():
    """Plain strings are joined at their longest common end and start, from twelve characters on."""
    shared = "0123456789ab"
    assert join_texts([f"first {shared}", f"{shared} second"]).text == f"first {shared} second"
    assert join_texts([f"first {shared[1:]}", f"{shared[1:]} second"]).text == (
        f"first {shared[1:]} {shared[1:]} second"
    )


@pytest.mark.parametrize(
    "texts",
    [
        ["See the Release Notes for details.", "Release Notes", "Version 2 is faster."],
        ["exactly what was found", "before exactly what was found after"],
        ["before exactly what was found", "exactly what was found"],
        ["exactly what was found", "exactly what was found after"],
        ["status: success"] * 4,
    ],
)
def test_containment_proves_nothing_without_offsets(texts: list[str]):
    """Text that also occurs elsewhere is kept: no splitter makes a chunk that is all overlap."""
    joined = join_texts(texts)
    assert [joined.text[slice(*span)] for span in joined.spans] == texts
    assert len(joined.tiles()) == len(texts)


@pytest.mark.parametrize("texts", [None, {"doc": DOCUMENT}])
def test_a_chunk_inside_another_by_its_offsets_adds_nothing(texts: dict[str, str] | None):
    """Offsets that the text confirms show that a chunk lies inside the previous one."""
    inside = join_texts([chunk(DOCUMENT, 0, 100), chunk(DOCUMENT, 20, 60)], texts=texts)
    assert inside.text == DOCUMENT[:100]
    assert inside.spans == ((0, 100), (20, 60))
    short = [chunk("abcdefghijklmno", *span) for span in ((0, 8), (4, 6), (6, 15))]
    assert join_texts(short).text == "abcdefghijklmno"


def test_an_edited_chunk_keeps_its_text():
    """A chunk that does not match its offsets' length is whole, and the other offsets are in doubt."""
    edited = TextChunk("this was rewritten", 10, 20, "doc")
    joined = join_texts([chunk(DOCUMENT, 0, 10), edited, chunk(DOCUMENT, 20, 30)])
    assert joined.text == DOCUMENT[:10] + "this was rewritten" + DOCUMENT[20:30]
    assert joined.span is None
    assert joined.sources == (None, None, None)
    joined = join_texts([chunk(DOCUMENT, 0, 10), edited, chunk(DOCUMENT, 20, 30)], texts={"doc": DOCUMENT})
    assert joined.sources == (0, None, 20)
    assert not joined.exact


def test_white_space_that_a_splitter_stripped_comes_from_the_document():
    """With the document, the gap between two chunks holds what the document has between them."""
    document = "One sentence.\n\t Another one."
    joined = join_texts([chunk(document, 0, 13), chunk(document, 16, 28)], texts={"doc": document})
    assert joined.text == document
    assert joined.span == (0, 28)


def test_white_space_that_nobody_knows_has_the_right_length():
    """Without the document, a gap is filled with as much white space, and the span is not claimed."""
    document = "One sentence.\n\t Another one."
    joined = join_texts([chunk(document, 0, 13), chunk(document, 16, 28)])
    assert joined.text.split() == document.split()
    assert len(joined.text) == len(document)
    assert joined.span is None


def test_holes_are_marked():
    """Missing text, known from links or offsets, is marked by the given separator."""
    first, second = chunk(DOCUMENT, 0, 5), chunk(DOCUMENT, 250, 256)
    assert join_texts([first, second]).text == DOCUMENT[:5] + HOLE_SEPARATOR + DOCUMENT[250:256]
    near = chunk(DOCUMENT, 7, 12, follows=False)
    assert join_texts([first, near], hole_separator=" / ").text == DOCUMENT[:5] + " / " + DOCUMENT[7:12]
    dropped = join_texts([first, second], texts={"doc": DOCUMENT}, hole_separator="|")
    assert dropped.text == DOCUMENT[:5] + "|" + DOCUMENT[250:256]


def test_offsets_that_count_in_different_parents_are_seen_through():
    """Chunks of two parents join by their place in the document if the parents' places are known."""
    first = TextChunk(DOCUMENT[90:100], 40, 50, base="p1", shift=50)
    second = TextChunk(DOCUMENT[95:120], 0, 25, base="p2", shift=95)
    joined = join_texts([first, second])
    assert joined.text == DOCUMENT[90:120]
    assert joined.span == (90, 120)
    blind = join_texts([first._replace(shift=None), second._replace(shift=None)])
    assert blind.text == DOCUMENT[90:100] + DOCUMENT[95:120]
    assert blind.span is None


def test_a_table_header_that_the_splitter_repeated_appears_once():
    """If a chunk repeats the table's header before shared rows, only its new rows are added."""
    header = "| name | size |\n| --- | --- |\n"
    rows = [f"| row {number} | {number * 7} |\n" for number in range(6)]
    joined = join_texts([header + "".join(rows[:4]), header + "".join(rows[3:])])
    assert joined.text == header + "".join(rows)
    second = header + "".join(rows[3:])
    placed = join_texts([header + "".join(rows[:4]), TextChunk(second, 90, 90 + len(second), "doc")])
    assert placed.text == header + "".join(rows)
    assert placed.sources == (None, None)  # the header is not at the chunk's place


def test_each_character_belongs_to_one_chunk_and_hits_own_what_they_share():
    """Tiles do not overlap; shared characters belong to the preferred chunk, separators to none."""
    joined = join_texts([chunk(DOCUMENT, 0, 20), chunk(DOCUMENT, 15, 40), chunk(DOCUMENT, 35, 60)])
    assert joined.tiles() == [(0, (0, 20)), (1, (20, 40)), (2, (40, 60))]
    assert joined.tiles([False, True, False]) == [(0, (0, 15)), (1, (15, 40)), (2, (40, 60))]
    apart = join_texts([chunk(DOCUMENT, 0, 5), chunk(DOCUMENT, 200, 205)], hole_separator="...")
    assert apart.tiles() == [(0, (0, 5)), (1, (8, 13))]


def test_nothing_joins_to_nothing():
    """No chunks give the empty text."""
    assert join_texts([]).text == ""
    assert join_texts([]).tiles() == []


def test_a_text_of_the_right_length_that_the_document_does_not_have_has_no_place():
    """With the document, a chunk that the document does not have at its offsets has no place."""
    edited = TextChunk("CHANGED", 5, 12, "doc")
    joined = join_texts([chunk(DOCUMENT, 0, 5), edited], texts={"doc": DOCUMENT})
    assert joined.text == DOCUMENT[:5] + "CHANGED"
    assert joined.sources == (0, None)
    assert joined.span is None
    assert join_texts([edited], texts={"doc": DOCUMENT}).span is None


def test_what_was_put_behind_on_suspicion_is_not_confirmed_over_a_gap():
    """After a short chunk of uncertain place, white space that fits the next chunk makes no span certain."""
    document = "He said so: no.    And then he left."
    first, short = chunk(document, 0, 15), chunk(document, 12, 15)
    last = TextChunk(document[19:], 9, len(document) - 10, base="part", shift=10)
    joined = join_texts([first, short, last], texts={"part": document[10:]})
    assert joined.text != document
    assert joined.span is None


def test_a_chunk_that_lies_before_its_run_keeps_its_text():
    """A short chunk with offsets before the hole at the start of its run follows the run."""
    chunks = [chunk(DOCUMENT, 0, 5), chunk(DOCUMENT, 100, 103), chunk(DOCUMENT, 96, 98)]
    joined = join_texts(chunks, texts={"doc": DOCUMENT})
    assert joined.text == DOCUMENT[:5] + HOLE_SEPARATOR + DOCUMENT[100:103] + DOCUMENT[96:98]
    assert [joined.text[slice(*span)] for span in joined.spans] == [part.text for part in chunks]


def test_white_space_between_two_parents_is_no_hole():
    """If parents end and begin with stripped white space, neither text has it, and its length is kept."""
    document = "The first part.\n\nThe second part."
    first = TextChunk(document[:15], 0, 15, base="one", shift=0)
    second = TextChunk(document[17:], 0, 16, base="two", shift=17)
    joined = join_texts([first, second], texts={"one": first.text, "two": second.text})
    assert joined.text == document
    assert joined.span is None


@pytest.mark.parametrize(("before", "after"), [("One. ", "Two."), ("One.", " Two.")])
def test_a_splitter_that_leaves_white_space_has_stripped_none(before: str, after: str):
    """Characters missing beside white space that a chunk kept are a hole, not stripped white space."""
    chunks = [TextChunk(before, 0, len(before), "doc"), TextChunk(after, 7, 7 + len(after), "doc")]
    assert join_texts(chunks).text == before + HOLE_SEPARATOR + after


def test_a_chunk_of_the_text_before_does_not_show_where_that_text_ends():
    """A chunk without offsets that the previous text contains is kept, and the next is joined to it."""
    around = "before exactly what was found and a long ending"
    inner = TextChunk("exactly what was found", 7, 29, "doc")
    behind = TextChunk(" and a long ending, then more", 29, 58, "doc")
    assert join_texts([around, inner, behind]).text == f"{around} {inner.text}{behind.text}"


@given(parsed=parsed_documents(), known=st.booleans(), data=st.data())
def test_what_is_certain_is_the_document(parsed: Parsed, known: bool, data: st.DataObject):
    """A claimed span is the document's slice, and chunks and tiles are at their stated places."""
    text, nodes = parsed
    first = data.draw(st.integers(0, len(nodes) - 1))
    last = data.draw(st.integers(first, min(first + 6, len(nodes) - 1)))
    chunks = chunks_of(nodes[first : last + 1])
    joined = join_texts(chunks, texts={"doc": text} if known else None)
    if joined.span is not None:
        assert joined.text == text[slice(*joined.span)]
    for part, span in zip(chunks, joined.spans, strict=True):
        assert joined.text[slice(*span)] == part.text
    place = 0
    for number, span in joined.tiles():
        assert span.start >= place
        place = span.end
        source = joined.sources[number]
        if source is not None:
            begin = source + span.start - joined.spans[number].start
            assert joined.text[slice(*span)] == text[begin : begin + span.end - span.start]


@given(parsed=parsed_documents())
def test_consecutive_chunks_are_the_documents_slice(parsed: Parsed):
    """If offsets hold and skip only white space, the text is the document's slice."""
    text, nodes = parsed
    chunks = chunks_of(nodes)
    assume(all(part.start is not None for part in chunks))
    assume(all(not text[one.end : two.start].strip() and two.end > one.end for one, two in pairwise(chunks)))
    joined = join_texts(chunks, texts={"doc": text})
    assert joined.text == text[chunks[0].start : chunks[-1].end]
    assert joined.span == (chunks[0].start, chunks[-1].end)


@given(parsed=parsed_documents())
def test_without_offsets_no_character_is_lost(parsed: Parsed):
    """Without offsets, every chunk appears whole in the text, in order."""
    texts = [node.text for node in parsed.nodes]
    joined = join_texts(texts)
    assert [joined.text[slice(*span)] for span in joined.spans] == texts
    assert joined.span is None


@given(st.text("ab", max_size=60), st.text("ab", max_size=60))
def test_the_common_length_is_the_longest(before: str, after: str):
    """The common end and start equals the result of trying every length."""
    lengths = [n for n in range(12, min(len(before), len(after)) + 1) if before[-n:] == after[:n]]
    assert common_length(before, after) == max(lengths, default=0)


@pytest.mark.parametrize(
    ("before", "after", "length"),
    [
        ("b" + "a" * 13, "a" * 12 + "c" * 9, 12),  # a false start, and the right one a character later
        ("a" * 80 + "b" + "a" * 12, "a" * 12 + "c" * 99, 12),  # more false starts than are tried one by one
        ("a" * 80 + "b" + "a" * 11, "a" * 11 + "c" * 99, 0),
        ("ab" * 40 + "a", "ab" * 40 + "c", 79),
        ("x" + "ab" * 40, "ab" * 50, 80),
        ("same as the other", "same as the other", 17),
    ],
)
def test_common_lengths_by_hand(before: str, after: str, length: int):
    """The longest common end and start is found, however often its beginning occurs before."""
    assert common_length(before, after) == length


@pytest.mark.parametrize("letters", ["a", "ab"])
def test_texts_made_to_mislead_the_search_take_linear_time(letters: str):
    """Periodic text that almost matches everywhere is searched in well under a second."""
    size = 100_000 // len(letters)
    began = time.perf_counter()
    assert common_length(letters * size + "x", letters * size + "y") == 0
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize(
    "text",
    ["|" * 20_000 + "\n" + "-" * 20_000 + "x\n", "|" * 40_000, "a|\n" + "--|" * 15_000 + "x\n"],
    ids=["pipes over dashes", "pipes", "a rule without end"],
)
def test_what_is_almost_a_table_takes_linear_time(text: str):
    """Lines that look like a table but form none are scanned in well under a second."""
    began = time.perf_counter()
    assert join_texts(["no table", text]).text == "no table\n" + text
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize("rule", ["| --- | --- |", "---|---", " |:-:| --:|", "-|-"])
def test_rules_of_tables(rule: str):
    """All ways to write the rule below a table's header are known."""
    header = f"name | size\n{rule}\n"
    rows = [f"row {number} | {number * 7}\n" for number in range(6)]
    joined = join_texts([header + "".join(rows[:4]), header + "".join(rows[2:])])
    assert joined.text == header + "".join(rows)


def test_a_wrong_offset_of_a_parent_is_of_no_account_where_the_document_is_given() -> None:
    """A chunk that its parent's offset misplaces is found in the document by its text."""
    document = "alpha beta gamma! delta epsilon"
    chunks = [
        TextChunk("alpha beta gamma", 0, 16, base="parent", shift=5, document="doc"),
        TextChunk("gamma!", 11, 17, base="doc", document="doc"),
    ]
    joined = join_texts(chunks, texts={"doc": document})
    assert joined.text == "alpha beta gamma!"
    assert joined.span == (0, 17)
    assert joined.exact

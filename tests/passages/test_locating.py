"""Finding chunks in the text of their document."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core import Document
from llama_index.core.node_parser import NodeParser, SentenceSplitter
from llama_index.core.schema import TextNode
from text_strategies import parsers, texts

from llama_index_ext_ctxaug import PrevNextNodePostprocessor, read_provenance
from llama_index_ext_ctxaug.passages.joining import join_texts
from llama_index_ext_ctxaug.passages.locating import locate
from llama_index_ext_ctxaug.passages.offsets import TextChunk
from llama_index_ext_ctxaug.testing import docstore_of, hits

DOCUMENT = "Alpha one. Same here.\n\nBeta two. Same here.\n\nGamma three. Same here.\n\nThe end."


def found(chunks: list[TextChunk], text: str = DOCUMENT) -> list[tuple[int, int] | None]:
    """Return where chunks are found in a text."""
    return [(chunk.start, chunk.end) if chunk.checked else None for chunk in locate(chunks, {"doc": text})]


def chunk(text: str, start: int | None = None, **more: object) -> TextChunk:
    """Return a chunk of the document, with a claim."""
    end = None if start is None else start + len(text)
    return TextChunk(text, start, end, base="doc", document="doc", **more)


def place(text: str, number: int = 0, document: str = DOCUMENT) -> tuple[int, int]:
    """Return the numbered place of a text in the document."""
    start = -1
    for _ in range(number + 1):
        start = document.index(text, start + 1)
    return start, start + len(text)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("claimed", [None, 11, 3000])
def test_neighbors_show_which_of_several_places_is_meant(number: int, claimed: int | None):
    """A sentence that occurs three times is found beside its neighbor, whatever its claim."""
    neighbor = ("Alpha one.", "Beta two.", "Gamma three.")[number]
    expected = [place(neighbor), place("Same here.", number)]
    assert found([chunk(neighbor), chunk("Same here.", claimed)]) == expected
    following = ("Beta two.", "Gamma three.", "The end.")[number]
    expected = [place("Same here.", number), place(following)]
    assert found([chunk("Same here.", claimed), chunk(following)]) == expected


def test_white_space_may_differ():
    """A chunk with white space changed by a splitter is found, and has the document's text."""
    (one, two) = locate([chunk("Alpha one.\nSame  here. Beta"), chunk("two.")], {"doc": DOCUMENT})
    assert one.text == "Alpha one. Same here.\n\nBeta"
    assert DOCUMENT[two.start : two.end] == "two."
    joined = join_texts([one, two], texts={"doc": DOCUMENT})
    assert joined.text == "Alpha one. Same here.\n\nBeta two."
    assert joined.exact


def test_what_the_document_does_not_have_keeps_its_text():
    """An edited chunk has no offsets, and those around it are still found."""
    chunks = [chunk("Alpha one."), chunk("Edited.", 11), chunk("Beta two."), chunk("Same here.")]
    one, edited, two, three = locate(chunks, {"doc": DOCUMENT})
    assert (edited.text, edited.start, edited.checked) == ("Edited.", None, False)
    assert [(c.start, c.end) for c in (one, two, three)] == [
        place("Alpha one."),
        place("Beta two."),
        place("Same here.", 1),
    ]


@pytest.mark.parametrize("text", ["", "Another text. " * 9, DOCUMENT[::-1]])
def test_a_replaced_document_makes_no_error(text: str):
    """If the document was replaced, chunks keep their texts and nothing is exact."""
    chunks = [chunk("Alpha one.", 0), chunk("Same here.", 11), chunk("Beta two.", 90_000)]
    joined = join_texts(chunks, texts={"doc": text})
    assert [joined.text[slice(*span)] for span in joined.spans] == [part.text for part in chunks]
    assert joined.sources == (None, None, None)
    assert not joined.exact


def test_equal_lines_are_all_kept():
    """Chunks of equal lines are found one after the other, up to the line that differs."""
    text = "status: success\n" * 50 + "status: failure\n" + "status: success\n" * 3
    lines = ["status: success"] * 4 + ["status: failure"] + ["status: success"] * 3
    joined = join_texts([chunk(line, 0) for line in lines], texts={"doc": text})
    assert joined.text == "\n".join(lines)
    assert joined.span == (46 * 16, len(text) - 1)


def test_chunks_of_overlapping_sections_are_found():
    """A chunk that begins before its predecessor, as in overlapping sections, makes a slice."""
    text = "".join(chr(0x4E00 + number) for number in range(99))
    parts = [chunk(text[30:44]), chunk(text[20:60]), chunk(text[22:40])]
    joined = join_texts(parts, texts={"doc": text})
    assert joined.text == text[20:60]
    assert joined.spans == ((10, 24), (0, 40), (2, 20))


@st.composite
def pipelines(draw: st.DrawFn) -> list[NodeParser]:
    """Return one parser, or two in a row."""
    first = draw(parsers())
    second = SentenceSplitter(chunk_size=52, chunk_overlap=draw(st.sampled_from([0, 12])))
    return [first, second] if draw(st.booleans()) else [first]


def spoiled(draw: st.DrawFn, nodes: list[TextNode]) -> None:
    """Shift the offsets of some nodes, remove those of others, and keep the rest."""
    for node in nodes:
        change = draw(st.sampled_from(["right", "right", "shifted", "missing", "lying"]))
        if change == "missing" or node.start_char_idx is None:
            node.start_char_idx = node.end_char_idx = None
        elif change != "right":
            node.start_char_idx = draw(st.integers(0, 300)) if change == "lying" else node.start_char_idx + 7
            node.end_char_idx = node.start_char_idx + len(node.text)


@given(text=texts(), pipeline=pipelines(), known=st.booleans(), data=st.data())
def test_a_passage_is_the_documents_slice_or_says_that_it_may_not_be(
    text: str, pipeline: list[NodeParser], known: bool, data: st.DataObject
):
    """For any offsets, no claim is false and no character of any chunk is lost."""
    document = Document(text=text, id_="doc")
    nodes = [document]
    for parser in pipeline:
        nodes = parser(nodes)
    nodes = [node for node in nodes if node.text.strip()]
    spoiled(data.draw, nodes)
    hidden = data.draw(st.sets(st.integers(0, len(nodes)), max_size=2))
    number = data.draw(st.integers(0, len(nodes) - 1))
    stored = [node for place, node in enumerate(nodes) if place not in hidden or place == number]
    store = docstore_of(stored, [document] if known else [])
    augmenter = PrevNextNodePostprocessor(docstore=store, num_nodes=2, mode="both", output="passages")
    (hit,) = augmenter.postprocess_nodes(hits(nodes, [number]))
    provenance = read_provenance(hit.node)
    if provenance is None:
        assert hit.node is nodes[number]
        return
    assert known or not provenance.exact
    if provenance.exact:
        assert hit.node.text == text[hit.node.start_char_idx : hit.node.end_char_idx]
    for piece in provenance.pieces:
        if known and piece.source_start is not None:
            source = text[piece.source_start : piece.source_end]
            assert hit.node.text[piece.start : piece.end] == source
    letters = "".join(hit.node.text.split())
    for piece in provenance.pieces:
        assert "".join(store.get_node(piece.node_id).text.split()) in letters


@pytest.mark.parametrize("seed", range(5))
def test_the_search_takes_the_time_of_reading(seed: int):
    """Without useful offsets, a thousand chunks are found in a million characters in linear time."""
    draw = random.Random(seed)
    words = [f"w{draw.randrange(50_000)}" for _ in range(170_000)]
    text = " ".join(words)[:1_000_000]
    chunks = [chunk(text[start : start + 1100].strip()) for start in range(0, len(text), 1000)]
    joined = join_texts(chunks, texts={"doc": text})
    assert joined.text == text.strip()
    assert joined.exact

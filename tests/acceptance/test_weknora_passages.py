"""Joining chunks as users of WeKnora expect it. Lengths are in characters; single letters are fillers.

Without a counterpart: images that belong to a parent's text, since nodes are never merged into one another
here, and image nodes stay whole.
"""

from __future__ import annotations

from typing import Any

import pytest
from helpers import Postprocess
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index_ext_ctxaug import PrevNextNodePostprocessor, read_provenance
from llama_index_ext_ctxaug.passages.joining import join_texts
from llama_index_ext_ctxaug.passages.offsets import TextChunk
from llama_index_ext_ctxaug.passages.separators import HOLE_SEPARATOR
from llama_index_ext_ctxaug.testing import docstore_of, linked_document

Spans = list[tuple[str, int, int]]


def document(spans: Spans, source_id: str = "doc") -> list[TextNode]:
    """Return linked chunks with these texts and character offsets, right or wrong."""
    nodes = linked_document([text for text, _, _ in spans], source_id=source_id)
    for node, (_, start, end) in zip(nodes, spans, strict=True):
        node.start_char_idx, node.end_char_idx = start, end
    return nodes


def merged(
    postprocess: Postprocess, nodes: list[TextNode], scores: list[float | None] | None = None, **more: Any
) -> list[NodeWithScore]:
    """Use all nodes as hits and add nothing: touching chunks become one passage."""
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), num_nodes=0, output="passages", **more)
    scores = scores or [0.5] * len(nodes)
    return postprocess(
        augmenter, [NodeWithScore(node=n, score=s) for n, s in zip(nodes, scores, strict=True)]
    )


def text_of(postprocess: Postprocess, spans: Spans) -> str:
    """Return the text of the one passage that these chunks become."""
    (passage,) = merged(postprocess, document(spans))
    return passage.node.text


def test_overlap_by_offsets(postprocess: Postprocess):
    """80a+20b and 20b+100c become 80a+20b+100c, up to 200, with both ids recorded."""
    nodes = document([("a" * 80 + "b" * 20, 0, 100), ("b" * 20 + "c" * 100, 80, 200)])
    (passage,) = merged(postprocess, nodes)
    assert passage.node.text == "a" * 80 + "b" * 20 + "c" * 100
    assert (passage.node.start_char_idx, passage.node.end_char_idx) == (0, 200)
    assert [p.node_id for p in read_provenance(passage.node).pieces] == [n.node_id for n in nodes]


def test_equal_rows_side_by_side(postprocess: Postprocess):
    """Two and three equal table rows that are adjacent by offsets stay five rows."""
    row = "| same | row |\n"
    size = len(row)
    assert text_of(postprocess, [(row * 2, 0, 2 * size), (row * 3, 2 * size, 5 * size)]) == row * 5


def test_offsets_that_the_text_contradicts(postprocess: Postprocess):
    """If offsets claim an overlap of 20 and the texts differ, both texts are kept whole."""
    text = text_of(postprocess, [("a" * 100, 0, 100), ("c" * 120, 80, 200)])
    assert text == "a" * 100 + " " + "c" * 120


def test_adjacent_chunks(postprocess: Postprocess):
    """Adjacent ranges are joined without a separator."""
    assert text_of(postprocess, [("a" * 100, 0, 100), ("b" * 100, 100, 200)]) == "a" * 100 + "b" * 100


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(("x" * 100, 150, 250), id="new text"),
        pytest.param(("edited meanwhile", 150, 250), id="edited"),
        pytest.param(("x" * 100, 80, 180), id="overlapping"),
    ],
)
def test_what_links_keep_apart_stays_apart(postprocess: Postprocess, second: tuple[str, int, int]):
    """Chunks that do not follow one another stay apart, whatever their ranges."""
    nodes = document([("a" * 100, 0, 100), ("m" * 50, 100, 150), second])
    result = merged(postprocess, [nodes[0], nodes[2]])
    assert [hit.node for hit in result] == [nodes[0], nodes[2]]


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(("rewritten text", 80, 200), id="rewritten"),
        pytest.param(("edited, and now longer than the range that it had", 100, 120), id="another length"),
        pytest.param(("y" * 120, 80, 200), id="same length"),
        pytest.param(("z" * 30, -10, 20), id="before the start"),
        pytest.param(("short", 80, 85 + 300), id="longer than the text"),
        pytest.param(("c" * 20, 300, 280), id="negative"),
    ],
)
def test_an_edited_chunk_keeps_its_text(postprocess: Postprocess, second: tuple[str, int, int]):
    """If an edit made the offsets stale, both texts are kept and no range is claimed."""
    nodes = document([("a" * 100, 0, 100), second])
    (passage,) = merged(postprocess, nodes)
    assert passage.node.text == "a" * 100 + " " + second[0]
    assert passage.node.start_char_idx is None
    assert not read_provenance(passage.node).exact


def test_three_in_a_row_with_a_bad_joint(postprocess: Postprocess):
    """If the first joint cannot be trimmed, all three texts are kept and their ids recorded."""
    nodes = document([("a" * 100, 0, 100), ("x" * 100, 80, 180), ("c" * 100, 180, 280)])
    (passage,) = merged(postprocess, nodes)
    assert passage.node.text == "a" * 100 + " " + "x" * 100 + "c" * 100
    assert [p.node_id for p in read_provenance(passage.node).pieces] == [n.node_id for n in nodes]


def test_a_passage_takes_the_best_score(postprocess: Postprocess):
    """A passage has the best score of its chunks, and passages keep the order of the hits."""
    groups = [document([("a" * 9, 0, 9), ("b" * 9, 9, 18)], source) for source in ("d1", "d2", "d3")]
    result = merged(postprocess, [node for group in groups for node in group], [0.1, 0.4, 0.9, 0.2, 0.6, 0.3])
    assert [hit.score for hit in result] == [0.4, 0.9, 0.6]


def test_equal_ranges_in_two_documents(postprocess: Postprocess):
    """The same ranges in two documents are never merged."""
    one, other = document([("a" * 9, 0, 9)], "d1"), document([("a" * 9, 0, 9)], "d2")
    assert [hit.node for hit in merged(postprocess, one + other)] == one + other


def test_a_short_hit_with_both_neighbors(postprocess: Postprocess):
    """150P + 60B + 150N have exact ranges, and the hit's own offsets are unchanged."""
    nodes = document([("P" * 150, 0, 150), ("B" * 60, 150, 210), ("N" * 150, 210, 360)])
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode="both", output="passages")
    (passage,) = postprocess(augmenter, [NodeWithScore(node=nodes[1], score=1.0)])
    assert passage.node.text == "P" * 150 + "B" * 60 + "N" * 150
    pieces = read_provenance(passage.node).pieces
    assert [(p.start, p.end) for p in pieces] == [(0, 150), (150, 210), (210, 360)]
    assert [(p.source_start, p.source_end) for p in pieces] == [(0, 150), (150, 210), (210, 360)]
    assert (nodes[1].start_char_idx, nodes[1].end_char_idx) == (150, 210)


def test_a_repeated_table_header(postprocess: Postprocess):
    """If a chunk repeats a header and shared rows, only its new rows are appended."""
    header = "| item | price |\n|---|---|\n"
    rows = [f"| item {n} | {n}.50 |\n" for n in range(5)]
    first, second = header + "".join(rows[:3]), header + "".join(rows[2:])
    assert text_of(postprocess, [(first, 0, len(first)), (second, 60, 100)]) == header + "".join(rows)


def test_shared_and_contained_text(postprocess: Postprocess):
    """A boundary text of 20 characters appears once; contained text is kept, since it proves nothing."""
    boundary = "twenty characters 20"
    assert join_texts([f"before {boundary}", f"{boundary} after"]).text == f"before {boundary} after"
    assert join_texts([f"a {boundary} b", boundary]).text == f"a {boundary} b {boundary}"


def test_a_hole_is_marked():
    """A separator that belongs to no chunk marks the hole between [0,5) and [100,106)."""
    joined = join_texts([TextChunk("first", 0, 5, "d"), TextChunk("second", 100, 106, "d", follows=False)])
    assert joined.text == f"first{HOLE_SEPARATOR}second"
    assert [span for _, span in joined.tiles()] == [(0, 5), (5 + len(HOLE_SEPARATOR), len(joined.text))]


def test_an_edited_neighbor(postprocess: Postprocess):
    """The text is joined; the provenance marks it as not exact and claims no place."""
    nodes = document([("the neighbor, edited", 0, 90), ("B" * 60, 90, 150)])
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode="both", output="passages")
    (passage,) = postprocess(augmenter, [NodeWithScore(node=nodes[1], score=1.0)])
    provenance = read_provenance(passage.node)
    assert passage.node.text == "the neighbor, edited\n" + "B" * 60
    assert not provenance.exact
    assert [p.source_start for p in provenance.pieces] == [None, None]


def test_a_neighbor_equal_to_the_hit(postprocess: Postprocess):
    """A neighbor with the hit's text and no range of its own is kept: it is not an overlap."""
    nodes = linked_document(["the very same text", "the very same text"])
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), output="passages")
    (passage,) = postprocess(augmenter, [NodeWithScore(node=nodes[0], score=1.0)])
    assert passage.node.text == "the very same text the very same text"
    assert [p.node_id for p in read_provenance(passage.node).pieces] == [node.node_id for node in nodes]

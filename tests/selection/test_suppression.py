"""Choosing among overlapping windows."""

from __future__ import annotations

from helpers import ids
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from llama_index_ext_ctxaug.passages.provenance import read_provenance, whole_provenance
from llama_index_ext_ctxaug.selection.suppression import choose, in_document_order, merge
from llama_index_ext_ctxaug.windows.slices import cut_node, place_of


def windows(*places: tuple[str, int, int]) -> list[NodeWithScore]:
    """Return windows by node id, start and end; each node has 100 characters, and scores fall."""
    nodes = {id_: TextNode(id_=id_, text=id_ * 100) for id_ in "ab"}
    return [
        NodeWithScore(
            node=cut_node(nodes[id_], whole_provenance(nodes[id_]), start, end), score=1 - rank / 10
        )
        for rank, (id_, start, end) in enumerate(places)
    ]


def places(chosen: list[NodeWithScore]) -> list[tuple[str, int, int]]:
    """Return the places that windows were cut from."""
    return [tuple(place_of(hit.node)) for hit in chosen]


def test_half_of_a_window_may_be_shared() -> None:
    """A window that shares half of its text with a better one stays; one that shares more is dropped."""
    ranked = windows(("a", 0, 40), ("a", 20, 60), ("a", 59, 89), ("a", 19, 59), ("a", 0, 10), ("b", 0, 40))
    assert places(choose(ranked, 9, "suppress")) == [
        ("a", 0, 40), ("a", 20, 60), ("a", 59, 89), ("b", 0, 40),
    ]  # fmt: skip


def test_windows_that_gave_way_leave_their_places_to_others() -> None:
    """At most top_n windows are chosen, and a dropped window suppresses none."""
    ranked = windows(("a", 0, 40), ("a", 10, 50), ("a", 36, 76), ("a", 80, 100))
    assert places(choose(ranked, 2, "suppress")) == [("a", 0, 40), ("a", 36, 76)]


def test_windows_that_touch_are_merged_at_the_best_place() -> None:
    """Merged windows take the rank and score of the best of them; others keep their order."""
    ranked = windows(("a", 60, 70), ("b", 0, 10), ("a", 20, 40), ("a", 0, 20), ("a", 71, 80), ("a", 40, 60))
    chosen = merge(ranked)
    assert places(chosen) == [("a", 0, 70), ("b", 0, 10), ("a", 71, 80)]
    assert [hit.score for hit in chosen] == [ranked[0].score, ranked[1].score, ranked[4].score]
    assert places(merge(ranked[:4])) == [("a", 60, 70), ("b", 0, 10), ("a", 0, 40)]


def test_a_merged_group_ends_where_its_longest_window_does() -> None:
    """A window after one that lies inside another is merged with that other."""
    ranked = windows(("a", 0, 50), ("a", 10, 20), ("a", 45, 60))
    assert places(merge(ranked)) == [("a", 0, 60)]


def test_all_are_kept_on_demand() -> None:
    """With "keep" the first of the ranking are chosen, whatever they share."""
    ranked = windows(("a", 0, 40), ("a", 1, 41), ("a", 0, 40))
    assert choose(ranked, 2, "keep") == ranked[:2]


def test_documents_keep_their_order() -> None:
    """Windows are sorted by their place in a text, texts by their first window in the input."""
    incoming = windows(("b", 50, 60), ("a", 10, 20), ("b", 0, 10), ("a", 0, 5))
    chosen = [incoming[place] for place in (1, 3, 0, 2)]
    assert places(in_document_order(chosen, incoming)) == [
        ("b", 0, 10), ("b", 50, 60), ("a", 0, 5), ("a", 10, 20),
    ]  # fmt: skip


LINES = [f"Line {number} of the file.\n" for number in range(130)]


def lines(first: int, last: int, source: str = "file", parent: str | None = None) -> TextNode:
    """Return a chunk of lines of a file, with its offsets."""
    start = sum(map(len, LINES[:first]))
    text = "".join(LINES[first:last])
    id_ = f"{source}:{first}" if parent is None else f"{parent}:{first}"
    node = TextNode(id_=id_, text=text, start_char_idx=start, end_char_idx=start + len(text))
    node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=source)
    if parent is not None:
        node.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id=parent)
    return node


def scored(*nodes: TextNode) -> list[NodeWithScore]:
    """Return hits in this order."""
    return [NodeWithScore(node=node, score=1 - place / 100) for place, node in enumerate(nodes)]


def test_chunks_of_one_document_that_share_text() -> None:
    """Overlap of chunks from different nodes is known by their offsets in the document."""
    found = scored(lines(0, 60), lines(10, 70), lines(20, 80), lines(100, 120))
    assert ids(choose(found, 2, "suppress")) == ["file:0", "file:100"]
    assert ids(choose(found, 4, "keep")) == ids(found)


def test_offsets_that_are_of_other_texts_share_nothing() -> None:
    """Equal offsets in other documents or parents, or over other text, are not an overlap."""
    same_place = lines(0, 60)
    same_place.id_, same_place.text = "edited", same_place.text.upper()
    others = [lines(0, 60, source="other"), lines(0, 60, parent="P"), same_place]
    assert len(choose(scored(lines(0, 60), *others), 9, "suppress")) == 4


def test_chunks_in_the_order_of_their_document() -> None:
    """Offsets or chunk numbers order the chunks of a document; documents keep the order of the input."""
    found = scored(
        lines(90, 99), lines(5, 9, source="b"), lines(20, 29), lines(50, 59), lines(0, 3, source="b")
    )
    in_order = in_document_order(found, found)
    assert ids(in_order) == ["file:20", "file:50", "file:90", "b:0", "b:5"]
    numbered = [TextNode(id_=str(n), text="text", metadata={"chunk_id": float(n)}) for n in (9, 2, 15, 5)]
    for node in numbered:
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="doc")
    hits = scored(*numbered)
    assert ids(in_document_order(hits[1:], hits)) == ["2", "5", "15"]
    for node in numbered:
        node.metadata.clear()
    assert ids(in_document_order(hits, hits)) == ["9", "2", "15", "5"]


def test_chunks_of_one_document_are_merged_once_each() -> None:
    """Chunks that overlap in their document, even across a chunk, become one text with their pieces."""
    found = scored(lines(20, 80), lines(100, 120), lines(0, 60), lines(50, 70), lines(75, 99))
    merged = merge(found)
    assert [hit.node.text for hit in merged] == ["".join(LINES[0:99]), "".join(LINES[100:120])]
    assert [hit.score for hit in merged] == [found[0].score, found[1].score]
    node = merged[0].node
    assert (node.start_char_idx, node.end_char_idx) == (0, len(node.text))
    provenance = read_provenance(node)
    assert set(provenance.hits) == {"file:0", "file:20", "file:50", "file:75"}
    assert [piece.node_id for piece in provenance.pieces] == ["file:0", "file:20", "file:75"]
    text = "".join(LINES)
    for piece in provenance.pieces:
        assert text[piece.source_start : piece.source_end] == node.text[piece.start : piece.end]


def test_windows_of_overlapping_chunks_are_merged() -> None:
    """Windows cut from two chunks join across the chunks; the links of the outer chunks stay."""
    one, two = lines(0, 60), lines(50, 110)
    one.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id=two.node_id)
    two.relationships[NodeRelationship.PREVIOUS] = RelatedNodeInfo(node_id=one.node_id)
    two.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id="file:100")
    cut = [
        cut_node(node, whole_provenance(node), start, end)
        for node, start, end in (
            (two, 40, len(two.text)),
            (one, 0, 90),
            (two, 0, 60),
            (one, 90, len(one.text)),
        )
    ]
    (hit,) = merge(scored(*cut))
    assert hit.node.text == "".join(LINES[0:110])
    assert hit.node.prev_node is None
    assert hit.node.next_node.node_id == "file:100"


def test_text_that_only_looks_shared_is_not_merged() -> None:
    """Other documents, parents and sections, edited text and neighbors without overlap stay apart."""
    edited, section = lines(50, 70), lines(10, 70)
    edited.text = edited.text.upper()
    section.metadata["header_path"] = "/"
    others = [lines(0, 60, source="other"), lines(0, 60, parent="P"), edited, section, lines(60, 90)]
    found = scored(lines(0, 60), *others)
    assert [hit.node for hit in merge(found)] == [hit.node for hit in found]

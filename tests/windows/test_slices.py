"""Parts of nodes, and parts joined again."""

from __future__ import annotations

import pytest
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from llama_index_ext_ctxaug import Piece, Provenance, read_provenance
from llama_index_ext_ctxaug.passages.provenance import whole_provenance, with_provenance
from llama_index_ext_ctxaug.windows.slices import cut_node, join_overlapping, place_of

TEXT = "abcdefghijklmnopqrstuvwxyz"


def passage(*pieces: tuple[str, int, int], exact: bool = True) -> TextNode:
    """Return a passage over the alphabet, with these pieces: node id, start and end."""
    made = tuple(Piece(id_, "hit", (id_,), 0, start, end) for id_, start, end in pieces)
    node = TextNode(id_="p", text=TEXT)
    return with_provenance(node, Provenance("passage", ("x", "y"), pieces=made, exact=exact))  # type: ignore[return-value]


def part(node: TextNode, start: int, end: int, score: float | None = None) -> NodeWithScore:
    """A part of a node, with a score."""
    return NodeWithScore(node=cut_node(node, whole_provenance(node), start, end), score=score)


def piece_places(hit: NodeWithScore) -> list[tuple[str, int, int]]:
    """The pieces of a node: node id, start and end."""
    return [(piece.node_id, piece.start, piece.end) for piece in read_provenance(hit.node).pieces]


def test_a_part_between_the_pieces_belongs_to_all_hits() -> None:
    """A part that holds only a separator names the hits of the passage that it was cut from."""
    node = passage(("x", 0, 10), ("y", 20, 26))
    between = read_provenance(part(node, 12, 18).node)
    assert (between.hits, between.pieces) == (("x", "y"), ())
    assert read_provenance(part(node, 12, 22).node).hits == ("y",)


@pytest.mark.parametrize("role", ["neighbor", "parent"])
def test_a_part_of_an_added_node_says_what_that_was(role: str) -> None:
    """The piece of a neighbor's or parent's part has its role, hits and hops."""
    node = with_provenance(TextNode(id_="n", text=TEXT), Provenance(role, ("h",), 2))  # type: ignore[arg-type]
    (piece,) = read_provenance(part(node, 3, 9).node).pieces  # type: ignore[arg-type]
    assert (piece.node_id, piece.role, piece.hits, piece.hops) == ("n", role, ("h",), 2)


@pytest.mark.parametrize(("end", "place"), [(126, (103, 109)), (120, (None, None)), (None, (None, None))])
def test_offsets_of_a_part(end: int | None, place: tuple[int | None, int | None]) -> None:
    """A part has offsets if those of its node match the length of its text, and no embedding."""
    node = TextNode(id_="n", text=TEXT, start_char_idx=100, end_char_idx=end, embedding=[1.0])
    cut = part(node, 3, 9).node
    assert (cut.start_char_idx, cut.end_char_idx) == place
    (piece,) = read_provenance(cut).pieces
    assert (piece.source_start, piece.source_end) == place
    assert cut.embedding is None
    assert place_of(cut) == ("n", 3, 9)


def test_a_part_of_a_part_counts_from_the_first_node() -> None:
    """Cut twice, a part has its place in the node that was cut first."""
    once = part(TextNode(id_="n", text=TEXT), 5, 20).node
    assert place_of(part(once, 2, 6).node) == ("n", 7, 11)


def test_parts_that_overlap_become_one() -> None:
    """Joined parts are the slice that both cover, each character once, with one piece per node."""
    node = passage(("x", 0, 10), ("y", 12, 26))
    joined = join_overlapping(part(node, 2, 15, 0.3), part(node, 8, 20, 0.7), 6)
    assert joined.node.text == TEXT[2:20]
    assert joined.score == 0.7
    assert place_of(joined.node) == ("p", 2, 20)
    assert piece_places(joined) == [("x", 0, 8), ("y", 10, 18)]
    assert read_provenance(joined.node).hits == ("x", "y")


def test_parts_that_touch_become_one() -> None:
    """A part that begins where the other ends is joined to it, and pieces of one node become one."""
    node = TextNode(id_="n", text=TEXT, start_char_idx=100, end_char_idx=126)
    around = {NodeRelationship.PREVIOUS: "m", NodeRelationship.NEXT: "o", NodeRelationship.SOURCE: "d"}
    node.relationships = {side: RelatedNodeInfo(node_id=id_) for side, id_ in around.items()}
    joined = join_overlapping(part(node, 0, 10), part(node, 10, 26), 10)
    assert (joined.node.text, joined.score) == (TEXT, None)
    (piece,) = read_provenance(joined.node).pieces
    assert (piece.start, piece.end, piece.source_start, piece.source_end) == (0, 26, 100, 126)
    assert joined.node.relationships == node.relationships


@pytest.mark.parametrize("end", [12, 15])
def test_a_part_that_lies_in_the_other_adds_nothing(end: int) -> None:
    """The larger part stays, with the better of the two scores."""
    node = TextNode(id_="n", text=TEXT)
    larger = part(node, 2, 15, -1.0)
    joined = join_overlapping(larger, part(node, 5, end, 0.0), 3)
    assert joined.node is larger.node
    assert joined.score == 0.0


def test_what_is_not_certain_of_one_part_is_not_of_both() -> None:
    """Joined parts are exact only if both are."""
    certain, unsure = passage(("x", 0, 26)), passage(("x", 0, 26), exact=False)
    for first, second, exact in (
        (certain, unsure, False),
        (unsure, certain, False),
        (certain, certain, True),
    ):
        joined = join_overlapping(part(first, 0, 10), part(second, 5, 20), 5)
        assert read_provenance(joined.node).exact == exact

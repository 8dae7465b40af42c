"""LlamaIndex's own prev/next postprocessor, as its users rely on it."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from pydantic import ValidationError

from llama_index_ext_ctxaug import PrevNextNodePostprocessor
from llama_index_ext_ctxaug.testing import docstore_of, hits, linked_document


def places(result: list[NodeWithScore], nodes: list[TextNode]) -> list[int]:
    """Return the result as positions in the document."""
    order = {node.node_id: place for place, node in enumerate(nodes)}
    return [order[hit.node.node_id] for hit in result]


@pytest.mark.parametrize(
    ("mode", "num_nodes", "retrieved", "expected"),
    [
        ("next", 2, [0], [0, 1, 2]),
        ("next", 1, [1, 2], [1, 2, 3]),
        ("previous", 1, [1, 2], [0, 1, 2]),
        ("both", 1, [2], [1, 2, 3]),
        ("both", 4, [2], [0, 1, 2, 3, 4]),
        ("both", 1, [0, 4], [0, 1, 3, 4]),
        ("both", 0, [0, 4], [0, 4]),
        ("both", 1, [3, 0], [0, 1, 2, 3, 4]),
        ("both", 1, [0, 3], [0, 1, 2, 3, 4]),
        ("previous", 1, [3, 0, 2], [0, 1, 2, 3]),
        ("both", 1, [3, 1, 3], [0, 1, 2, 3, 4]),
        ("both", 1, [], []),
    ],
)
def test_windows_over_a_chain_of_five(
    postprocess: Any, mode: str, num_nodes: int, retrieved: list[int], expected: list[int]
) -> None:
    """Windows are in document order, joined if they touch, without repeated nodes."""
    nodes = linked_document(5)
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode=mode, num_nodes=num_nodes)
    assert places(postprocess(augmenter, hits(nodes, retrieved)), nodes) == expected


@pytest.mark.parametrize(
    "wrong", [{"mode": "forward"}, {"num_nodes": -1}, {"num_previous": -1}, {"num_next": -2}, {"nodes": 3}]
)
def test_wrong_parameters_are_refused_at_construction(wrong: dict[str, Any]) -> None:
    """Unknown modes, negative counts and unknown names raise an error that lists what is allowed."""
    with pytest.raises(ValidationError) as caught:
        PrevNextNodePostprocessor(docstore=SimpleDocumentStore(), **wrong)
    assert isinstance(caught.value, ValueError)
    message = str(caught.value)
    assert next(iter(wrong)) in message
    assert any(
        word in message for word in ("'previous', 'next' or 'both'", "greater than or equal to 0", "extra")
    )


def test_one_sided_links_order_the_hits(postprocess: Any) -> None:
    """Hits with only NEXT links are returned in document order, without reading the store."""
    nodes = linked_document(4, links="next")
    augmenter = PrevNextNodePostprocessor(docstore=SimpleDocumentStore(), num_nodes=0)
    assert places(postprocess(augmenter, hits(nodes, [3, 0, 1, 2])), nodes) == [0, 1, 2, 3]


def test_hits_are_the_same_objects(postprocess: Any) -> None:
    """The order changes; objects and scores (None, 0.0) do not."""
    nodes = linked_document(4)
    retrieved = hits(nodes, [3, 0, 1, 2], [0.9, 0.8, None, 0.0])
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), num_nodes=0)
    result = postprocess(augmenter, retrieved)
    assert [hit.score for hit in result] == [0.8, None, 0.0, 0.9]
    assert [id(hit) for hit in result] == [id(retrieved[i]) for i in (1, 2, 3, 0)]


@pytest.mark.parametrize("links", [{0: 0}, {0: 1, 1: 2, 2: 0}], ids=["self", "ring"])
def test_rings_end(postprocess: Any, links: dict[int, int]) -> None:
    """If links form a ring or lead to their own node, every node is returned exactly once."""
    nodes = linked_document(3, links="none")
    for before, after in links.items():
        nodes[before].relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id=nodes[after].node_id)
        nodes[after].relationships[NodeRelationship.PREVIOUS] = RelatedNodeInfo(node_id=nodes[before].node_id)
    for num_nodes in (0, 2):
        augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), num_nodes=num_nodes, mode="both")
        assert sorted(places(postprocess(augmenter, hits(nodes, [1, 0, 2])), nodes)) == [0, 1, 2]


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 0, 1]])
def test_a_contradicting_link_is_ignored(postprocess: Any, order: list[int]) -> None:
    """D names B as its previous node, but B and C agree on each other: A, B, C stay together."""
    nodes = [*linked_document(3), TextNode(id_="d", text="D")]
    nodes[3].relationships = {
        NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc"),
        NodeRelationship.PREVIOUS: RelatedNodeInfo(node_id=nodes[1].node_id),
    }
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), num_nodes=0)
    result = places(postprocess(augmenter, hits(nodes, order)), nodes)
    assert result in ([0, 1, 2, 3], [3, 0, 1, 2])


@pytest.mark.parametrize(
    ("mode", "num_nodes", "retrieved", "expected"),
    [
        ("next", 1, {1: 0.9, 0: 0.8}, {0: 0.8, 1: 0.9, 2: None}),
        ("both", 1, {1: 0.9, 0: 0.8}, {0: 0.8, 1: 0.9, 2: None}),
        ("next", 2, {0: 0.8}, {0: 0.8, 1: None, 2: None}),
    ],
)
def test_a_hit_keeps_its_score(
    postprocess: Any,
    mode: str,
    num_nodes: int,
    retrieved: dict[int, float],
    expected: dict[int, float | None],
) -> None:
    """A hit that neighbors another hit keeps its own score; other neighbors have none by default."""
    nodes = linked_document(3)
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode=mode, num_nodes=num_nodes)
    result = postprocess(augmenter, hits(nodes, retrieved, retrieved.values()))
    assert dict(zip(places(result, nodes), [hit.score for hit in result], strict=True)) == expected


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("previous", [0, 1, 4, 5, 6]), ("next", [1, 2, 3, 6, 7, 8]), ("both", [0, 1, 2, 3, 4, 5, 6, 7, 8])],
)
def test_two_hits_far_apart(postprocess: Any, mode: str, expected: list[int]) -> None:
    """Two windows of two chunks become one run if they touch."""
    nodes = linked_document(10)
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode=mode, num_nodes=2)
    assert places(postprocess(augmenter, hits(nodes, [1, 6])), nodes) == expected


@pytest.mark.parametrize("mode", ["previous", "next", "both"])
def test_nothing_to_add(postprocess: Any, mode: str) -> None:
    """Hits without links, or hits that cover the whole document, are returned unchanged."""
    loose = [TextNode(id_=name, text=name) for name in "cab"]
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(loose), mode=mode, num_nodes=2)
    assert places(postprocess(augmenter, hits(loose, [0, 1, 2])), loose) == [0, 1, 2]

    nodes = linked_document(10)
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode=mode, num_nodes=2)
    assert places(postprocess(augmenter, hits(nodes, range(10))), nodes) == list(range(10))

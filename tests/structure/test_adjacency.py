"""Adjacency: each rung of the ladder, alone and in turn."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from llama_index_ext_ctxaug import PrevNextNodePostprocessor
from llama_index_ext_ctxaug.testing import ObservedDocstore, docstore_of, hits, linked_document


def places(result: list[Any], nodes: list[TextNode]) -> list[int]:
    """The result as positions in the document."""
    order = {node.node_id: place for place, node in enumerate(nodes)}
    return [order[hit.node.node_id] for hit in result]


def with_parent(nodes: list[TextNode], parent_id: str, lists: bool = True) -> TextNode:
    """A parent of these nodes, which lose their own links."""
    for node in nodes:
        node.relationships = {
            NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc"),
            NodeRelationship.PARENT: RelatedNodeInfo(node_id=parent_id),
        }
    parent = TextNode(id_=parent_id, text=" ".join(node.text for node in nodes))
    parent.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="doc")
    if lists:
        parent.relationships[NodeRelationship.CHILD] = [node.as_related_node_info() for node in nodes]
    return parent


def test_the_parents_list(postprocess: Any) -> None:
    """Rung 3: children without links are in the order of their parent's list, up to its edge if so wanted."""
    nodes = linked_document(6)
    first, second = with_parent(nodes[:3], "P"), with_parent(nodes[3:], "Q")
    store = docstore_of([nodes[5], nodes[1], nodes[0]], [first, second], [nodes[4], nodes[2], nodes[3]])
    augmenter = PrevNextNodePostprocessor(docstore=store, mode="both", num_nodes=4, across_parents=False)
    assert places(postprocess(augmenter, hits(nodes, [1])), nodes) == [0, 1, 2]
    assert places(postprocess(augmenter, hits(nodes, [4, 0])), nodes) == [3, 4, 5, 0, 1, 2]


def test_the_documents_list_within_one_parent(postprocess: Any) -> None:
    """Rung 4: where the parent lists nothing, the document's list counts among nodes of that parent."""
    nodes = linked_document(6)
    parents = [with_parent(nodes[:3], "P", lists=False), with_parent(nodes[3:], "Q", lists=False)]
    augmenter = PrevNextNodePostprocessor(
        docstore=docstore_of(parents, nodes), mode="both", num_nodes=4, across_parents=False
    )
    assert places(postprocess(augmenter, hits(nodes, [1])), nodes) == [0, 1, 2]


@pytest.mark.parametrize("offsets", [False, True])
def test_nodes_that_know_their_document_alone(postprocess: Any, offsets: bool) -> None:
    """Rung 4: without any links the document's list is the order; offsets correct a list that is not."""
    nodes = linked_document(6, links="none", offsets=offsets)
    shuffled = [nodes[place] for place in (3, 0, 5, 1, 4, 2)]
    stored = shuffled if offsets else nodes
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(stored), mode="both", num_nodes=2)
    assert places(postprocess(augmenter, hits(nodes, [2])), nodes) == [0, 1, 2, 3, 4]
    touching = PrevNextNodePostprocessor(docstore=docstore_of(stored), num_nodes=1)
    assert places(postprocess(touching, hits(nodes, [2, 0])), nodes) == [0, 1, 2, 3]


def test_own_relationships_come_first(postprocess: Any) -> None:
    """Rung 1 wins over all others: metadata that names another node is not asked."""
    nodes = linked_document(4)
    nodes[1].metadata["next_id"] = nodes[3].node_id
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes))
    assert places(postprocess(augmenter, hits(nodes, [1])), nodes) == [1, 2]
    nodes[1].relationships.pop(NodeRelationship.NEXT)
    nodes[2].relationships.pop(NodeRelationship.PREVIOUS)
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes))
    assert places(postprocess(augmenter, hits(nodes, [1])), nodes) == [1, 3]


def test_repair_can_be_turned_off(postprocess: Any) -> None:
    """With repair_links=False only own relationships count, and nothing else is read."""
    nodes = linked_document(4, links="previous")
    store = ObservedDocstore(docstore_of(nodes))
    augmenter = PrevNextNodePostprocessor(docstore=store, mode="both", num_nodes=3, repair_links=False)
    assert places(postprocess(augmenter, hits(nodes, [2])), nodes) == [0, 1, 2]
    assert store.document_reads == []


def test_a_hit_that_lost_its_document(postprocess: Any) -> None:
    """A hit without SOURCE, but with links, takes its document from the stored copy."""
    nodes = linked_document(3)
    bare = nodes[0].model_copy(deep=True)
    bare.relationships.pop(NodeRelationship.SOURCE)
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), num_nodes=2)
    assert len(postprocess(augmenter, hits([bare], [0]))) == 3


def test_the_end_of_a_document_costs_no_further_round(postprocess: Any) -> None:
    """A hit at the end of a tidy document is looked into in the round that reads the others' neighbors."""
    nodes = linked_document(9)
    store = ObservedDocstore(docstore_of(nodes))
    postprocess(PrevNextNodePostprocessor(docstore=store, num_nodes=1), hits(nodes, [8, 2]))
    assert len(store.batches) == 1


def test_pages_of_several_levels(postprocess: Any) -> None:
    """With document_key an empty page is passed over, and chunks of other levels are not the page's edge."""
    pages = {
        label: linked_document(2, source_id=f"p{label}", metadata={"file_path": "f", "page_label": label})
        for label in ("1", "3")
    }
    child = TextNode(id_="child", text="part", metadata={"file_path": "f", "page_label": "3"})
    child.relationships = {
        NodeRelationship.SOURCE: RelatedNodeInfo(node_id="p3"),
        NodeRelationship.PARENT: RelatedNodeInfo(node_id=pages["3"][0].node_id),
    }
    store = docstore_of([child, *pages["3"]], pages["1"])
    augmenter = PrevNextNodePostprocessor(docstore=store, num_nodes=3, document_key="file_path")
    result = postprocess(augmenter, hits(pages["1"], [0]))
    assert [hit.node.node_id for hit in result] == [n.node_id for n in [*pages["1"], *pages["3"]]]


@pytest.mark.parametrize("links", ["both", "previous", "next", "none"])
def test_growth_enters_a_page_at_its_edge(postprocess: Any, links: Any) -> None:
    """The first or last chunk of a page is found by links of either kind, else by the document's list."""
    pages = [
        linked_document(3, source_id=f"p{n}", links=links, metadata={"file_path": "f", "page_label": str(n)})
        for n in range(3)
    ]
    orders = [0, 1, 2] if links == "none" else [1, 2, 0]
    store = docstore_of(*([page[place] for place in orders] for page in pages))
    augmenter = PrevNextNodePostprocessor(docstore=store, num_nodes=4, mode="both", document_key="file_path")
    result = postprocess(augmenter, hits(pages[1], [1]))
    assert [hit.node.node_id for hit in result] == [node.node_id for page in pages for node in page]

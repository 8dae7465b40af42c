"""Adjacency: each rung of the ladder, alone and in order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from helpers import ids
from llama_index.core.node_parser import HierarchicalNodeParser, get_leaf_nodes
from llama_index.core.schema import Document, NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from llama_index_ext_ctxaug import PrevNextNodePostprocessor
from llama_index_ext_ctxaug.testing import ObservedDocstore, docstore_of, hits, linked_document


def places(result: list[Any], nodes: list[TextNode]) -> list[int]:
    """Return the result as positions in the document."""
    order = {node.node_id: place for place, node in enumerate(nodes)}
    return [order[hit.node.node_id] for hit in result]


def with_parent(nodes: list[TextNode], parent_id: str, lists: bool = True) -> TextNode:
    """Return a parent of these nodes, which lose their own links."""
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
    """Rung 3: children without links follow their parent's list, up to its edge if requested."""
    nodes = linked_document(6)
    first, second = with_parent(nodes[:3], "P"), with_parent(nodes[3:], "Q")
    store = docstore_of([nodes[5], nodes[1], nodes[0]], [first, second], [nodes[4], nodes[2], nodes[3]])
    augmenter = PrevNextNodePostprocessor(docstore=store, mode="both", num_nodes=4, across_parents=False)
    assert places(postprocess(augmenter, hits(nodes, [1])), nodes) == [0, 1, 2]
    assert places(postprocess(augmenter, hits(nodes, [4, 0])), nodes) == [3, 4, 5, 0, 1, 2]


def test_the_documents_list_within_one_parent(postprocess: Any) -> None:
    """Rung 4: if the parent lists nothing, the document's list counts among the nodes of that parent."""
    nodes = linked_document(6)
    parents = [with_parent(nodes[:3], "P", lists=False), with_parent(nodes[3:], "Q", lists=False)]
    augmenter = PrevNextNodePostprocessor(
        docstore=docstore_of(parents, nodes), mode="both", num_nodes=4, across_parents=False
    )
    assert places(postprocess(augmenter, hits(nodes, [1])), nodes) == [0, 1, 2]


@pytest.mark.parametrize("offsets", [False, True])
def test_nodes_that_know_their_document_alone(postprocess: Any, offsets: bool) -> None:
    """Rung 4: without any links the document's list is the order, unless offsets correct it."""
    nodes = linked_document(6, links="none", offsets=offsets)
    shuffled = [nodes[place] for place in (3, 0, 5, 1, 4, 2)]
    stored = shuffled if offsets else nodes
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(stored), mode="both", num_nodes=2)
    assert places(postprocess(augmenter, hits(nodes, [2])), nodes) == [0, 1, 2, 3, 4]
    touching = PrevNextNodePostprocessor(docstore=docstore_of(stored), num_nodes=1)
    assert places(postprocess(touching, hits(nodes, [2, 0])), nodes) == [0, 1, 2, 3]


def test_own_relationships_come_first(postprocess: Any) -> None:
    """Rung 1 takes precedence over all others: metadata that names another node is ignored."""
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
    """A hit with links but without SOURCE takes its document from the stored copy."""
    nodes = linked_document(3)
    bare = nodes[0].model_copy(deep=True)
    bare.relationships.pop(NodeRelationship.SOURCE)
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), num_nodes=2)
    assert len(postprocess(augmenter, hits([bare], [0]))) == 3


def test_the_end_of_a_document_costs_no_further_round(postprocess: Any) -> None:
    """A hit at the end of a tidy document is checked in the round that reads the others' neighbors."""
    nodes = linked_document(9)
    store = ObservedDocstore(docstore_of(nodes))
    postprocess(PrevNextNodePostprocessor(docstore=store, num_nodes=1), hits(nodes, [8, 2]))
    assert len(store.batches) == 1


def test_pages_of_several_levels(postprocess: Any) -> None:
    """With document_key an empty page is skipped, and chunks of other levels are not the page's edge."""
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
    """The first or last chunk of a page is found by links of either kind, or by the document's list."""
    pages = [
        linked_document(3, source_id=f"p{n}", links=links, metadata={"file_path": "f", "page_label": str(n)})
        for n in range(3)
    ]
    orders = [0, 1, 2] if links == "none" else [1, 2, 0]
    store = docstore_of(*([page[place] for place in orders] for page in pages))
    augmenter = PrevNextNodePostprocessor(docstore=store, num_nodes=4, mode="both", document_key="file_path")
    result = postprocess(augmenter, hits(pages[1], [1]))
    assert [hit.node.node_id for hit in result] == [node.node_id for page in pages for node in page]


def pdf(tenant: str, labels: list[str], key: str = "tenant", **metadata: str) -> list[TextNode]:
    """Return the pages of a tenant's file, one chunk each; a metadata key names the tenant."""
    return [
        linked_document(
            [f"Page {label} of {tenant}."],
            source_id=f"{tenant}-{label}",
            metadata={key: tenant, "file_name": "README.md", "page_label": label, **metadata},
        )[0]
        for label in labels
    ]


@pytest.mark.parametrize("store_order", ["in order", "reversed"])
def test_many_pages_take_three_round_trips(postprocess: Any, store_order: str) -> None:
    """The pages of a file within reach are read together."""
    pages = pdf("a", [str(number) for number in range(1, 13)])
    stored = pages if store_order == "in order" else pages[::-1]
    store = ObservedDocstore(docstore_of(*([page] for page in stored)))
    augmenter = PrevNextNodePostprocessor(docstore=store, mode="both", num_nodes=11, document_key="file_name")
    assert ids(postprocess(augmenter, hits(pages, [5]))) == ids(pages)
    assert len(store.batches) <= 3
    assert len(store.node_reads) == len(set(store.node_reads))


@pytest.mark.parametrize("key", ["tenant", "user_id", "ownerName"])
@pytest.mark.parametrize("labels", [["1", "2", "3"], ["3", "4"], ["i", "ii"]], ids=str)
def test_files_of_two_owners_are_two(
    postprocess: Any, caplog: pytest.LogCaptureFixture, key: str, labels: list[str]
) -> None:
    """Pages with another owner in their metadata are of another file, whatever their labels: one warning."""
    first, second = pdf("a", ["1", "2"], key), pdf("b", labels, key)
    store = docstore_of(*([page] for page in (*first, *second)))
    augmenter = PrevNextNodePostprocessor(docstore=store, mode="both", num_nodes=5, document_key="file_name")
    assert ids(postprocess(augmenter, hits(first, [0]))) == ids(first)
    assert len(caplog.records) == 1
    assert f"{key}=" in caplog.text
    assert ids(postprocess(augmenter, hits(second, [1]))) == ids(second)
    caplog.clear()
    apart = augmenter.model_copy(update={"document_key": (key, "file_name")})
    assert ids(postprocess(apart, hits(second, [1]))) == ids(second)
    assert not caplog.records


@pytest.mark.parametrize("places", [("/a/README.md", "/b/README.md"), ("C:\\a\\README.md", "README.md")])
def test_files_at_two_places_are_two(
    postprocess: Any, caplog: pytest.LogCaptureFixture, places: tuple[str, str]
) -> None:
    """Pages with another path in their metadata are of another file; other paths say nothing."""
    first, second = (
        pdf(tenant, labels, key="id", path=place)
        for tenant, labels, place in zip("ab", (["1", "2", "3"], ["4", "5", "6"]), places, strict=True)
    )
    for number, page in enumerate((*first, *second)):
        page.metadata |= {"id": "same", "scan": f"/scans/{number}.png"}
    store = docstore_of(*([page] for page in (*first, *second)))
    augmenter = PrevNextNodePostprocessor(docstore=store, mode="both", num_nodes=5, document_key="file_name")
    assert ids(postprocess(augmenter, hits(first, [0]))) == ids(first)
    assert ids(postprocess(augmenter, hits(second, [1]))) == ids(second)
    assert ["path=" in record.getMessage() for record in caplog.records] == [True, True]


@pytest.mark.parametrize("labels", [["1", "2", "3"], ["3", "4"], ["3"]], ids=str)
def test_pages_that_may_be_of_two_files(
    postprocess: Any, caplog: pytest.LogCaptureFixture, labels: list[str]
) -> None:
    """A repeated label keeps pages apart, and metadata that may separate files are named: one warning."""
    first, second = pdf("a", ["1", "2"], "mandant"), pdf("b", labels, "mandant")
    store = docstore_of(*([page] for page in (*first, *second)))
    augmenter = PrevNextNodePostprocessor(docstore=store, mode="both", num_nodes=5, document_key="file_name")
    found = ids(postprocess(augmenter, hits(first, [0, 1])))
    assert found == (ids(first) if "1" in labels else ids([*first, *second]))
    (message,) = [record.getMessage() for record in caplog.records]
    for part in ("'a-1'", "'b-1'") if "1" in labels else ("'a-2'", "'b-3'", "'mandant'"):
        assert part in message
    assert "document_key" in message
    caplog.clear()
    apart = augmenter.model_copy(update={"document_key": ("mandant", "file_name")})
    assert ids(postprocess(apart, hits(second, [0]))) == ids(second)
    assert ids(postprocess(apart, hits(first, [0]))) == ids(first)
    assert not caplog.records


def test_what_differs_from_page_to_page_is_no_file(
    postprocess: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Titles and numbers of pages, and metadata that parsers write for chunks, give no warning."""
    pages = pdf("a", ["1", "2", "3", "4"])
    for number, page in enumerate(pages):
        page.metadata |= {
            "title": f"Title {number}",
            "page": number // 2,
            "header_path": "/" * (1 + number % 2),
        }
        page.metadata |= {"text_before": "x" * (200 + number % 2), "has_table": number == 1}
    store = docstore_of(*([page] for page in pages))
    augmenter = PrevNextNodePostprocessor(docstore=store, mode="both", num_nodes=5, document_key="file_name")
    assert ids(postprocess(augmenter, hits(pages, [1]))) == ids(pages)
    assert not caplog.records


def test_pages_that_are_nodes_themselves(postprocess: Any) -> None:
    """With document_key, documents indexed as nodes have the neighboring pages of their file."""
    pages = [
        Document(text=f"Page {n}.", id_=f"p{n}", metadata={"file_path": "f.pdf", "page_label": str(n)})
        for n in range(1, 5)
    ]
    other = Document(text="Other.", id_="other", metadata={"file_path": "g.pdf", "page_label": "1"})
    store = ObservedDocstore(docstore_of([pages[2], other, pages[0], pages[3], pages[1]]))
    augmenter = PrevNextNodePostprocessor(docstore=store, mode="both", num_nodes=2, document_key="file_path")
    assert ids(postprocess(augmenter, [NodeWithScore(node=pages[1])])) == ids(pages)
    alone = augmenter.model_copy(update={"document_key": None})
    assert ids(postprocess(alone, [NodeWithScore(node=pages[1])])) == ["p2"]
    (passage,) = postprocess(
        augmenter.model_copy(update={"output": "passages"}), [NodeWithScore(node=pages[1])]
    )
    assert passage.node.text.split() == ["Page", "1.", "Page", "2.", "Page", "3.", "Page", "4."]


def test_page_labels_of_several_numberings(postprocess: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The reader's order counts, as a guess if labels do not confirm it."""
    pages = pdf("a", ["A", "B", "i", "ii", "1", "2"])
    store = docstore_of(*([page] for page in pages))
    augmenter = PrevNextNodePostprocessor(docstore=store, mode="both", num_nodes=5, document_key="file_name")
    assert ids(postprocess(augmenter, hits(pages, [2]))) == ids(pages)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("PrevNextNodePostprocessor: 3 neighbors are a guess")


@pytest.mark.parametrize("absent", [None, float("nan"), "nan", "None", "", np.nan])
def test_absent_ids_in_metadata(postprocess: Any, caplog: pytest.LogCaptureFixture, absent: Any) -> None:
    """Values that data frames use for missing ids name no neighbor."""
    node = TextNode(id_="a", text="a", metadata={"prev_id": absent, "next_id": absent})
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of([node]), mode="both", strict=True)
    assert ids(postprocess(augmenter, hits([node], [0]))) == ["a"]
    assert not caplog.records


@pytest.mark.parametrize("number", [int, float, str, np.int64, np.float32, lambda n: f"{n}.0"])
@pytest.mark.parametrize("key", ["split_id", "chunk_id", "my_number"])
def test_numbers_in_metadata(postprocess: Any, key: str, number: Any) -> None:
    """Chunk numbers of any kind order nodes that were stored in another order."""
    nodes = linked_document(6, links="none")
    for place, node in enumerate(nodes):
        node.metadata[key] = number(place + 8)
    store = docstore_of([nodes[place] for place in (3, 0, 5, 1, 4, 2)])
    augmenter = PrevNextNodePostprocessor(
        docstore=store, mode="both", num_nodes=2, number_keys=["split_id", "chunk_id", "my_number"]
    )
    assert places(postprocess(augmenter, hits(nodes, [2])), nodes) == [0, 1, 2, 3, 4]


def test_ids_in_metadata_of_a_shuffled_store(postprocess: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Ids in metadata precede the order of insertion, even if only one side names the other."""
    nodes = linked_document(6, links="none")
    for before, after in pairwise(nodes):
        after.metadata["prev_id"] = before.node_id
    store = docstore_of([nodes[place] for place in (3, 0, 5, 1, 4, 2)])
    augmenter = PrevNextNodePostprocessor(docstore=store, mode="both", num_nodes=2)
    assert places(postprocess(augmenter, hits(nodes, [2])), nodes) == [0, 1, 2, 3, 4]
    assert not caplog.records


def test_an_order_of_insertion_that_numbers_contradict(postprocess: Any) -> None:
    """If some nodes carry a number, insertion order is no evidence for the others."""
    nodes = linked_document(4, links="none")
    nodes[0].metadata["split_id"] = 0
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode="both", num_nodes=2)
    assert places(postprocess(augmenter, hits(nodes, [2])), nodes) == [2]


def test_an_order_of_insertion_is_said_to_be_a_guess(
    postprocess: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """If nodes carry nothing, insertion order counts, and one warning names the guess and the remedy."""
    nodes = linked_document(5, links="none")
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode="both", num_nodes=1)
    assert places(postprocess(augmenter, hits(nodes, [1, 3])), nodes) == [0, 1, 2, 3, 4]
    (message,) = [record.getMessage() for record in caplog.records]
    assert "4 neighbors are a guess" in message
    assert "NeighborLinker" in message


@pytest.mark.parametrize("hops", [1, 2, 3, 6])
def test_over_the_edge_of_a_parent(postprocess: Any, hops: int) -> None:
    """Leaves continue with the next parent's first leaf, in few round trips."""
    text = " ".join(f"Sentence number {n} says a little." for n in range(200))
    parser = HierarchicalNodeParser.from_defaults(chunk_sizes=[1024, 256, 64], chunk_overlap=0)
    nodes = parser.get_nodes_from_documents([Document(text=text)])
    leaves = get_leaf_nodes(nodes)
    rounds: list[int] = []
    for place in range(len(leaves)):
        store = ObservedDocstore(docstore_of(nodes))
        augmenter = PrevNextNodePostprocessor(docstore=store, mode="both", num_nodes=hops)
        found = postprocess(augmenter, hits(leaves, [place]))
        assert ids(found) == ids(leaves[max(0, place - hops) : place + hops + 1])
        rounds.append(len(store.batches))
    assert max(rounds) <= 5, rounds

"""Reported faults about neighbors, each with the correct result."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import Any

import pytest
from helpers import ids
from llama_index.core import Document
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser import (
    HierarchicalNodeParser,
    MarkdownNodeParser,
    SentenceSplitter,
    get_leaf_nodes,
)
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.schema import BaseNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_index_ext_ctxaug import MissingNodeError, PrevNextNodePostprocessor
from llama_index_ext_ctxaug.testing import ObservedDocstore, docstore_of, hits, linked_document

PROSE = " ".join(f"Sentence number {number} tells of the sea." for number in range(300))


def node_ids(nodes: list[Any]) -> list[str]:
    """The ids of nodes, in order."""
    return [node.node_id for node in nodes]


@pytest.mark.parametrize("mode", ["previous", "next", "both"])
@pytest.mark.parametrize("stored", [[], [1]], ids=["empty", "hit alone"])
def test_neighbors_that_are_not_in_the_docstore(
    postprocess: Any, caplog: pytest.LogCaptureFixture, mode: str, stored: list[int]
) -> None:
    """The hit is returned unchanged with one warning; strict=True raises."""
    nodes = linked_document(3)
    store = docstore_of([nodes[place] for place in stored])
    retrieved = hits(nodes, [1])
    with caplog.at_level(logging.WARNING):
        result = postprocess(PrevNextNodePostprocessor(docstore=store, mode=mode), retrieved)
    assert result == retrieved
    assert result[0] is retrieved[0]
    assert len(caplog.messages) == 1
    if stored:
        first = nodes[2 if mode == "next" else 0].node_id
        assert repr(first) in caplog.messages[0]
    else:
        assert "0 of 1 hits are in this docstore" in caplog.messages[0]
        assert "docstore.add_documents(nodes)" in caplog.messages[0]
    with pytest.raises(MissingNodeError):
        postprocess(PrevNextNodePostprocessor(docstore=store, mode=mode, strict=True), retrieved)


def test_the_docstore_of_a_pipeline_holds_documents(
    postprocess: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Hits are returned unchanged, and the warning reports that the docstore does not hold the chunks."""
    store = SimpleDocumentStore()
    pipeline = IngestionPipeline(
        transformations=[SentenceSplitter(chunk_size=64, chunk_overlap=0)], docstore=store
    )
    nodes = pipeline.run(documents=[Document(text=PROSE)])
    augmenter = PrevNextNodePostprocessor(docstore=store)
    retrieved = hits(nodes, [3, 4])
    assert postprocess(augmenter, retrieved) == retrieved
    assert "0 of 2 hits" in caplog.text
    store.add_documents(nodes)
    assert ids(postprocess(augmenter, retrieved)) == node_ids(nodes[3:6])


def test_a_sample_of_the_corpus(postprocess: Any) -> None:
    """If the store holds every third node, each hit is returned alone; the list is never empty."""
    nodes = linked_document(9)
    store = docstore_of(nodes[::3])
    augmenter = PrevNextNodePostprocessor(docstore=store, mode="both")
    for place in (0, 3, 6):
        assert ids(postprocess(augmenter, hits(nodes, [place]))) == [nodes[place].node_id]


@pytest.mark.parametrize("order", [[3, 2], [2, 3]])
@pytest.mark.parametrize("num_nodes", [1, 2])
def test_hits_keep_their_scores_in_any_order(postprocess: Any, order: list[int], num_nodes: int) -> None:
    """A hit that neighbors another hit keeps its score; other neighbors have the documented one."""
    nodes = linked_document(5)
    scores = {2: 0.8, 3: 0.9}
    for rule, expected in (("none", None), ("inherit", 0.8)):
        augmenter = PrevNextNodePostprocessor(
            docstore=docstore_of(nodes), mode="both", num_nodes=num_nodes, neighbor_score=rule
        )
        result = postprocess(augmenter, hits(nodes, order, [scores[place] for place in order]))
        found = {hit.node.node_id: hit.score for hit in result}
        assert found[nodes[2].node_id] == 0.8
        assert found[nodes[3].node_id] == 0.9
        assert found[nodes[1].node_id] == expected


@pytest.mark.parametrize(("scores", "best"), [((0.9, 0.3), 0.9), ((0.3, 0.9), 0.9), ((0.0, -0.5), 0.0)])
def test_the_better_of_two_copies(postprocess: Any, scores: tuple[float, float], best: float) -> None:
    """If a node was retrieved twice, the better score counts, and 0.0 is a score."""
    nodes = linked_document(1)
    result = postprocess(PrevNextNodePostprocessor(docstore=docstore_of(nodes)), hits(nodes, [0, 0], scores))
    assert [hit.score for hit in result] == [best]


def test_of_equal_copies_the_first_is_returned(postprocess: Any) -> None:
    """If a node was retrieved twice with the same score, the first object is returned."""
    nodes = linked_document(1)
    for score in (0.5, None, float("nan")):
        retrieved = hits(nodes, [0, 0], [score, score])
        result = postprocess(PrevNextNodePostprocessor(docstore=docstore_of(nodes)), retrieved)
        assert len(result) == 1
        assert result[0] is retrieved[0]


def test_none_ranks_last(postprocess: Any) -> None:
    """A copy without a score does not displace one with a negative score."""
    nodes = linked_document(1)
    for scores in ([None, -2.0], [-2.0, None]):
        result = postprocess(
            PrevNextNodePostprocessor(docstore=docstore_of(nodes)), hits(nodes, [0, 0], scores)
        )
        assert [hit.score for hit in result] == [-2.0]


def test_augmentation_survives_a_cutoff(postprocess: Any) -> None:
    """With inherited scores the neighbors pass a similarity cutoff."""
    nodes = linked_document(3)
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode="both", neighbor_score="inherit")
    result = postprocess(augmenter, hits(nodes, [1], [0.7]))
    assert len(SimilarityPostprocessor(similarity_cutoff=0.5).postprocess_nodes(result)) == 3


def test_leaves_of_a_hierarchy(postprocess: Any) -> None:
    """Each leaf gets its successor, across its parent's edge too unless that is turned off."""
    parsed = HierarchicalNodeParser.from_defaults(chunk_sizes=[512, 64]).get_nodes_from_documents(
        [Document(text=PROSE)]
    )
    store = ObservedDocstore(docstore_of(parsed))
    leaves = get_leaf_nodes(parsed)
    assert len(leaves) > 30
    parents = {node.node_id: node for node in parsed}
    over_edges = PrevNextNodePostprocessor(docstore=store)
    augmenter = PrevNextNodePostprocessor(docstore=store, across_parents=False)
    for number, leaf in enumerate(leaves):
        assert ids(postprocess(over_edges, hits([leaf], [0]))) == node_ids(leaves[number : number + 2])
        assert leaf.parent_node
        siblings = [child.node_id for child in parents[leaf.parent_node.node_id].child_nodes or []]
        place = siblings.index(leaf.node_id)
        assert ids(postprocess(augmenter, hits([leaf], [0]))) == siblings[place : place + 2]
    store.missing = frozenset(parent for parent in parents if parent not in node_ids(leaves))
    without_parents = sum(len(postprocess(augmenter, hits([leaf], [0]))) - 1 for leaf in leaves)
    assert without_parents == sum(NodeRelationship.PREVIOUS in leaf.relationships for leaf in leaves) - sum(
        1
        for before, after in itertools.pairwise(leaves)
        if before.parent_node.node_id != after.parent_node.node_id  # type: ignore[union-attr]
        and NodeRelationship.PREVIOUS in after.relationships
    )


def test_two_splitters_in_a_row(postprocess: Any) -> None:
    """Chunks of a Markdown parser, split again by a sentence splitter, get their next neighbors."""
    text = "\n\n".join(f"# Part {number}\n\n{PROSE[: 900 + 40 * number]}" for number in range(4))
    sections = MarkdownNodeParser().get_nodes_from_documents([Document(text=text)])
    nodes = SentenceSplitter(chunk_size=64, chunk_overlap=0).get_nodes_from_documents(sections)  # type: ignore[arg-type]
    assert not any(NodeRelationship.NEXT in node.relationships for node in nodes)
    followers = {
        node.prev_node.node_id: node.node_id
        for node in nodes
        if NodeRelationship.PREVIOUS in node.relationships
    }
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes))
    for node in nodes:
        expected = [node.node_id, followers[node.node_id]] if node.node_id in followers else [node.node_id]
        assert ids(postprocess(augmenter, hits([node], [0]))) == expected
    assert len(followers) > len(nodes) // 2


def test_a_link_into_another_document_is_not_followed(postprocess: Any) -> None:
    """In a chain of n1, n2 of another document, and n3, expansion stops before n2."""
    nodes = linked_document(3)
    nodes[1].relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="other")
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), num_nodes=2)
    assert ids(postprocess(augmenter, hits(nodes, [0]))) == [nodes[0].node_id]


def pdf_pages(labels: list[str]) -> list[list[TextNode]]:
    """Two chunks for each page; each page is its own document."""
    return [
        linked_document(
            [f"Page {label}, first half.", f"Page {label}, second half."],
            source_id=f"page-{label}",
            metadata={"file_path": "book.pdf", "page_label": label},
        )
        for label in labels
    ]


def test_pages_of_one_file(postprocess: Any) -> None:
    """With document_key the pages of a file are one document, ordered by their labels."""
    labels = ["0", "1", "2", "10"]
    pages = dict(zip(labels, pdf_pages(labels), strict=True))
    other = linked_document(2, source_id="x", metadata={"file_path": "other.pdf", "page_label": "1"})
    store = docstore_of(pages["10"], other, pages["2"], pages["0"], pages["1"])
    start = hits(pages["2"], [1])
    alone = PrevNextNodePostprocessor(docstore=store, mode="both", num_nodes=3)
    assert ids(postprocess(alone, start)) == node_ids(pages["2"])
    together = PrevNextNodePostprocessor(docstore=store, mode="both", num_nodes=3, document_key="file_path")
    in_order = [*pages["1"], *pages["2"], *pages["10"]]
    assert ids(postprocess(together, start)) == node_ids(in_order)
    touching = postprocess(
        PrevNextNodePostprocessor(docstore=store, num_nodes=1, document_key="file_path"),
        [*hits(pages["2"], [0]), *hits(pages["1"], [1]), *hits(pages["0"], [0])],
    )
    assert ids(touching) == [*node_ids([pages["1"][1], *pages["2"]]), *node_ids(pages["0"])]


def test_a_duplicate_chunk_that_was_dropped(postprocess: Any) -> None:
    """Expansion ends if NEXT points to a chunk that the store dropped as a duplicate."""
    nodes = linked_document(5)
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes[:3], nodes[4:]), num_nodes=3)
    assert ids(postprocess(augmenter, hits(nodes, [1]))) == node_ids(nodes[1:3])


def test_relationships_that_the_vector_store_dropped(postprocess: Any) -> None:
    """A hit without relationships uses those of the docstore's copy."""
    nodes = linked_document(5)
    bare = [TextNode(id_=node.node_id, text=node.text) for node in nodes]
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode="both")
    retrieved = hits(bare, [1, 4])
    result = postprocess(augmenter, retrieved)
    assert ids(result) == node_ids(nodes)
    assert result[1] is retrieved[0]


def test_a_link_that_holds_a_list(postprocess: Any) -> None:
    """NEXT given as a list does not break the query: its first item counts."""
    nodes = linked_document(3)
    nodes[0].relationships[NodeRelationship.NEXT] = [RelatedNodeInfo(node_id=nodes[1].node_id)]
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes))
    assert ids(postprocess(augmenter, hits(nodes, [0]))) == node_ids(nodes[:2])


def test_a_cycle_keeps_the_hit(postprocess: Any) -> None:
    """A NEXT link back to the hit ends the expansion, and the hit keeps its score."""
    nodes = linked_document(2)
    nodes[1].relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id=nodes[0].node_id)
    result = postprocess(
        PrevNextNodePostprocessor(docstore=docstore_of(nodes), num_nodes=5), hits(nodes, [0])
    )
    assert [(hit.node.node_id, hit.score) for hit in result] == [
        (nodes[0].node_id, 0.9),
        (nodes[1].node_id, None),
    ]


def test_every_order_of_hits_gives_document_order(postprocess: Any) -> None:
    """All orders of one to three hits on four to six nodes give runs in document order."""
    for size in (4, 5, 6):
        nodes = linked_document(size)
        order = {node.node_id: place for place, node in enumerate(nodes)}
        augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode="both", num_nodes=2)
        for count in (1, 2, 3):
            for retrieved in itertools.permutations(range(size), count):
                found = [order[id_] for id_ in ids(postprocess(augmenter, hits(nodes, retrieved)))]
                runs = sum(after != before + 1 for before, after in itertools.pairwise(found)) + 1
                gaps = sum(after > before + 1 for before, after in itertools.pairwise(sorted(found))) + 1
                assert runs == gaps


def test_equal_texts_are_not_the_same_chunk(postprocess: Any) -> None:
    """Nodes with equal text, from one document or several, are all kept."""
    first, second = linked_document(["same", "same"], source_id="a"), linked_document(["same"], source_id="b")
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(first, second))
    assert len(postprocess(augmenter, [*hits(first, [0]), *hits(second, [0])])) == 3


def test_reads_are_batched_by_hop(postprocess: Any) -> None:
    """Ten adjacent hits with three hops both ways read six new ids once each, in two rounds."""
    nodes = linked_document(30)
    store = ObservedDocstore(docstore_of(nodes))
    postprocess(
        PrevNextNodePostprocessor(docstore=store, mode="both", num_nodes=3), hits(nodes, range(10, 20))
    )
    assert sorted(store.node_reads) == sorted(node_ids([*nodes[7:10], *nodes[20:23]]))
    assert len(store.batches) == 2
    assert store.document_reads == ["doc"]


def test_no_query_is_needed(postprocess: Any) -> None:
    """The result is the same with and without a query."""
    nodes = linked_document(3)
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes))
    assert ids(postprocess(augmenter, hits(nodes, [0]))) == ids(
        postprocess(augmenter, hits(nodes, [0]), query_str="anything?")
    )


def test_serialization_leaves_the_docstore_out() -> None:
    """to_dict and to_json work, and from_dict with a docstore gives an equal postprocessor."""
    augmenter = PrevNextNodePostprocessor(docstore=SimpleDocumentStore(), num_nodes=2, mode="both")
    data = augmenter.to_dict()
    assert "docstore" not in data
    assert data["class_name"] == "PrevNextNodePostprocessor"
    restored = PrevNextNodePostprocessor.from_dict(data, docstore=augmenter.docstore)
    assert restored.to_json() == augmenter.to_json()


class AsyncOnlyDocstore(SimpleDocumentStore):
    """A store without sync reads."""

    def get_nodes(self, node_ids: list[str], raise_error: bool = True) -> list[BaseNode]:
        """Not implemented."""
        raise NotImplementedError

    def get_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
        """Not implemented."""
        raise NotImplementedError

    async def aget_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
        """A read that works."""
        return super().get_document(doc_id, raise_error)


def test_async_reads_use_the_async_methods() -> None:
    """The async path never calls a sync read."""
    nodes = linked_document(6)
    store = AsyncOnlyDocstore()
    store.add_documents(nodes)
    augmenter = PrevNextNodePostprocessor(docstore=store, num_nodes=4)
    assert ids(asyncio.run(augmenter.apostprocess_nodes(hits(nodes, [0])))) == node_ids(nodes[:5])

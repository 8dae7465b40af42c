"""Reported faults about parents, each with the correct result."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from helpers import ids
from llama_index.core import Document
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser import HierarchicalNodeParser, get_leaf_nodes
from llama_index.core.schema import BaseNode, NodeRelationship, NodeWithScore, RelatedNodeInfo
from llama_index.core.storage.docstore import SimpleDocumentStore
from trees import CHILD, Hierarchy, family, grow

from llama_index_ext_ctxaug import AutoMergingPostprocessor, read_provenance
from llama_index_ext_ctxaug.testing import docstore_of, hits

PROSE = " ".join(f"Sentence number {number} tells of the sea." for number in range(300))


def merger(tree: Hierarchy, threshold: float = 0.5, **parameters: Any) -> AutoMergingPostprocessor:
    """The augmenter over a hierarchy."""
    return AutoMergingPostprocessor(docstore=tree.store(), simple_ratio_thresh=threshold, **parameters)


def test_a_parent_that_is_not_in_the_docstore(postprocess: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A missing parent's children are returned unchanged with their scores; other parents still merge."""
    tree = grow([[[]] * 4, [[]] * 4])
    tree.missing = {"P"}
    found = tree.retrieved("P.0", "P.1", "P.2", "Q.0", "Q.1", "Q.2")
    result = postprocess(merger(tree), found)
    assert ids(result) == ["P.0", "P.1", "P.2", "Q"]
    assert all(out is hit for out, hit in zip(result, found[:3], strict=False))
    assert len(caplog.messages) == 1


def test_leaves_alone_in_the_docstore(postprocess: Any, caplog: pytest.LogCaptureFixture) -> None:
    """If only leaves were stored, the hits are returned and the warning names the missing parent."""
    tree = family()
    tree.missing = {"P"}
    assert ids(postprocess(merger(tree, 0), tree.retrieved("P.1", "P.0"))) == ["P.1", "P.0"]
    assert "'P'" in caplog.messages[0]
    assert "0 of" not in caplog.messages[0]


def test_the_docstore_of_a_pipeline_holds_documents(
    postprocess: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Over the pipeline's own docstore the hits are returned, and the warning names the remedy."""
    store = SimpleDocumentStore()
    parser = HierarchicalNodeParser.from_defaults(chunk_sizes=[256, 64], chunk_overlap=0)
    pipeline = IngestionPipeline(
        transformations=[parser], docstore=store, docstore_strategy="duplicates_only"
    )
    nodes = pipeline.run(documents=[Document(text=PROSE)])
    found = hits(get_leaf_nodes(nodes), [0, 1, 2])
    assert postprocess(AutoMergingPostprocessor(docstore=store), found) == found
    assert "0 of 3 hits are in this docstore" in caplog.messages[0]
    assert "docstore.add_documents(nodes)" in caplog.messages[0]
    store.add_documents(nodes)
    everything = AutoMergingPostprocessor(docstore=store, simple_ratio_thresh=0)
    assert ids(postprocess(everything, found)) == [found[0].node.parent_node.node_id]


def test_an_empty_docstore_never_gives_an_empty_list(
    postprocess: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The hits are returned, and one warning reports that none is in the docstore."""
    tree = family()
    found = tree.retrieved("P.0", "P.1", "P.2")
    empty = AutoMergingPostprocessor(docstore=SimpleDocumentStore())
    assert postprocess(empty, found) == found
    assert len(caplog.messages) == 1
    assert "0 of 3 hits" in caplog.messages[0]


def test_a_cut_down_corpus(postprocess: Any) -> None:
    """In a sample of every third node, hits with missing parents are returned alone."""
    tree = grow([[[[]] * 3] * 3])
    tree.missing = {name for place, name in enumerate(tree.nodes) if place % 3}
    found = tree.retrieved(*[name for name in tree.nodes if name.count(".") == 2])
    covered = [h for out in postprocess(merger(tree), found) for h in replaced_hits(out)]
    assert sorted(covered) == sorted(ids(found))


def replaced_hits(hit: NodeWithScore) -> tuple[str, ...]:
    """Return the hits that an output node replaces."""
    provenance = read_provenance(hit.node)
    return provenance.hits if provenance else (hit.node.node_id,)


def test_relationships_that_the_vector_store_dropped(postprocess: Any) -> None:
    """A hit without relationships uses those of the stored copy; repair_links=False does not read it."""
    tree = family()
    bare = [
        NodeWithScore(node=hit.node.model_copy(update={"relationships": {}}), score=hit.score)
        for hit in tree.retrieved("P.0", "P.1", "P.2")
    ]
    assert ids(postprocess(merger(tree), bare)) == ["P"]
    assert ids(postprocess(merger(tree, repair_links=False), bare)) == ["P.0", "P.1", "P.2"]


@pytest.mark.parametrize(("rule", "score"), [("max", 0.9), ("mean", 0.6)])
def test_a_parent_s_score_comes_from_its_scored_children(postprocess: Any, rule: str, score: float) -> None:
    """Hits of .9, .8 and .1 give the best score or the mean, as configured, and the children are named."""
    tree = family()
    found = tree.retrieved("P.2", "P.0", "P.1", scores=[0.1, 0.9, 0.8])
    (parent,) = postprocess(merger(tree, parent_score=rule), found)
    assert parent.score == pytest.approx(score)
    assert read_provenance(parent.node).hits == ("P.0", "P.1", "P.2")


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.9, None, None], 0.9),
        ([None, None, None], None),
        ([0.0, None, None], 0.0),
        ([-1.0, -2.0, None], -1.5),
    ],
)
def test_no_score_is_not_zero(postprocess: Any, scores: list[float | None], expected: float | None) -> None:
    """The mean covers the scored children, None if there are none; zero and negative numbers are scores."""
    tree = family()
    (parent,) = postprocess(
        merger(tree, parent_score="mean"), tree.retrieved("P.0", "P.1", "P.2", scores=scores)
    )
    assert parent.score == expected


def test_no_signal_is_made_up(postprocess: Any) -> None:
    """The parent's metadata gains only its provenance."""
    tree = family()
    (parent,) = postprocess(merger(tree), tree.retrieved("P.0", "P.1", "P.2"))
    assert set(parent.node.metadata) - set(tree.nodes["P"].metadata) == {"context_augmentation"}


def test_the_first_two_of_the_output_are_two_parents(postprocess: Any) -> None:
    """Nine hits under one parent and one under another: the first two nodes are both parents."""
    tree = grow([[[]] * 9, [[]] * 4])
    found = tree.retrieved(*[f"P.{place}" for place in range(9)], "Q.2")
    assert ids(postprocess(merger(tree, 0), found))[:2] == ["P", "Q"]


def test_sorted_before_any_cut(postprocess: Any) -> None:
    """With scores that rise with the position, the last two come first, best first; None comes last."""
    tree = grow([[], [], [], []])
    found = tree.retrieved("P", "Q", "R", "S", scores=[None, 0.1, -1.0, 0.3])
    assert ids(postprocess(merger(tree), found)) == ["S", "Q", "R", "P"]


def test_metadata_does_not_hinder_gaps(postprocess: Any) -> None:
    """A gap is found by node ids, even if the link records carry different metadata and hashes."""
    tree = family()
    for number, node in enumerate(tree.nodes.values()):
        node.metadata["number"] = number
    parent = tree.nodes["P"]
    parent.relationships[CHILD] = [
        RelatedNodeInfo(node_id=f"P.{place}", metadata={"number": -place}, hash="old") for place in range(4)
    ]
    assert ids(postprocess(merger(tree), tree.retrieved("P.2", "P.0"))) == ["P"]


def test_gaps_of_a_hierarchy(postprocess: Any) -> None:
    """Between the first and the third leaf of a parent, the second is filled in."""
    parser = HierarchicalNodeParser.from_defaults(chunk_sizes=[512, 64], chunk_overlap=0)
    nodes = parser.get_nodes_from_documents([Document(text=PROSE, metadata={"file": "sea.txt"})])
    leaves = get_leaf_nodes(nodes)
    augmenter = AutoMergingPostprocessor(
        docstore=docstore_of(nodes), simple_ratio_thresh=1, sort_by_score=False
    )
    result = postprocess(augmenter, hits(leaves, [0, 2]))
    assert ids(result) == [leaf.node_id for leaf in leaves[:3]]
    assert result[1].score is None
    provenance = read_provenance(result[1].node)
    assert (provenance.role, provenance.hops) == ("neighbor", 1)
    assert provenance.hits == (leaves[0].node_id, leaves[2].node_id)


def test_a_child_three_times_counts_once(postprocess: Any) -> None:
    """One child of four, retrieved three times, is returned once with its best score."""
    tree = family()
    found = tree.retrieved("P.1", "P.1", "P.1", scores=[0.3, 0.9, None])
    result = postprocess(merger(tree), found)
    assert [(hit.node.node_id, hit.score) for hit in result] == [("P.1", 0.9)]


def test_a_parent_without_children(postprocess: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A parent with an unknown number of children does not merge, with a warning."""
    tree = family()
    del tree.nodes["P"].relationships[CHILD]
    assert ids(postprocess(merger(tree, 0), tree.retrieved("P.0"))) == ["P.0"]
    assert "no_children" in caplog.messages[0]


def test_exactly_half(postprocess: Any) -> None:
    """Exactly half does not merge at .5; with inclusive=True it does."""
    tree = family()
    found = tree.retrieved("P.0", "P.1")
    assert ids(postprocess(merger(tree), found)) == ["P.0", "P.1"]
    assert ids(postprocess(merger(tree, inclusive=True), found)) == ["P"]


def test_a_retrieved_child_keeps_its_score(postprocess: Any) -> None:
    """A retrieved child between two others keeps its low score."""
    tree = family()
    found = tree.retrieved("P.0", "P.2", "P.1", scores=[0.9, 0.8, 0.1])
    result = postprocess(merger(tree, 0.9), found)
    assert [(hit.node.node_id, hit.score) for hit in result] == [("P.0", 0.9), ("P.2", 0.8), ("P.1", 0.1)]


class AsyncOnlyStore(SimpleDocumentStore):
    """A docstore without sync reads."""

    def get_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
        """Raise NotImplementedError."""
        raise NotImplementedError

    def get_nodes(self, node_ids: list[str], raise_error: bool = True) -> list[BaseNode]:
        """Raise NotImplementedError."""
        raise NotImplementedError


def test_async_reads_are_native() -> None:
    """The async path makes no sync read."""
    tree = family()
    store = AsyncOnlyStore()
    store.add_documents(list(tree.nodes.values()))
    augmenter = AutoMergingPostprocessor(docstore=store)
    assert ids(asyncio.run(augmenter.apostprocess_nodes(tree.retrieved("P.0", "P.1", "P.2")))) == ["P"]


@pytest.mark.parametrize("ring", ["P", "P.0", "G"])
def test_rings_end(postprocess: Any, ring: str) -> None:
    """A parent that is its own parent, or below its own child, ends the climb below the ring."""
    tree = family()
    parent = tree.nodes["P"]
    parent.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id=ring)
    if ring == "G":
        top = grow([[[]]], ["G"]).nodes["G"]
        top.relationships[CHILD] = [RelatedNodeInfo(node_id="P")]
        top.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id="P")
        top.relationships[NodeRelationship.SOURCE] = parent.relationships[NodeRelationship.SOURCE]
        parent.relationships[CHILD].append(RelatedNodeInfo(node_id="G"))
        tree.nodes["G"] = top
    assert ids(postprocess(merger(tree), tree.retrieved("P.0", "P.1", "P.2"))) == ["P"]

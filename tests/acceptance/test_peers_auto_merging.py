"""Merging as users of Haystack, HiChunk, RAGFlow, Dify and LangChain expect it.

Without a counterpart: Haystack's own splitter and its order for long contexts, HiChunk's maximum number of
merged parents, and ids that are uuid objects, since LlamaIndex's ids are strings.
"""

from __future__ import annotations

from typing import Any

import pytest
from helpers import ids
from llama_index.core import Document, Settings, VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo
from llama_index.core.storage.docstore import SimpleDocumentStore
from trees import CHILD, PARENT, Hierarchy, family, grow

from llama_index_ext_ctxaug import (
    AutoMergingPostprocessor,
    MissingNodeError,
    RefusedNodeError,
    read_provenance,
)
from llama_index_ext_ctxaug.testing import docstore_of


def merger(tree: Hierarchy, threshold: float = 0.5, **parameters: Any) -> AutoMergingPostprocessor:
    """The augmenter over a hierarchy."""
    return AutoMergingPostprocessor(docstore=tree.store(), simple_ratio_thresh=threshold, **parameters)


def test_threshold_bounds() -> None:
    """The default threshold is 0.5; 0.7 is accepted and -2 rejected."""
    assert merger(family()).simple_ratio_thresh == 0.5
    assert AutoMergingPostprocessor(docstore=SimpleDocumentStore()).simple_ratio_thresh == 0.5
    assert merger(family(), 0.7).simple_ratio_thresh == 0.7
    with pytest.raises(ValueError, match="simple_ratio_thresh"):
        merger(family(), -2)


def test_no_hits(postprocess: Any) -> None:
    """No hits give no nodes."""
    assert postprocess(merger(family()), []) == []


def test_two_of_three_give_the_parent(postprocess: Any) -> None:
    """Two of three children give the parent alone."""
    tree = family(3)
    assert ids(postprocess(merger(tree), tree.retrieved("P.0", "P.1"))) == ["P"]


def test_one_of_several_stays(postprocess: Any) -> None:
    """A single hit stays the same object, with its link to the parent intact."""
    tree = family(3)
    found = tree.retrieved("P.1")
    result = postprocess(merger(tree, 0.6), found)
    assert result[0] is found[0]
    assert result[0].node.parent_node.node_id == "P"
    assert ids(postprocess(merger(tree, 0, min_children=2), found)) == ["P.1"]


def test_leaves_of_two_parents_stay(postprocess: Any) -> None:
    """Leaves of two different parents both stay."""
    tree = grow([[[]] * 3, [[]] * 3])
    assert ids(postprocess(merger(tree, 0.6), tree.retrieved("P.0", "Q.0"))) == ["P.0", "Q.0"]


@pytest.mark.parametrize(
    ("fault", "error"), [("not stored", MissingNodeError), ("no children", RefusedNodeError)]
)
def test_parents_that_cannot_merge(
    postprocess: Any, caplog: pytest.LogCaptureFixture, fault: str, error: type[Exception]
) -> None:
    """An invalid parent's children stay and are reported, the valid one merges; strict=True raises."""
    tree = grow([[[]] * 3, [[]] * 3])
    if fault == "not stored":
        tree.missing = {"P"}
    else:
        del tree.nodes["P"].relationships[CHILD]
    found = tree.retrieved("P.0", "Q.0", "P.1", "Q.1")
    assert ids(postprocess(merger(tree), found)) == ["P.0", "Q", "P.1"]
    assert len(caplog.messages) == 1
    assert "'P'" in caplog.messages[0]
    with pytest.raises(error, match="'P'"):
        postprocess(merger(tree, strict=True), found)


def test_hits_without_a_parent_stay(postprocess: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A hit without a parent is valid, even with strict=True; levels and sizes are not needed."""
    tree = grow([[], [[]] * 3])
    found = tree.retrieved("P", "Q.0", "Q.1")
    for strict in (False, True):
        assert ids(postprocess(merger(tree, strict=strict), found)) == ["P", "Q"]
    assert not caplog.messages


def test_saving_and_loading() -> None:
    """Parameters survive a round trip; the docstore is passed again."""
    tree = family()
    one = merger(tree, 0.7, inclusive=True, max_levels=2, parent_score="mean", fill_gaps=0)
    again = AutoMergingPostprocessor.from_dict(one.to_dict(), docstore=tree.store())
    assert again.to_dict() == one.to_dict()
    assert "docstore" not in one.to_dict()
    assert AutoMergingPostprocessor.from_json(one.to_json(), docstore=tree.store()).max_levels == 2


@pytest.fixture
def words_are_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make LlamaIndex's tokenizer split at white space."""
    monkeypatch.setattr(Settings, "_tokenizer", str.split)
    monkeypatch.setattr("llama_index.core.global_tokenizer", str.split)


def sized(tree: Hierarchy, **lengths: int) -> Hierarchy:
    """Return the hierarchy with texts of 100 words per leaf, or as given by name."""
    for name, node in tree.nodes.items():
        length = lengths.get(name.replace(".", "_"), 100)
        node.set_content(" ".join(["word"] * length))
    return tree


@pytest.mark.usefixtures("words_are_tokens")
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["P.0"], ["P.0"]),
        (["P.0", "P.1"], ["P"]),
        (["Q", "P.0", "P.1"], ["Q", "P.0", "P.1"]),
    ],
    ids=["one child", "two children", "two children in a full context"],
)
def test_the_budget_decides(postprocess: Any, names: list[str], expected: list[str]) -> None:
    """Of 1000 tokens, one child is not enough; two merge with 200 tokens used, but not with 900."""
    tree = sized(grow([[[]] * 3, []]), P=300, Q=700)
    augmenter = merger(tree, merge_rule="budget", token_budget=1000)
    assert ids(postprocess(augmenter, tree.retrieved(*names))) == expected


@pytest.mark.usefixtures("words_are_tokens")
def test_a_merge_makes_the_grandparent_eligible(postprocess: Any) -> None:
    """A merged parent lets the grandparent merge in the same call."""
    tree = sized(grow([[[[]] * 2, [[]] * 2]]), P=500, P_0=220, P_1=220)
    augmenter = merger(tree, merge_rule="budget", token_budget=2000)
    result = postprocess(augmenter, tree.retrieved("P.0.0", "P.0.1", "P.1.0", "P.1.1"))
    assert ids(result) == ["P"]
    assert read_provenance(result[0].node).hops == 2


def pairs(tree: Hierarchy, **parameters: Any) -> AutoMergingPostprocessor:
    """Return a merger that needs two children and puts the parent at its first child's position."""
    return merger(tree, 0, **{"min_children": 2, "fill_gaps": 0, "sort_by_score": False, **parameters})


def test_a_pair_gives_the_parent(postprocess: Any) -> None:
    """Siblings merge into their parent, with its own metadata, the best score and both children named."""
    tree = family()
    tree.nodes["P"].metadata["title"] = "Harbor"
    found = tree.retrieved("P.0", "P.1", scores=[0.9, 0.7])
    (parent,) = postprocess(pairs(tree), found)
    assert (parent.node.node_id, parent.score, parent.node.metadata["title"]) == ("P", 0.9, "Harbor")
    provenance = read_provenance(parent.node)
    assert (provenance.role, provenance.hits) == ("parent", ("P.0", "P.1"))
    assert "context_augmentation" not in parent.node.get_content(metadata_mode="llm")


def test_three_siblings_give_one_parent(postprocess: Any) -> None:
    """Three siblings merge into their parent once."""
    tree = family()
    assert ids(postprocess(pairs(tree), tree.retrieved("P.0", "P.3", "P.1"))) == ["P"]


def test_interleaved_parents_take_their_first_child_s_position(postprocess: Any) -> None:
    """Hits of A, B, A, B give A, B."""
    tree = grow([[[]] * 4, [[]] * 4])
    assert ids(postprocess(pairs(tree), tree.retrieved("Q.0", "P.0", "Q.2", "P.2"))) == ["Q", "P"]


def test_three_children_are_required(postprocess: Any) -> None:
    """A minimum of three rejects a pair."""
    tree = family()
    found = tree.retrieved("P.0", "P.2")
    assert ids(postprocess(pairs(tree, min_children=3), found)) == ["P.0", "P.2"]


def test_a_parent_without_text_is_refused(postprocess: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The children of a parent without text stay, with a warning; the other parent merges."""
    tree = grow([[[]] * 2, [[]] * 2])
    tree.nodes["P"].set_content("  ")
    found = tree.retrieved("P.0", "P.1", "Q.0", "Q.1")
    assert ids(postprocess(pairs(tree), found)) == ["P.0", "P.1", "Q"]
    assert len(caplog.messages) == 1
    assert "no_text" in caplog.messages[0]


def test_thresholds_below_two(postprocess: Any) -> None:
    """A minimum of one merges and zero is an error; under the budget rule one counts as two."""
    tree = family()
    assert ids(postprocess(pairs(tree, min_children=1), tree.retrieved("P.0"))) == ["P"]
    with pytest.raises(ValueError, match="min_children"):
        pairs(tree, min_children=0)
    budget = merger(tree, merge_rule="budget", token_budget=9999, min_children=1)
    assert ids(postprocess(budget, tree.retrieved("P.0"))) == ["P.0"]


def test_inputs_stay_as_they_were(postprocess: Any) -> None:
    """The list, the hits and their nodes do not change."""
    tree = family()
    found = tree.retrieved("P.0", "P.1")
    before = [(id(hit), hit.to_dict(), hit.node.hash) for hit in found]
    postprocess(pairs(tree), found)
    assert [(id(hit), hit.to_dict(), hit.node.hash) for hit in found] == before


def test_others_keep_their_positions(postprocess: Any) -> None:
    """Hits x, A1, y, A2 give x, A, y."""
    tree = grow([[[]] * 2, [], []])
    assert ids(postprocess(pairs(tree), tree.retrieved("Q", "P.0", "R", "P.1"))) == ["Q", "P", "R"]


def test_a_mother_and_a_chunk_without_one(postprocess: Any) -> None:
    """Children of .9 and .7 have the mean .8, and the chunk of .5 stays; nodes are sorted by score."""
    tree = grow([[[]] * 2, []])
    found = tree.retrieved("Q", "P.0", "P.1", scores=[0.5, 0.9, 0.7])
    result = postprocess(merger(tree, 0, parent_score="mean"), found)
    assert [(hit.node.node_id, hit.score) for hit in result] == [("P", pytest.approx(0.8)), ("Q", 0.5)]


def test_a_missing_mother(postprocess: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The children are kept, with a warning."""
    tree = grow([[[]] * 2, []])
    tree.missing = {"P"}
    found = tree.retrieved("P.0", "P.1", "Q")
    assert postprocess(merger(tree, 0), found) == found
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_mother(postprocess: Any, blank: str) -> None:
    """A chunk whose parent's id is empty or blank is returned unchanged."""
    tree = family(1)
    tree.nodes["P.0"].relationships[PARENT] = RelatedNodeInfo(node_id=blank)
    found = tree.retrieved("P.0")
    assert postprocess(merger(tree, 0), found)[0] is found[0]


def test_children_are_listed_best_first(postprocess: Any) -> None:
    """A parent of .9 names its children of .9 and .6, best first; the other parent has .7."""
    tree = grow([[[]] * 4, [[]] * 4])
    found = tree.retrieved("P.0", "Q.1", "P.2", scores=[0.6, 0.7, 0.9])
    first, second = postprocess(merger(tree, 0), found)
    assert (first.node.node_id, first.score) == ("P", 0.9)
    assert read_provenance(first.node).hits == ("P.2", "P.0")
    assert (second.node.node_id, second.score) == ("Q", 0.7)


def test_a_disabled_parent(postprocess: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A disabled parent is left out; its retrieved children stay, since hits survive."""
    tree = grow([[[]] * 2, [[]] * 2])
    tree.nodes["P"].metadata["disabled"] = True
    found = tree.retrieved("P.0", "Q.0")
    enabled = merger(tree, 0, neighbor_filters=lambda node: not node.metadata.get("disabled"))
    assert ids(postprocess(enabled, found)) == ["P.0", "Q"]
    assert len(caplog.messages) == 1
    assert "filter" in caplog.messages[0]


def test_the_parent_document_retriever(postprocess: Any) -> None:
    """If a document is the parent of its chunks, a hit on one chunk gives the document's text."""
    document = Document(id_="whole", text=" ".join(f"Sentence {number} on ships." for number in range(60)))
    chunks = SentenceSplitter(chunk_size=40, chunk_overlap=0).get_nodes_from_documents([document])
    for chunk in chunks:
        chunk.relationships[PARENT] = document.as_related_node_info()
    document.relationships[NodeRelationship.CHILD] = [chunk.as_related_node_info() for chunk in chunks]
    index = VectorStoreIndex(chunks, embed_model=MockEmbedding(4))
    store = docstore_of([document], chunks)
    retriever = index.as_retriever(similarity_top_k=1)
    whole = AutoMergingPostprocessor(docstore=store, simple_ratio_thresh=0, max_levels=1)
    (result,) = postprocess(whole, retriever.retrieve("ships"))
    assert result.node.get_content(metadata_mode="none") == document.text


@pytest.mark.parametrize(("cutoff", "count"), [(0.5, 1), (0.9, 0)])
def test_a_cutoff_after_merging(postprocess: Any, cutoff: float, count: int) -> None:
    """A child of .8 gives a parent that passes a cutoff of .5 and fails one of .9."""
    tree = family()
    result = postprocess(merger(tree, 0), tree.retrieved("P.0", scores=[0.8]))
    assert len(SimilarityPostprocessor(similarity_cutoff=cutoff).postprocess_nodes(result)) == count

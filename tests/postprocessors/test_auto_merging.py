"""AutoMergingPostprocessor: each parameter, and parents that cannot merge."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from helpers import Postprocess, ids
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo
from trees import PARENT, SOURCE, Hierarchy, family, grow

from llama_index_ext_ctxaug import (
    AutoMergingPostprocessor,
    ConfigurationError,
    Provenance,
    RefusedNodeError,
    read_provenance,
)
from llama_index_ext_ctxaug.passages.provenance import with_provenance

TWO_LEVELS = [[[[]] * 3, [[]] * 3, [[]] * 3]]


def merger(tree: Hierarchy, threshold: float = 0.5, **parameters: Any) -> AutoMergingPostprocessor:
    """The augmenter over a hierarchy, which counts reads."""
    return AutoMergingPostprocessor(docstore=tree.store(), simple_ratio_thresh=threshold, **parameters)


def test_levels_are_climbed_to_the_top(postprocess: Any) -> None:
    """Two of three leaves merge, and two of three such parents; each level reads all parents at once."""
    tree = grow(TWO_LEVELS)
    augmenter = merger(tree)
    result = postprocess(augmenter, tree.retrieved("P.0.0", "P.0.1", "P.2.0", "P.2.2"))
    assert ids(result) == ["P"]
    assert read_provenance(result[0].node).hops == 2
    assert augmenter.docstore.batches == [["P.0", "P.2"], ["P"]]


@pytest.mark.parametrize(("levels", "expected"), [(1, ["P.0", "P.2"]), (2, ["P"]), (None, ["P"])])
def test_levels_can_be_limited(postprocess: Any, levels: int | None, expected: list[str]) -> None:
    """`max_levels` ends the climb, and nothing above it is read."""
    tree = grow(TWO_LEVELS)
    augmenter = merger(tree, max_levels=levels, fill_gaps=0)
    assert ids(postprocess(augmenter, tree.retrieved("P.0.0", "P.0.1", "P.2.0", "P.2.2"))) == expected
    assert len(augmenter.docstore.batches) == (levels or 2)


def test_nothing_to_merge_costs_one_round(postprocess: Any) -> None:
    """If no parent merges, the grandparents are not read; hits without parents cost nothing."""
    tree = grow([*TWO_LEVELS, []])
    augmenter = merger(tree)
    postprocess(augmenter, tree.retrieved("P.0.0", "P.1.0"))
    assert augmenter.docstore.batches == [["P.0", "P.1"]]


def test_a_chunk_of_another_child_gives_way_to_the_grandparent(postprocess: Any) -> None:
    """If a leaf's own parent did not merge, the leaf and its score go to the merged grandparent."""
    tree = grow(TWO_LEVELS)
    found = tree.retrieved("P.1.0", "P.0.0", "P.0.1", "P.2.0", "P.2.1", scores=[0.9, 0.5, 0.5, 0.4, 0.4])
    (best,) = postprocess(merger(tree), found)
    assert (best.node.node_id, best.score) == ("P", 0.9)
    assert read_provenance(best.node).hits == ("P.1.0", "P.0.0", "P.0.1", "P.2.0", "P.2.1")
    (mean,) = postprocess(merger(tree, parent_score="mean"), found)
    assert mean.score == pytest.approx((0.9 + 0.5 + 0.4) / 3)


@pytest.mark.parametrize(("own", "expected"), [(0.9, 0.9), (0.2, 0.7), (None, 0.7)])
def test_a_retrieved_parent_takes_its_children_in(
    postprocess: Any, own: float | None, expected: float
) -> None:
    """A retrieved parent stays at any share, with the best score and rank of itself and its children."""
    tree = grow([[[]] * 4, []])
    found = tree.retrieved("P.1", "Q", "P", scores=[0.7, 0.8, own])
    result = postprocess(merger(tree, sort_by_score=False), found)
    assert ids(result) == ["P", "Q"]
    assert result[0].score == expected
    assert set(read_provenance(result[0].node).hits) == {"P", "P.1"}


def test_a_retrieved_grandparent_takes_a_leaf_in(postprocess: Any) -> None:
    """A leaf far below a retrieved node is absorbed, even if no parent merges."""
    tree = grow([[[[[]] * 5] * 4] * 3])
    assert ids(postprocess(merger(tree), tree.retrieved("P.1.2.0", "P"))) == ["P"]
    assert ids(postprocess(merger(tree), tree.retrieved("P.1.2.0", "P.2"))) == ["P.1.2.0", "P.2"]


def test_tokens_can_be_weighed(postprocess: Any) -> None:
    """By tokens one long child of four is most of the parent; by number it is a quarter."""
    tree = family()
    tree.nodes["P"].set_content("word " * 100)
    tree.nodes["P.1"].set_content("word " * 60)
    found = tree.retrieved("P.1")
    assert ids(postprocess(merger(tree, weigh_by="tokens"), found)) == ["P"]
    assert ids(postprocess(merger(tree, 0.7, weigh_by="tokens"), found)) == ["P.1"]
    assert ids(postprocess(merger(tree), found)) == ["P.1"]


def test_the_tokenizer_can_be_chosen(postprocess: Any) -> None:
    """The share of tokens is counted with the given tokenizer."""
    tree = family()
    tree.nodes["P"].set_content("a a a a bbbbbbbbbbbbbbbb")
    tree.nodes["P.1"].set_content("a a a")
    found = tree.retrieved("P.1")
    assert ids(postprocess(merger(tree, weigh_by="tokens", tokenizer=str.split), found)) == ["P"]
    assert ids(postprocess(merger(tree, weigh_by="tokens", tokenizer=list), found)) == ["P.1"]


@pytest.mark.parametrize(
    ("gaps", "expected"), [(0, ["P.0", "P.3"]), (1, ["P.0", "P.3"]), (2, ["P.0", "P.1", "P.2", "P.3"])]
)
def test_gaps_are_filled_in_order(postprocess: Any, gaps: int, expected: list[str]) -> None:
    """Children between two retrieved ones are returned between them, without a score, for the nearer one."""
    tree = family(9)
    result = postprocess(merger(tree, fill_gaps=gaps, sort_by_score=False), tree.retrieved("P.3", "P.0"))
    assert sorted(ids(result)) == expected
    if gaps == 2:
        assert ids(result) == expected
        assert [hit.score for hit in result] == [0.8, None, None, 0.9]
        assert read_provenance(result[1].node).hits == ("P.0", "P.3")
        assert read_provenance(result[2].node).hits == ("P.3", "P.0")


def test_a_filled_gap_has_the_score_that_neighbors_have(postprocess: Any) -> None:
    """With neighbor_score="inherit" a filled child has the nearest hit's score; with "none" it is last."""
    tree = family(9)
    found = tree.retrieved("P.0", "P.2", "P.6")
    assert ids(postprocess(merger(tree), found)) == ["P.0", "P.2", "P.6", "P.1"]
    inherited = postprocess(merger(tree, neighbor_score="inherit"), found)
    assert ids(inherited) == ["P.0", "P.1", "P.2", "P.6"]
    assert inherited[1].score == 0.9


@pytest.mark.parametrize("order", [("P.2", "P.0", "P.1"), ("P.1", "P.2", "P.0")])
def test_hits_of_equal_score_are_named_in_reading_order(postprocess: Any, order: tuple[str, ...]) -> None:
    """Hits below a merged parent are named best first, and in reading order at equal scores."""
    tree = family()
    (parent,) = postprocess(merger(tree), tree.retrieved(*order, scores=[0.5, 0.5, 0.5]))
    assert read_provenance(parent.node).hits == ("P.0", "P.1", "P.2")
    (parent,) = postprocess(merger(tree), tree.retrieved(*order, scores=[None, None, 0.0]))
    assert read_provenance(parent.node).hits[0] == order[2]


@pytest.mark.parametrize(
    ("scores", "nearest"), [([0.2, 0.7], "P.2"), ([0.7, 0.2], "P.0"), ([None, -1], "P.2")]
)
def test_a_gap_between_two_hits_is_that_of_the_better(
    postprocess: Any, scores: list[float | None], nearest: str
) -> None:
    """A child equally near to both ends of its gap names the better hit first, and inherits its score."""
    tree = family(9)
    augmenter = merger(tree, neighbor_score="inherit", sort_by_score=False)
    result = postprocess(augmenter, tree.retrieved("P.0", "P.2", scores=scores))
    assert ids(result) == ["P.0", "P.1", "P.2"]
    assert read_provenance(result[1].node).hits[0] == nearest
    assert result[1].score == next(hit.score for hit in result if hit.node.node_id == nearest)


def test_a_gap_that_another_hit_holds_stays_open(postprocess: Any) -> None:
    """A child below another hit, by its own link, is not filled in beside it."""
    tree = grow([[[]] * 9, [[]]])
    inside = tree.nodes["P.1"]
    inside.relationships[PARENT] = RelatedNodeInfo(node_id="Q")
    for node in tree.nodes.values():
        node.relationships[SOURCE] = RelatedNodeInfo(node_id="document")
    tree.nodes["Q"].relationships[NodeRelationship.CHILD].append(RelatedNodeInfo(node_id="P.1"))
    result = postprocess(merger(tree), tree.retrieved("P.0", "P.2", "Q"))
    assert ids(result) == ["P.0", "P.2", "Q"]


def test_a_merged_parent_has_the_rank_of_its_first_hit(postprocess: Any) -> None:
    """Without sorting, a parent has the rank of its first hit, not of its best."""
    tree = grow([[[]] * 2, [[]] * 3])
    found = tree.retrieved("P.0", "Q.0", "P.1", scores=[0.1, 0.5, 0.9])
    assert ids(postprocess(merger(tree, sort_by_score=False), found)) == ["P", "Q.0"]
    equal = tree.retrieved("P.0", "Q.0", "P.1", scores=[0.5, 0.9, 0.9])
    assert ids(postprocess(merger(tree), equal)) == ["P", "Q.0"]  # of equal scores the first rank counts


def test_the_budget_takes_the_best_hits_first(postprocess: Any) -> None:
    """Under the budget rule, hits are kept by score, not in the order of the input."""
    tree = grow([[[]] * 5, [[]] * 5])
    for node in tree.nodes.values():
        node.set_content("word " * 10)
    found = tree.retrieved("P.0", "Q.0", "P.4", scores=[0.1, None, 0.9])
    augmenter = merger(tree, merge_rule="budget", token_budget=25, tokenizer=str.split)
    assert ids(postprocess(augmenter, found)) == ["P.4", "P.0"]


def test_under_a_budget_the_better_parent_merges(postprocess: Any) -> None:
    """If the budget lets one parent merge, it is that of the better hits, not of the first ones."""
    tree = grow([[[]] * 2, [[]] * 2])
    for name, node in tree.nodes.items():
        node.set_content("word " * (10 if "." in name else 20))
    found = tree.retrieved("Q.0", "Q.1", "P.0", "P.1", scores=[0.3, 0.2, 0.9, 0.8])
    augmenter = merger(tree, merge_rule="budget", token_budget=45, tokenizer=str.split)
    assert ids(postprocess(augmenter, found)) == ["P", "Q.0", "Q.1"]


@pytest.mark.parametrize(("budget", "expected"), [(61, ["P.0", "P.1"]), (62, ["P"])])
def test_a_parent_merges_where_the_budget_holds_it_and_its_children(
    postprocess: Any, budget: int, expected: list[str]
) -> None:
    """The budget beside the children must hold the parent, both with the metadata that the model sees."""
    tree = family(3)
    for name, node in tree.nodes.items():
        node.set_content("word " * (10 if "." in name else 30))
        node.metadata["title"] = "one two three"
    augmenter = merger(tree, merge_rule="budget", token_budget=budget, tokenizer=str.split)
    assert ids(postprocess(augmenter, tree.retrieved("P.0", "P.1"))) == expected


def test_neighbors_are_known_by_order(postprocess: Any) -> None:
    """With a budget, neighbors are chosen by distance in the document, though hits are sorted by score."""
    tree = family(9)
    for node in tree.nodes.values():
        node.set_content("word " * 10)
    found = tree.retrieved("P.6", "P.0", "P.2", scores=[0.9, 0.5, 0.4])
    augmenter = merger(tree, token_budget=43, tokenizer=str.split)
    assert ids(postprocess(augmenter, found)) == ["P.6", "P.0", "P.2", "P.1"]
    short = merger(tree, token_budget=25, tokenizer=str.split)
    assert ids(postprocess(short, found)) == ["P.6", "P.0"]


def test_a_gap_that_may_not_be_added_stays_open(postprocess: Any) -> None:
    """A child in a gap that the filters reject, or of another document, is not filled in."""
    tree = family(9)
    tree.nodes["P.1"].metadata["secret"] = True
    tree.nodes["P.3"].relationships[SOURCE] = RelatedNodeInfo(node_id="elsewhere")
    found = tree.retrieved("P.0", "P.2", "P.4")
    open_ = merger(tree, 0.9, neighbor_filters=lambda node: "secret" not in node.metadata)
    assert ids(postprocess(open_, found)) == ["P.0", "P.2", "P.4"]


def test_a_gap_with_a_hit_below_it_stays_open(postprocess: Any) -> None:
    """A child between two retrieved ones counts, but does not replace a hit below it."""
    tree = grow([[[[]] * 4] * 9])
    found = tree.retrieved("P.0", "P.2", "P.1.3")
    assert ids(postprocess(merger(tree), found)) == ["P.0", "P.2", "P.1.3"]


@pytest.mark.parametrize("reason", ["filter", "other_document", "no_children", "unlisted", "no_text"])
def test_a_parent_that_cannot_be_taken(
    postprocess: Any, caplog: pytest.LogCaptureFixture, reason: str
) -> None:
    """The children stay, with one warning that names the parent and the reason; strict=True raises."""
    tree = family()
    parent, filters = tree.nodes["P"], None
    if reason == "filter":
        filters = lambda node: node.node_id != "P"  # noqa: E731
    elif reason == "other_document":
        parent.relationships[SOURCE] = RelatedNodeInfo(node_id="elsewhere")
    elif reason == "no_children":
        parent.relationships.pop(NodeRelationship.CHILD)
    elif reason == "unlisted":
        parent.relationships[NodeRelationship.CHILD] = [RelatedNodeInfo(node_id="other")]
    else:
        parent.set_content("")
    found = tree.retrieved("P.0", "P.1", "P.2")
    with caplog.at_level(logging.WARNING):
        result = postprocess(merger(tree, neighbor_filters=filters), found)
    assert all(out is hit for out, hit in zip(result, found, strict=True))
    assert len(caplog.messages) == 1
    assert f"'P': {reason}" in caplog.messages[0]
    with pytest.raises(RefusedNodeError, match=reason):
        postprocess(merger(tree, neighbor_filters=filters, strict=True), found)


def test_all_that_is_wrong_is_one_warning(postprocess: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A missing parent and one that lists no children are reported together."""
    tree = grow([[[]] * 2, [[]] * 2])
    tree.missing = {"P"}
    tree.nodes["Q"].relationships.pop(NodeRelationship.CHILD)
    postprocess(merger(tree), tree.retrieved("P.0", "Q.0"))
    assert len(caplog.messages) == 1
    assert "'P'" in caplog.messages[0]
    assert "'Q': no_children" in caplog.messages[0]


def test_a_filtered_parent_that_would_not_merge_is_no_news(
    postprocess: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """If the share is too small anyway, no refusal is reported."""
    tree = family()
    assert ids(postprocess(merger(tree, neighbor_filters=lambda _: False), tree.retrieved("P.0"))) == ["P.0"]
    assert not caplog.messages


def test_a_missing_parent_is_bridged(postprocess: Any) -> None:
    """A leaf with a missing parent is replaced by the grandparent that lists this parent."""
    tree = grow(TWO_LEVELS)
    tree.missing = {"P.1"}
    assert ids(postprocess(merger(tree), tree.retrieved("P.1.0", "P.0", "P.2"))) == ["P"]


def test_a_failing_store_can_give_the_hits(postprocess: Any) -> None:
    """With on_store_error="return_hits" a store failure at any level gives all hits; otherwise its error."""
    tree = grow(TWO_LEVELS)
    found = tree.retrieved("P.0.0", "P.0.1")
    for works in (0, 1):
        patient = AutoMergingPostprocessor(
            docstore=tree.store(fail_after=works), on_store_error="return_hits"
        )
        assert postprocess(patient, found) == found
        with pytest.raises(ConnectionError):
            postprocess(AutoMergingPostprocessor(docstore=tree.store(fail_after=works)), found)


def test_the_budget_s_rule_needs_a_budget() -> None:
    """merge_rule="budget" without token_budget is an error that names the parameter to set."""
    with pytest.raises(ValueError, match="set token_budget"):
        merger(family(), merge_rule="budget")
    assert issubclass(ConfigurationError, ValueError)


def test_what_merges_under_a_budget_fits(postprocess: Any) -> None:
    """Under the budget rule parents and their metadata are within the budget; the best hits are first."""
    tree = grow([[[]] * 3, [[]] * 3, [[]] * 3])
    for name, node in tree.nodes.items():
        node.set_content(" ".join(["word"] * (100 if "." in name else 300)))
        node.metadata["title"] = "one two three"
    found = tree.retrieved(*[f"{root}.{child}" for root in "PQR" for child in range(2)])
    augmenter = merger(tree, merge_rule="budget", token_budget=650, tokenizer=str.split)
    result = postprocess(augmenter, found)
    assert ids(result)[0] == "P"
    text = "\n\n".join(hit.node.get_content(metadata_mode="llm") for hit in result)
    assert len(text.split()) <= 650


@pytest.mark.parametrize(("by_score", "expected"), [(True, ["P", "Q.0"]), (False, ["Q.0", "P"])])
def test_order(postprocess: Any, by_score: bool, expected: list[str]) -> None:
    """Nodes are sorted by score, best first; otherwise a parent takes the place of its first child."""
    tree = grow([[[]] * 2, [[]] * 3])
    found = tree.retrieved("Q.0", "P.0", "P.1", scores=[0.1, 0.2, 0.9])
    assert ids(postprocess(merger(tree, sort_by_score=by_score), found)) == expected


@pytest.mark.parametrize("by_score", [True, False])
def test_passages(postprocess: Any, by_score: bool) -> None:
    """With output="passages" merged parents and filled runs are passages, sorted like nodes."""
    tree = grow([[[]] * 4, [[]] * 9])
    found = tree.retrieved("Q.2", "P.0", "P.1", "P.2", "Q.0", scores=[0.3, 0.9, 0.8, 0.7, 0.4])
    run, parent = postprocess(merger(tree, output="passages", sort_by_score=by_score), found)[
        :: -1 if by_score else 1
    ]
    assert parent.node.node_id == "P"
    pieces = read_provenance(run.node).pieces
    assert [(piece.node_id, piece.role) for piece in pieces] == [
        ("Q.0", "hit"),
        ("Q.1", "neighbor"),
        ("Q.2", "hit"),
    ]
    assert (run.score, parent.score) == (0.4, 0.9)


def test_a_parent_of_the_stored_copy_s_document(postprocess: Any) -> None:
    """A hit without a source document takes it from its stored copy before its parent is judged."""
    tree = family()
    found = tree.retrieved("P.0", "P.1", "P.2")
    bare = [
        NodeWithScore(
            node=hit.node.model_copy(update={"relationships": {PARENT: hit.node.relationships[PARENT]}}),
            score=hit.score,
        )
        for hit in found
    ]
    assert ids(postprocess(merger(tree), bare)) == ["P"]


def test_what_was_merged_is_reported(postprocess: Any, ends: list) -> None:
    """The end event names the merged parents, the reads, the rounds and what was missing."""
    tree = grow([[[]] * 2, [[]] * 2])
    tree.missing = {"Q"}
    postprocess(merger(tree), tree.retrieved("P.0", "P.1", "Q.0"))
    (event,) = ends
    assert event.added_node_ids == ["P"]
    assert (event.reads, event.round_trips, event.stop_reasons) == (2, 1, {"missing": 1})


def test_what_was_refused_is_reported(postprocess: Any, ends: list) -> None:
    """The end event counts parents and gaps that the filters rejected, and parents without text."""
    tree = grow([[[]] * 2, [[]] * 9, [[]] * 2])
    tree.nodes["P"].metadata["secret"] = tree.nodes["Q.1"].metadata["secret"] = True
    tree.nodes["R"].set_content(" ")
    augmenter = merger(tree, neighbor_filters=lambda node: "secret" not in node.metadata)
    found = tree.retrieved("P.0", "P.1", "Q.0", "Q.2", "R.0", "R.1")
    assert ids(postprocess(augmenter, found)) == [hit.node.node_id for hit in found]
    assert ends[0].stop_reasons == {"filter": 2, "no_text": 1}
    assert ends[0].added_node_ids == []


def test_what_takes_in_others_says_what_it_was(postprocess: Any) -> None:
    """A retrieved parent stays a hit; a parent added as a neighbor replaces the hits below it."""
    tree = family()
    (taken,) = postprocess(merger(tree), tree.retrieved("P", "P.1"))
    assert read_provenance(taken.node).role == "hit"
    added = with_provenance(tree.nodes["P"], Provenance("neighbor", ("elsewhere",), 1))
    (taken,) = postprocess(merger(tree), [NodeWithScore(node=added), *tree.retrieved("P.1")])
    provenance = read_provenance(taken.node)
    assert (provenance.role, provenance.hits[0]) == ("parent", "P.1")


def test_long_chains_of_parents_are_climbed() -> None:
    """A chain of 120 single children merges to the top, without deep recursion, one read per level."""
    shape: list[Any] = []
    for _ in range(120):
        shape = [shape]
    tree = grow([shape])
    leaf = list(tree.nodes)[-1]
    augmenter = merger(tree)
    assert ids(augmenter.postprocess_nodes(tree.retrieved(leaf))) == ["P"]
    assert len(augmenter.docstore.batches) == 120


@pytest.mark.parametrize("offsets", [True, False])
def test_an_edited_child_stays_beside_its_parent(
    postprocess: Postprocess, caplog: pytest.LogCaptureFixture, offsets: bool
) -> None:
    """A parent replaces only children with text that it holds; an edited one stays, with one warning."""
    tree = family(4)
    parent, children = tree.nodes["P"], [tree.nodes[f"P.{number}"] for number in range(4)]
    for number, child in enumerate(children):
        child.text = f"Part {number} says  {number * 7}."
        if offsets:
            child.start_char_idx, child.end_char_idx = number * 20, number * 20 + len(child.text)
    parent.text = "\n".join(" ".join(child.text.split()) for child in children)
    children[2].text = "Part 2 was corrected later."
    augmenter = AutoMergingPostprocessor(docstore=tree.store(), sort_by_score=False)
    found = tree.retrieved("P.0", "P.1", "P.2", "P.3")
    with caplog.at_level(logging.WARNING):
        result = postprocess(augmenter, found)
    assert ids(result) == ["P", "P.2"]
    assert result[1] is found[2]
    assert len(caplog.records) == 1
    assert "'P.2': edited" in caplog.text
    with pytest.raises(RefusedNodeError):
        augmenter.model_copy(update={"strict": True}).postprocess_nodes(found)

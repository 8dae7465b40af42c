"""Expansion limited by a policy: last nodes, shortened walks, reading ahead."""

from __future__ import annotations

import pytest
from helpers import Postprocess
from llama_index.core.schema import (
    BaseNode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)

from llama_index_ext_ctxaug import (
    ContextAugmenter,
    Expansion,
    Flow,
    PrevNextNodePostprocessor,
    Reach,
    StopAfter,
    StopReason,
    read_provenance,
)
from llama_index_ext_ctxaug.expansion.expansion import UNBOUNDED
from llama_index_ext_ctxaug.testing import ObservedDocstore, docstore_of, hits, linked_document

TEXTS = ["a", "b", "STOP", "d", "hit", "f", "END", "h"]


class UpToCapitals(ContextAugmenter):
    """Expands up to STOP, which is excluded, or END, which is included; shortens each walk by `less`."""

    less: int = 0

    def expand(self, expansion: Expansion, query: QueryBundle | None) -> Flow[None]:
        """Expand as far as the limit allows."""
        reach = Reach(UNBOUNDED, UNBOUNDED, stop=lambda direction: _limit, read_ahead=3)
        walks = yield from expansion.walk(dict.fromkeys(expansion.hits, reach))
        for walk in walks:
            del walk.node_ids[max(0, len(walk.node_ids) - self.less) :]
        expansion.take(walks)


def _limit(node: BaseNode) -> StopReason | StopAfter | None:
    text = node.get_content()
    if text == "END":
        return StopAfter("heading")
    return "heading" if text == "STOP" else None


def test_a_limit_ends_before_a_node_or_after_it(postprocess: Postprocess) -> None:
    """A reason excludes the node, `StopAfter` includes it and nothing after it; both are reported."""
    nodes = linked_document(TEXTS)
    result = postprocess(UpToCapitals(docstore=docstore_of(nodes)), hits(nodes, [4]))
    assert [hit.node.text for hit in result] == ["d", "hit", "f", "END"]
    assert read_provenance(result[0].node).stopped_previous == "heading"
    assert read_provenance(result[-1].node).stopped_next == "heading"


def test_a_limit_is_asked_of_hits_on_the_way(postprocess: Postprocess) -> None:
    """A hit that the limit rejects ends another hit's walk; filters do not apply to hits."""
    nodes = linked_document(TEXTS)
    augmenter = UpToCapitals(docstore=docstore_of(nodes), neighbor_filters=lambda node: node.text != "f")
    result = postprocess(augmenter, hits(nodes, [4, 5, 2]))
    by_text = {hit.node.text: read_provenance(hit.node) for hit in result}
    assert set(by_text) == {"a", "b", "STOP", "d", "hit", "f", "END"}
    assert by_text["b"].hits == (nodes[2].node_id,)
    assert set(by_text["END"].hits) == {nodes[place].node_id for place in (2, 4, 5)}


def test_a_policy_shortens_walks_before_they_are_taken(postprocess: Postprocess) -> None:
    """Nodes cut off a walk are not in the output."""
    nodes = linked_document(TEXTS)
    result = postprocess(UpToCapitals(docstore=docstore_of(nodes), less=1), hits(nodes, [4]))
    assert [hit.node.text for hit in result] == ["hit", "f"]


def test_a_long_walk_reads_ahead_again(postprocess: Postprocess) -> None:
    """A walk beyond what was read ahead continues in batches."""
    nodes = linked_document(["x"] * 40)
    store = ObservedDocstore(docstore_of(nodes))
    assert len(postprocess(UpToCapitals(docstore=store), hits(nodes, [0]))) == 40
    assert len(store.batches) <= 14
    assert len(store.node_reads) == len(set(store.node_reads))


def test_a_ring_is_walked_once(postprocess: Postprocess) -> None:
    """Expansion ends at a link back to a node already taken, and reports it, with or without a limit."""
    nodes = linked_document(["a", "b", "c", "d"])
    nodes[3].relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id=nodes[0].node_id)
    nodes[0].relationships[NodeRelationship.PREVIOUS] = RelatedNodeInfo(node_id=nodes[3].node_id)
    for augmenter in (
        PrevNextNodePostprocessor(docstore=docstore_of(nodes), num_nodes=9),
        UpToCapitals(docstore=docstore_of(nodes)),
    ):
        result = postprocess(augmenter, hits(nodes, [1]))
        assert [hit.node.text for hit in result] == ["b", "c", "d", "a"]
        assert read_provenance(result[-1].node).stopped_next == "cycle"


def test_a_walk_into_its_own_tail_ends(postprocess: Postprocess) -> None:
    """A link from further on back to a neighbor, not to the hit, is a cycle too."""
    nodes = linked_document(["a", "b", "c", "d"])
    nodes[3].relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id=nodes[1].node_id)
    result = postprocess(UpToCapitals(docstore=docstore_of(nodes)), hits(nodes, [0]))
    assert [hit.node.text for hit in result] == ["a", "b", "c", "d"]
    assert read_provenance(result[-1].node).stopped_next == "cycle"


def test_what_was_found_backward_only_is_joined(postprocess: Postprocess) -> None:
    """Metadata ids of the previous node order the chunks, though none names the next node."""
    nodes = [TextNode(id_=id_, text=id_, metadata={"prev_id": before}) for id_, before in ("cb", "ba", "ad")]
    nodes.append(TextNode(id_="d", text="d"))
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), num_nodes=2, mode="previous")
    assert [hit.node.text for hit in postprocess(augmenter, hits(nodes, [0]))] == ["a", "b", "c"]
    together = augmenter.model_copy(update={"output": "passages"})
    assert [hit.node.text for hit in postprocess(together, hits(nodes, [0]))] == ["a b c"]


@pytest.mark.parametrize("stated", ["link", "back link", "metadata"])
def test_hits_of_two_documents_do_not_touch(postprocess: Postprocess, stated: str) -> None:
    """A link out of its document, stated at either end, joins and orders no hits."""
    first, second = linked_document(["a", "b"], source_id="one"), linked_document(["c", "d"], source_id="two")
    if stated == "link":
        first[1].relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id=second[0].node_id)
    elif stated == "back link":
        second[0].relationships[NodeRelationship.PREVIOUS] = RelatedNodeInfo(node_id=first[1].node_id)
    else:
        first[1].metadata["next_id"] = second[0].node_id
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(first, second), num_nodes=1, output="passages")
    result = postprocess(augmenter, hits([*first, *second], [2, 1]))
    assert [hit.node.text for hit in result] == ["c d", "b"]


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_growth_goes_on_through_a_hit_that_lost_its_relationships(
    postprocess: Postprocess, order: tuple[int, int]
) -> None:
    """The stored copy shows that such a hit is of the same document, whichever hit comes first."""
    nodes = linked_document(8)
    found = {
        1: NodeWithScore(node=nodes[1], score=0.9),
        2: NodeWithScore(node=nodes[2].model_copy(update={"relationships": {}}), score=0.1),
    }
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), num_nodes=2, mode="next")
    result = postprocess(augmenter, [found[place] for place in order])
    assert [hit.node.node_id for hit in result] == [node.node_id for node in nodes[1:5]]
    assert read_provenance(result[2].node).hits == (nodes[2].node_id, nodes[1].node_id)

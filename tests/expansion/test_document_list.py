"""The document's list of nodes is a hint: a wrong, partial or stale list costs reads, never an answer."""

from __future__ import annotations

import random
from typing import Literal

import pytest
from helpers import ids
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core import Document
from llama_index.core.node_parser import HierarchicalNodeParser, get_leaf_nodes
from llama_index.core.schema import NodeRelationship, NodeWithScore, TextNode
from llama_index.core.storage.docstore.types import RefDocInfo

from llama_index_ext_ctxaug import PrevNextNodePostprocessor
from llama_index_ext_ctxaug.testing import ObservedDocstore, docstore_of, hits, linked_document

HIERARCHY = HierarchicalNodeParser.from_defaults(
    chunk_sizes=[512, 256, 64], chunk_overlap=0
).get_nodes_from_documents(
    [Document(id_="doc", text=" ".join(f"Sentence number {n} says a little." for n in range(150)))]
)


def set_list(store: ObservedDocstore, ids: list[str]) -> None:
    """Overwrite the list of nodes of the one document of a store."""
    store._kvstore.put("doc", RefDocInfo(node_ids=ids).to_dict(), collection=store._ref_doc_collection)


@st.composite
def lists(draw: st.DrawFn, links: Literal["both", "previous", "next"]) -> tuple:
    """A stored chain, a distorted list of its nodes, and whether the list still names all of them."""
    chain = linked_document(draw(st.integers(2, 14)), links=links, offsets=draw(st.booleans()))
    store = ObservedDocstore(docstore_of(chain, linked_document(3, source_id="other")))
    order = draw(st.permutations(ids(chain))) if draw(st.booleans()) else ids(chain)
    dropped = draw(st.sets(st.sampled_from(order), max_size=4))
    stale = draw(
        st.lists(st.sampled_from(["gone-1", "gone-2", "other-0005-0", chain[0].node_id]), max_size=3)
    )
    listed = [id_ for id_ in order if id_ not in dropped]
    for id_ in stale:
        listed.insert(draw(st.integers(0, len(listed))), id_)
    set_list(store, listed)
    return chain, store, not dropped


@settings(deadline=None)
@given(st.data())
def test_linked_nodes_are_right_whatever_the_list_says(data: st.DataObject) -> None:
    """With links, neighbors are those that the links name; a wrong list costs at most two more rounds."""
    chain, store, _ = data.draw(lists("both"))
    place, hops = data.draw(st.integers(0, len(chain) - 1)), data.draw(st.integers(3, 6))
    nodes = PrevNextNodePostprocessor(docstore=store, num_nodes=hops, mode="both").postprocess_nodes(
        hits(chain, [place])
    )
    assert ids(nodes) == ids(chain[max(0, place - hops) : place + hops + 1])
    assert len(store.node_reads) == len(set(store.node_reads))
    assert len(store.batches) <= hops + 2


@settings(deadline=None)
@given(st.data(), st.sampled_from(["previous", "next"]))
def test_nodes_linked_in_one_direction_are_never_wrong(data: st.DataObject, links: str) -> None:
    """Against the direction of the links, a complete list is enough; a partial one ends the expansion."""
    chain, store, complete = data.draw(lists(links))
    place, hops = data.draw(st.integers(0, len(chain) - 1)), data.draw(st.integers(1, 6))
    nodes = PrevNextNodePostprocessor(docstore=store, num_nodes=hops, mode="both").postprocess_nodes(
        hits(chain, [place])
    )
    wanted = ids(chain[max(0, place - hops) : place + hops + 1])
    if complete:
        assert ids(nodes) == wanted
    else:
        start = wanted.index(ids(nodes)[0])
        assert ids(nodes) == wanted[start : start + len(nodes)]


def test_a_node_that_the_list_names_twice_does_not_speak_for_the_others() -> None:
    """A hit without links that the list repeats at its end is not taken for the document's end."""
    chain = linked_document(2, links="previous")
    store = ObservedDocstore(docstore_of(chain))
    set_list(store, [chain[1].node_id, chain[0].node_id, chain[0].node_id])
    assert ids(PrevNextNodePostprocessor(docstore=store).postprocess_nodes(hits(chain, [0]))) == ids(chain)


@settings(deadline=None)
@given(st.permutations(range(9)), st.integers(0, 8), st.integers(1, 5))
def test_offsets_correct_a_list_out_of_order(order: list[int], place: int, hops: int) -> None:
    """Nodes without links, added in any order, follow one another by offset."""
    chain = linked_document(9, links="none", offsets=True)
    store = ObservedDocstore(docstore_of(*([chain[number]] for number in order)))
    nodes = PrevNextNodePostprocessor(docstore=store, num_nodes=hops, mode="both").postprocess_nodes(
        hits(chain, [place])
    )
    assert ids(nodes) == ids(chain[max(0, place - hops) : place + hops + 1])


@settings(deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 6))
def test_levels_of_a_hierarchy_in_one_list(shuffle: random.Random, hops: int) -> None:
    """If a list holds all levels in any order, a leaf gets the leaves around it, across parents' edges."""
    nodes = list(HIERARCHY)
    by_id = {node.node_id: node for node in nodes}
    leaves = ids(get_leaf_nodes(nodes))
    leaf = by_id[leaves[shuffle.randrange(len(leaves))]]
    siblings = [
        info.node_id for info in by_id[leaf.parent_node.node_id].relationships[NodeRelationship.CHILD]
    ]
    shuffle.shuffle(nodes)
    store = ObservedDocstore(docstore_of(nodes))
    for across, expected in ((True, leaves), (False, siblings)):
        augmenter = PrevNextNodePostprocessor(
            docstore=store, num_nodes=hops, mode="both", across_parents=across
        )
        found = augmenter.postprocess_nodes([NodeWithScore(node=leaf)])
        place = expected.index(leaf.node_id)
        assert ids(found) == expected[max(0, place - hops) : place + hops + 1]


@pytest.mark.parametrize("hops", [3, 9, 25])
def test_a_right_list_takes_two_rounds(hops: int) -> None:
    """From three hops on, the list is read with the first neighbors, then all others: two rounds."""
    chain = linked_document(60)
    store = ObservedDocstore(docstore_of(chain))
    PrevNextNodePostprocessor(docstore=store, num_nodes=hops, mode="both").postprocess_nodes(
        hits(chain, [30])
    )
    assert len(store.batches) == 2
    assert store.document_reads == ["doc"]
    assert len(store.node_reads) == 2 * hops


def test_a_hit_that_lost_all_its_links_takes_three_rounds() -> None:
    """A hit without relationships needs its stored copy first; the list still saves the hops."""
    chain = linked_document(60)
    store = ObservedDocstore(docstore_of(chain))
    bare = [NodeWithScore(node=TextNode(id_=chain[30].node_id, text=chain[30].text))]
    nodes = PrevNextNodePostprocessor(docstore=store, num_nodes=9, mode="both").postprocess_nodes(bare)
    assert ids(nodes) == ids(chain[21:40])
    assert len(store.batches) == 3


def test_a_document_ingested_again_in_part() -> None:
    """After nodes were deleted and added again at the end of the list, order and reads are correct."""
    chain = linked_document(20)
    inner = docstore_of(chain)
    for place in (4, 9, 5):
        inner.delete_document(chain[place].node_id)
        inner.add_documents([chain[place]])
    store = ObservedDocstore(inner)
    nodes = PrevNextNodePostprocessor(docstore=store, num_nodes=6, mode="both").postprocess_nodes(
        hits(chain, [7])
    )
    assert ids(nodes) == ids(chain[1:14])
    assert len(store.batches) <= 4
    assert len(store.node_reads) == len(set(store.node_reads))

"""PrevNextNodePostprocessor against its definition, over random stores, links, hits and faults."""

from __future__ import annotations

import asyncio
from typing import Any

from helpers import ids
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import NodeRelationship, NodeWithScore

from llama_index_ext_ctxaug import PrevNextNodePostprocessor, read_provenance
from llama_index_ext_ctxaug.engine.output import Writer
from llama_index_ext_ctxaug.passages.passage import Passage
from llama_index_ext_ctxaug.passages.scores import score_key
from llama_index_ext_ctxaug.testing.worlds import World, shuffled, worlds

REACH = st.fixed_dictionaries({"num_previous": st.integers(0, 5), "num_next": st.integers(0, 5)})


class PassagesKept(PrevNextNodePostprocessor):
    """Keeps the passages of the last call."""

    def _output(self, passages: list[Passage], writer: Writer) -> list[NodeWithScore]:
        object.__setattr__(self, "last", [[c.node.node_id for c in p.chunks] for p in passages])
        return super()._output(passages, writer)


def both_ways(
    world: World, hits: list[NodeWithScore] | None = None, **parameters: Any
) -> list[NodeWithScore]:
    """Return the result of a call, which is the same sync and async."""
    given_hits = world.hits if hits is None else hits
    result = PrevNextNodePostprocessor(docstore=world.store(), **parameters).postprocess_nodes(given_hits)
    augmenter = PrevNextNodePostprocessor(docstore=world.store(), **parameters)
    again = asyncio.run(augmenter.apostprocess_nodes(given_hits))
    assert [hit.to_dict() for hit in result] == [hit.to_dict() for hit in again]
    return result


@given(worlds(tidy=True), REACH)
def test_tidy_documents_give_the_windows(world: World, reach: dict[str, int]) -> None:
    """If all links are present, runs are the unions of the windows, by the rank of their first hit."""
    windows: list[tuple[int, list[str]]] = []
    rank = {hit.node.node_id: i for i, hit in reversed(list(enumerate(world.hits)))}
    for document in world.documents:
        inside = [False] * len(document)
        for place, node in enumerate(document):
            if node.node_id in rank:
                span = slice(max(0, place - reach["num_previous"]), place + reach["num_next"] + 1)
                inside[span] = [True] * len(inside[span])
        run: list[str] = []
        for place in range(len(document) + 1):
            if place < len(document) and inside[place]:
                run.append(document[place].node_id)
            elif run:
                windows.append((min(rank[id_] for id_ in run if id_ in rank), run))
                run = []
    expected = [id_ for _, run in sorted(windows, key=lambda window: window[0]) for id_ in run]
    assert ids(both_ways(world, **reach)) == expected


@given(worlds(), REACH, st.integers(0, 100))
def test_the_order_of_hits_shows_in_ranks_alone(world: World, reach: dict[str, int], seed: int) -> None:
    """Hits in another order give the same runs (a ring may open elsewhere) and the same scores."""
    first = PassagesKept(docstore=world.store(), neighbor_score="decay", **reach)
    second = PassagesKept(docstore=world.store(), neighbor_score="decay", **reach)
    one = first.postprocess_nodes(world.hits)
    other = second.postprocess_nodes(shuffled(world.hits, seed))
    assert {h.node.node_id: h.score for h in one} == {h.node.node_id: h.score for h in other}
    if world.hits:
        assert {frozenset(run) for run in first.last} == {frozenset(run) for run in second.last}
    if world.tidy and world.hits:
        assert {tuple(run) for run in first.last} == {tuple(run) for run in second.last}


@given(worlds(tidy=True, max_chunks=14), REACH)
def test_reads_are_few(world: World, reach: dict[str, int]) -> None:
    """No id is read twice, in at most as many rounds as hops, and two from three hops on."""
    store = world.store()
    PrevNextNodePostprocessor(docstore=store, **reach).postprocess_nodes(world.hits)
    assert len(set(store.node_reads)) == len(store.node_reads)
    assert len(set(store.document_reads)) == len(store.document_reads)
    hops = max(reach.values())
    assert len(store.batches) <= (hops if hops < 3 else 2)


@given(worlds())
def test_inner_hits_are_not_read(world: World) -> None:
    """A hit that has its links is never read."""
    store = world.store()
    PrevNextNodePostprocessor(docstore=store, num_nodes=2, mode="both").postprocess_nodes(world.hits)
    links = (NodeRelationship.PREVIOUS, NodeRelationship.NEXT)
    linked = {h.node.node_id for h in world.hits if all(link in h.node.relationships for link in links)}
    if world.tidy:
        assert not linked & set(store.node_reads)


@given(worlds(), st.sampled_from(["none", "inherit", "decay"]))
def test_a_neighbor_never_ranks_above_its_nearest_hit(world: World, rule: str) -> None:
    """Under every rule a neighbor's score is None or at most that of its nearest hit, logits included."""
    result = both_ways(world, num_nodes=3, mode="both", neighbor_score=rule)
    scores = {hit.node.node_id: hit.score for hit in result}
    for hit in result:
        provenance = read_provenance(hit.node)
        if provenance is not None:
            nearest = scores[provenance.hits[0]]
            assert score_key(hit.score) <= score_key(nearest)
            assert rule != "inherit" or hit.score == nearest

"""SectionPostprocessor and BRSR keep what every augmenter promises, over random stores, links and hits."""

from __future__ import annotations

import asyncio

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core.schema import NodeRelationship, NodeWithScore
from strategies import World, shuffled, worlds

from llama_index_ext_ctxaug import BRSRPostprocessor, SectionPostprocessor, read_provenance
from llama_index_ext_ctxaug.passages.scores import score_key
from llama_index_ext_ctxaug.testing import WordEmbedding

few = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
TOKENS = st.integers(0, 60)
MODES = st.sampled_from(["any", "same_or_higher"])


def grow(world: World, hits: list[NodeWithScore], tokens: int, mode: str) -> list[NodeWithScore]:
    """The result of a call, which is the same sync and async."""
    options = {"expansion_tokens": tokens, "stop_at": mode}
    result = SectionPostprocessor(docstore=world.store(), **options).postprocess_nodes(hits)
    augmenter = SectionPostprocessor(docstore=world.store(), **options)
    again = asyncio.run(augmenter.apostprocess_nodes(hits))
    assert [hit.to_dict() for hit in result] == [hit.to_dict() for hit in again]
    return result


@few
@given(worlds(), TOKENS, MODES)
def test_hits_survive_and_nothing_is_changed(world: World, tokens: int, mode: str) -> None:
    """Each distinct hit goes out once with its best score; hits and stored nodes are as before."""
    before = [hit.to_dict() for hit in world.hits]
    store = world.store()
    stored = {id_: node.to_dict() for id_, node in store.docs.items()}
    SectionPostprocessor(docstore=store, expansion_tokens=tokens, stop_at=mode).postprocess_nodes(world.hits)
    assert stored == {id_: node.to_dict() for id_, node in store.docs.items()}
    result = grow(world, world.hits, tokens, mode)
    assert before == [hit.to_dict() for hit in world.hits]
    best: dict[str, float | None] = {}
    for hit in world.hits:
        known = best.setdefault(hit.node.node_id, hit.score)
        best[hit.node.node_id] = max(known, hit.score, key=score_key)
    out = {hit.node.node_id: hit.score for hit in result}
    assert len(out) == len(result)
    assert all(out[node_id] == score for node_id, score in best.items())


@few
@given(worlds(), TOKENS, MODES)
def test_neighbors_are_of_the_document_of_their_hits(world: World, tokens: int, mode: str) -> None:
    """What is added names hits that came in, and is of the same document."""
    sources = {hit.node.node_id: hit.node for hit in world.hits}
    stored = world.store().docs

    def document(node_id: str) -> str | None:
        for node in (sources.get(node_id), stored.get(node_id)):
            info = node.relationships.get(NodeRelationship.SOURCE) if node is not None else None
            if info is not None:
                return info.node_id
        return None

    for hit in grow(world, world.hits, tokens, mode):
        provenance = read_provenance(hit.node)
        if provenance is not None and hit.node.node_id not in sources:
            assert set(provenance.hits) <= set(sources)
            assert {document(id_) for id_ in provenance.hits} == {document(hit.node.node_id)}


@few
@given(worlds(), TOKENS, MODES, st.integers(0, 1000))
def test_the_order_of_the_hits_does_not_choose_the_nodes(
    world: World, tokens: int, mode: str, seed: int
) -> None:
    """The same hits in another order give the same set of nodes."""
    result = grow(world, world.hits, tokens, mode)
    other = grow(world, shuffled(world.hits, seed), tokens, mode)
    assert {hit.node.node_id for hit in result} == {hit.node.node_id for hit in other}


@few
@given(worlds())
def test_brsr_is_the_same_sync_and_async_and_in_a_second_run(world: World) -> None:
    """Equal input gives equal windows, whatever the links; nothing that came in is changed."""
    before = [hit.to_dict() for hit in world.hits]
    runs = []
    for _ in range(2):
        augmenter = BRSRPostprocessor(
            docstore=world.store(), embed_model=WordEmbedding(), window_tokens=12, stride_tokens=4
        )
        runs.append([hit.to_dict() for hit in augmenter.postprocess_nodes(world.hits, query_str="chunk")])
    found = asyncio.run(augmenter.apostprocess_nodes(world.hits, query_str="chunk"))
    assert runs[0] == runs[1] == [hit.to_dict() for hit in found]
    assert before == [hit.to_dict() for hit in world.hits]

"""The promises of every postprocessor of this package, as tests for third-party ones."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

from llama_index_ext_ctxaug.errors import ContextAugmentationError
from llama_index_ext_ctxaug.events import ContextAugmentationEndEvent, ContextAugmentationStartEvent
from llama_index_ext_ctxaug.passages.provenance import PROVENANCE_KEY, read_provenance
from llama_index_ext_ctxaug.testing.calls import (
    QUERY,
    best_scores,
    dicts,
    hits_in,
    other_process,
    recorded_complaints,
    recorded_events,
    role_of,
    run_async,
    run_sync,
    scores_of,
    stored_ids_in,
)
from llama_index_ext_ctxaug.testing.kit import hits, linked_document
from llama_index_ext_ctxaug.testing.worlds import World, shuffled, worlds

TENANT_A = MetadataFilters(filters=[MetadataFilter(key="tenant", value="a")])

few = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
any_world, tidy_world = worlds(parents=True), worlds(tidy=True, max_chunks=14, parents=True)


class PostprocessorConformance:
    """Tests of a postprocessor, each on random documents, links, faults and hits; run them with pytest.

    Attributes:
        augmenter: the class under test.
        parameters: parameters to construct it with.
        drops_hits: True if it drops or cuts hits on purpose.
        rescores: True if it gives hits new scores on purpose.

    Example:
        ```python
        from llama_index_ext_ctxaug.testing import PostprocessorConformance

        class TestMine(PostprocessorConformance):
            augmenter = MyPostprocessor
        ```
    """

    augmenter: ClassVar[type[BaseNodePostprocessor]]
    parameters: ClassVar[Mapping[str, Any]] = {}
    drops_hits: ClassVar[bool] = False
    rescores: ClassVar[bool] = False

    def make(self, docstore: BaseDocumentStore, **parameters: Any) -> Any:
        """Make the postprocessor; one that reads no docstore ignores it."""
        return self.augmenter(**{**self.parameters, **parameters})

    @few
    @given(any_world)
    def test_hits_survive(self, world: World) -> None:
        """Each distinct hit is in the output exactly once, whole, with its best score."""
        result = self._both_ways(world)
        best = best_scores(world.hits)
        out_ids = [hit.node.node_id for hit in result]
        assert len(set(out_ids)) == len(out_ids)
        for hit in result:
            if hit.node.node_id in best and read_provenance(hit.node) is None and not self.rescores:
                assert any(hit is given_hit for given_hit in world.hits)
                assert hit.score == best[hit.node.node_id]
        if not self.drops_hits:
            assert Counter(id_ for hit in result for id_ in hits_in(hit)) == Counter(best.keys())
            for hit in result:
                if role_of(hit) == "passage":
                    for hit_id in hits_in(hit):
                        assert world.nodes[hit_id].text.strip() in hit.node.get_content(MetadataMode.NONE)

    @few
    @given(any_world)
    def test_nothing_is_changed_in_place(self, world: World) -> None:
        """Hits, their nodes, the list and the store are as before, and a second call gives the same."""
        store = world.store()
        stored = {id_: node.to_dict() for id_, node in store.docs.items()}
        before = [(id(hit), hit.to_dict(), hit.node.hash) for hit in world.hits]
        augmenter = self.make(store)
        assert dicts(run_sync(augmenter, world.hits)) == dicts(run_sync(augmenter, world.hits))
        assert before == [(id(hit), hit.to_dict(), hit.node.hash) for hit in world.hits]
        assert stored == {id_: node.to_dict() for id_, node in store.docs.items()}

    @few
    @given(any_world, st.integers(0, 100))
    def test_the_order_of_hits_shows_in_ranks_alone(self, world: World, seed: int) -> None:
        """Another order of the hits gives the same nodes with the same scores, unless hits are dropped."""
        if self.drops_hits:
            return
        one = self._both_ways(world)
        other = self._both_ways(world, shuffled(world.hits, seed))
        assert scores_of(one) == scores_of(other)

    @few
    @given(any_world)
    def test_added_nodes_say_where_they_came_from(self, world: World) -> None:
        """An added or made node names hits of the call, and no model reads its provenance."""
        hit_ids = {hit.node.node_id for hit in world.hits}
        for hit in self._both_ways(world):
            provenance = read_provenance(hit.node)
            assert provenance is not None or hit.node.node_id in hit_ids
            if provenance is not None:
                assert set(provenance.hits) <= hit_ids
                for mode in (MetadataMode.LLM, MetadataMode.EMBED):
                    assert PROVENANCE_KEY not in hit.node.get_content(metadata_mode=mode)

    @few
    @given(any_world)
    def test_offsets_are_true(self, world: World) -> None:
        """Character offsets of a made node, and those of its pieces, hold that text of the document."""
        for hit in self._both_ways(world):
            node, provenance = hit.node, read_provenance(hit.node)
            if provenance is None or provenance.role not in ("passage", "window"):
                continue
            text = node.get_content(metadata_mode=MetadataMode.NONE)
            start = getattr(node, "start_char_idx", None)
            if start is not None:
                document = str(world.nodes[provenance.hits[0]].ref_doc_id)
                assert world.texts[document].startswith(text, start)
            for piece in provenance.pieces:
                if piece.source_start is not None:
                    source = world.texts[str(world.nodes[piece.node_id].ref_doc_id)]
                    assert source[piece.source_start : piece.source_end] == text[piece.start : piece.end]

    def test_empty_input_gives_empty_output(self) -> None:
        """No hits give no nodes, with and without a query."""
        augmenter = self.make(World([], []).store())
        assert run_sync(augmenter, []) == run_async(augmenter, []) == augmenter.postprocess_nodes([]) == []

    @few
    @given(any_world)
    def test_one_start_and_one_end_event(self, world: World) -> None:
        """A call sends one start and one end event, with the counts of its hits and nodes."""
        for call in (run_sync, run_async):
            with recorded_events() as events:
                result = call(self.make(world.store()), world.hits)
            if not world.hits:
                assert events == []
                continue
            start, end = events
            assert isinstance(start, ContextAugmentationStartEvent)
            assert isinstance(end, ContextAugmentationEndEvent)
            assert start.augmenter == end.augmenter == self.augmenter.class_name()
            assert start.num_hits == end.num_hits == len(best_scores(world.hits))
            assert (start.query_str, end.num_nodes) == (QUERY, len(result))

    def test_saved_and_restored(self) -> None:
        """The saved form is plain JSON without docstore and models, and restores the parameters."""
        store = World([], []).store()
        data = json.loads(self.make(store).to_json())
        left_out = {name for name, info in self.augmenter.model_fields.items() if info.exclude}
        assert not left_out & data.keys()
        given_again = {"docstore": store, **self.parameters}
        restored = self.augmenter.from_dict(data, **{k: v for k, v in given_again.items() if k in left_out})
        assert json.loads(restored.to_json()) == data

    def test_equal_output_in_another_process(self) -> None:
        """Equal input gives equal output in a process with another hash seed."""
        assert _outputs(type(self)) == other_process().submit(_outputs, type(self)).result()

    def _both_ways(
        self, world: World, given_hits: list[NodeWithScore] | None = None, **parameters: Any
    ) -> list[NodeWithScore]:
        """Return the result of a call, which is the same sync and async."""
        found = world.hits if given_hits is None else given_hits
        result, again = (
            call(self.make(world.store(), **parameters), found) for call in (run_sync, run_async)
        )
        assert dicts(result) == dicts(again)
        return result


class AugmenterConformance(PostprocessorConformance):
    """Tests of an augmenter that reads a docstore: the promises of each augmenter of this package.

    Attributes:
        max_round_trips: maximum batched reads of one call if all links are there and right.

    Example:
        ```python
        from llama_index_ext_ctxaug.testing import AugmenterConformance

        class TestMine(AugmenterConformance):
            augmenter = MyAugmenter
        ```
    """

    max_round_trips: ClassVar[int] = 4

    def make(self, docstore: BaseDocumentStore, **parameters: Any) -> Any:
        """Make the augmenter over a docstore."""
        return self.augmenter(docstore=docstore, **{**self.parameters, **parameters})  # type: ignore[call-arg]

    @settings(few, max_examples=150)  # links into another document are drawn seldom
    @given(any_world)
    def test_neighbors_are_of_the_document_of_their_hits(self, world: World) -> None:
        """The hits of an added node, and the pieces of a passage, are of one document, whatever links say."""
        for hit in self._both_ways(world):
            provenance = read_provenance(hit.node)
            if provenance is not None:
                ids = {*provenance.hits, *(piece.node_id for piece in provenance.pieces)}
                ids |= {hit.node.node_id} & world.nodes.keys()
                assert len({world.nodes[id_].ref_doc_id for id_ in ids}) == 1

    @few
    @given(any_world)
    def test_filters_hold(self, world: World) -> None:
        """No chunk that the filters refuse is added, whether they are MetadataFilters or a function."""
        hit_ids = {hit.node.node_id for hit in world.hits}
        result = self._both_ways(world, neighbor_filters=TENANT_A)
        for id_ in (id_ for hit in result for id_ in stored_ids_in(hit) if id_ not in hit_ids):
            assert world.nodes[id_].metadata["tenant"] == "a"
        by_function = self._both_ways(world, neighbor_filters=lambda node: node.metadata["tenant"] == "a")
        assert dicts(by_function) == dicts(result)

    @few
    @given(any_world)
    def test_missing_nodes_are_reported_once(self, world: World) -> None:
        """A missing node gives one warning per call; strict=True raises exactly where there is a warning."""
        with recorded_complaints() as messages:
            run_sync(self.make(world.store()), world.hits)
        assert len(messages) <= 1
        assert not (messages and world.tidy)
        raised = False
        try:
            run_sync(self.make(world.store(), strict=True), world.hits)
        except ContextAugmentationError:
            raised = True
        assert raised == bool(messages)

    @few
    @given(any_world, st.integers(0, 3))
    def test_a_failing_store_is_not_hidden(self, world: World, works: int) -> None:
        """The store's own error is raised; on_store_error="return_hits" returns the hits and nothing else."""
        healthy = world.store()
        run_sync(self.make(healthy), world.hits)
        if len(healthy.batches) + len(healthy.document_reads) <= works:
            return
        hit_ids = {hit.node.node_id for hit in world.hits}
        for call in (run_sync, run_async):
            store = world.store(fail_after=works)
            try:
                call(self.make(store), world.hits)
            except ConnectionError as error:
                assert error is store.error  # noqa: PT017 - pytest is not imported here
            else:
                raise AssertionError("the docstore failed and nothing was raised")
            store.reset()
            result = call(self.make(store, on_store_error="return_hits"), world.hits)
            returned = {id_ for hit in result for id_ in stored_ids_in(hit)}
            assert returned <= hit_ids
            assert self.drops_hits or returned == hit_ids

    @few
    @given(tidy_world)
    def test_reads_are_few(self, world: World) -> None:
        """No id is read twice, and the round trips do not grow with the number of hits or chunks."""
        for call in (run_sync, run_async):
            store = world.store()
            call(self.make(store), world.hits)
            assert len(set(store.node_reads)) == len(store.node_reads)
            assert len(set(store.document_reads)) == len(store.document_reads)
            assert len(store.batches) <= self.max_round_trips

    @settings(few, max_examples=3)
    @given(any_world)
    def test_async_never_blocks_the_event_loop(self, world: World) -> None:
        """With a docstore that takes time, no blocking call is made in the event loop."""
        augmenter = self.make(world.store(latency=0.001))

        async def call() -> None:
            with blockbuster_ctx():
                await augmenter.apostprocess_nodes(world.hits, query_str=QUERY)

        asyncio.run(call())


def _outputs(conformance: type[PostprocessorConformance]) -> list[str]:
    """Return the output over two fixed documents, as JSON."""
    metadata = {"window": "text", "tenant": "a"}
    documents = [
        linked_document(9, source_id="doc0", metadata=metadata),
        linked_document(9, source_id="doc1", links="previous", metadata=metadata),
    ]
    found = [*hits(documents[1], [4, 8]), *hits(documents[0], [0, 7, 3])]
    result = run_sync(conformance().make(World(documents, found).store()), found)
    return [hit.to_json() for hit in result]

"""Tests that a docstore must pass for augmenters to work on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.schema import BaseNode, NodeWithScore, TextNode
from llama_index.core.storage.docstore.types import BaseDocumentStore

from llama_index_ext_ctxaug.events import ContextAugmentationEndEvent
from llama_index_ext_ctxaug.postprocessors.prev_next import PrevNextNodePostprocessor
from llama_index_ext_ctxaug.testing.kit import hits, linked_document

MakeDocstore = Callable[[], BaseDocumentStore]


class CallRecord(NamedTuple):
    """The result and the cost of one call.

    Attributes:
        nodes: the nodes returned.
        round_trips: consecutive reads of the docstore.
        reads: keys read.
    """

    nodes: list[NodeWithScore]
    round_trips: int
    reads: int

    @property
    def ids(self) -> list[str]:
        """Node ids, in order."""
        return [node.node.node_id for node in self.nodes]


class DocstoreConformance:
    """Tests of a docstore, each run sync and async.

    Subclass it as a test class with a fixture `make_docstore`, a function that returns a new, empty
    docstore at each call; run it with pytest.

    Example:
        ```python
        import pytest
        from llama_index.core.storage.docstore import SimpleDocumentStore
        from llama_index_ext_ctxaug.testing import DocstoreConformance

        class TestMyDocstore(DocstoreConformance):
            @pytest.fixture
            def make_docstore(self):
                return SimpleDocumentStore
        ```

    Attributes:
        metadata: metadata that must survive; override it where the store accepts flat metadata only.
    """

    metadata: ClassVar[dict[str, Any]] = {"page": 3, "tags": ["a", "b"], "none": None}

    def make_id(self, name: str) -> str:
        """Return the id of a node; override it where the store accepts certain ids only."""
        return name

    def document(self, texts: int | Sequence[str], **options: Any) -> list[TextNode]:
        """Return the chunks of a document, as `linked_document` does."""
        return linked_document(texts, make_id=self.make_id, **options)

    def test_neighbors_come_in_document_order(self, make_docstore: MakeDocstore) -> None:
        """Both neighbors of each hit are returned in document order, passages by the rank of their hits."""
        first, second = self.document(9, source_id="first"), self.document(9, source_id="second")
        docstore = _filled(make_docstore, first, second)
        record = _both_ways(docstore, [*hits(second, [4]), *hits(first, [1, 3])], num_nodes=1, mode="both")
        assert record.ids == _ids([*second[3:6], *first[0:5]])

    def test_nodes_come_back_whole(self, make_docstore: MakeDocstore) -> None:
        """Text of any script, metadata, offsets and relationships survive the docstore."""
        texts = ["Ein Maß 水 \U0001f600", 'quotes " and \\ and \n line', "third"]
        chain = self.document(texts, offsets=True, metadata=self.metadata)
        docstore = _filled(make_docstore, chain)
        record = _both_ways(docstore, hits(chain, [0]), num_nodes=2)
        for stored, node in zip(record.nodes, chain, strict=True):
            assert isinstance(stored.node, TextNode)
            assert stored.node.text == node.text
            assert stored.node.start_char_idx == node.start_char_idx
            assert stored.node.relationships == node.relationships
            assert {key: stored.node.metadata[key] for key in node.metadata} == node.metadata

    def test_round_trips_do_not_exceed_hops(self, make_docstore: MakeDocstore) -> None:
        """Each of two hops costs at most one read for all hits and documents; no key is read twice."""
        documents = [self.document(12, source_id=f"document-{number}") for number in range(5)]
        docstore = _filled(make_docstore, *documents)
        found = [hit for chain in documents for hit in hits(chain, [2, 3, 8])]
        for hops in (1, 2):
            record = _both_ways(docstore, found, num_nodes=hops, mode="both")
            assert record.round_trips <= hops
            assert record.reads <= 12 * len(documents)
            assert len(record.ids) == len(set(record.ids)) == 5 * len({*_around([2, 3, 8], hops)})

    def test_a_long_walk_takes_two_round_trips(self, make_docstore: MakeDocstore) -> None:
        """From three hops on, the document's node list is read first, then all neighbors at once."""
        chain = self.document(60)
        docstore = _filled(make_docstore, chain)
        record = _both_ways(docstore, hits(chain, [10, 40]), num_nodes=9, mode="both")
        assert record.ids == _ids([*chain[1:20], *chain[31:50]])
        assert record.round_trips <= 2

    def test_order_of_adding_does_not_matter(self, make_docstore: MakeDocstore) -> None:
        """Nodes added out of document order are found by their links."""
        chain = self.document(12)
        docstore = make_docstore()
        for place in (7, 2, 11, 5, 0, 9, 4, 1, 10, 3, 8, 6):
            docstore.add_documents([chain[place]])
        record = _both_ways(docstore, hits(chain, [6]), num_nodes=4, mode="both")
        assert record.ids == _ids(chain[2:11])

    def test_a_node_deleted_and_added_again(self, make_docstore: MakeDocstore) -> None:
        """A node that is last in the document's list because it was added again keeps its place."""
        chain = self.document(10)
        docstore = _filled(make_docstore, chain)
        docstore.delete_document(chain[4].node_id)
        docstore.add_documents([chain[4]])
        record = _both_ways(docstore, hits(chain, [3]), num_nodes=4)
        assert record.ids == _ids(chain[3:8])

    def test_missing_nodes_end_growth(self, make_docstore: MakeDocstore) -> None:
        """Expansion ends at a linked node that is not in the docstore, without an error."""
        chain = self.document(9)
        docstore = _filled(make_docstore, chain)
        docstore.delete_document(chain[6].node_id)
        record = _both_ways(docstore, hits(chain, [4]), num_nodes=3, mode="both")
        assert record.ids == _ids(chain[1:6])

    def test_an_empty_docstore_gives_the_hits(self, make_docstore: MakeDocstore) -> None:
        """A docstore without nodes gives the hits back, in their order."""
        chain = self.document(5)
        record = _both_ways(make_docstore(), hits(chain, [3, 1]), num_nodes=2, mode="both")
        assert record.ids == _ids([chain[3], chain[1]])

    def test_lost_links_are_taken_from_the_docstore(self, make_docstore: MakeDocstore) -> None:
        """A hit without relationships, as vector stores return it, uses those of its stored copy."""
        chain = self.document(7)
        docstore = _filled(make_docstore, chain)
        bare = TextNode(id_=chain[3].node_id, text=chain[3].text)
        found = [NodeWithScore(node=bare, score=0.5)]
        record = _both_ways(docstore, found, num_nodes=2, mode="both")
        assert record.ids == _ids(chain[1:6])

    def test_links_of_one_direction_are_enough(self, make_docstore: MakeDocstore) -> None:
        """Where nodes have PREVIOUS only, following nodes are found by the document's node list."""
        chain = self.document(8, links="previous")
        docstore = _filled(make_docstore, chain)
        record = _both_ways(docstore, hits(chain, [3]), num_nodes=3, mode="both")
        assert record.ids == _ids(chain[0:7])

    def test_each_call_may_have_its_own_event_loop(self, make_docstore: MakeDocstore) -> None:
        """Each `asyncio.run` on the same docstore gives the same result."""
        chain = self.document(9)
        docstore = _filled(make_docstore, chain)
        augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=3, mode="both")
        for _ in range(3):
            nodes = asyncio.run(augmenter.apostprocess_nodes(hits(chain, [4])))
            assert [node.node.node_id for node in nodes] == _ids(chain[1:8])

    def test_many_queries_at_once(self, make_docstore: MakeDocstore) -> None:
        """Each of fifty concurrent async calls gets its own neighbors."""
        chain = self.document(60)
        augmenter = PrevNextNodePostprocessor(
            docstore=_filled(make_docstore, chain), num_nodes=3, mode="both"
        )

        async def ask_all() -> list[list[NodeWithScore]]:
            calls = [augmenter.apostprocess_nodes(hits(chain, [place])) for place in range(5, 55)]
            return await asyncio.gather(*calls)

        for place, nodes in enumerate(asyncio.run(ask_all()), start=5):
            assert [node.node.node_id for node in nodes] == _ids(chain[place - 3 : place + 4])

    def test_a_failing_docstore_is_not_hidden(self, make_docstore: MakeDocstore) -> None:
        """A docstore's error is raised; with on_store_error="return_hits" the hits are returned alone."""
        chain = self.document(5)
        docstore = _filled(make_docstore, chain)
        error = ConnectionError("out of reach")
        _break(docstore, error)
        for call in (_sync, _async):
            try:
                call(PrevNextNodePostprocessor(docstore=docstore), hits(chain, [2]))
            except ConnectionError as raised:
                assert raised is error  # noqa: PT017 - pytest is not imported here
            else:
                raise AssertionError("the docstore failed and nothing was raised")
        record = _both_ways(docstore, hits(chain, [2, 0]), on_store_error="return_hits")
        assert record.ids == _ids([chain[2], chain[0]])


def _filled(make_docstore: MakeDocstore, *documents: Sequence[BaseNode]) -> BaseDocumentStore:
    docstore = make_docstore()
    for nodes in documents:
        docstore.add_documents(list(nodes))
    return docstore


def _ids(nodes: Sequence[BaseNode]) -> list[str]:
    return [node.node_id for node in nodes]


def _around(places: Sequence[int], hops: int) -> list[int]:
    return [place + step for place in places for step in range(-hops, hops + 1)]


class _EndEvents(BaseEventHandler):
    ends: list[ContextAugmentationEndEvent]

    def handle(self, event: Any, **kwargs: Any) -> None:
        """Keep end events."""
        if isinstance(event, ContextAugmentationEndEvent):
            self.ends.append(event)


def _sync(augmenter: PrevNextNodePostprocessor, found: list[NodeWithScore]) -> list[NodeWithScore]:
    return augmenter.postprocess_nodes(found)


def _async(augmenter: PrevNextNodePostprocessor, found: list[NodeWithScore]) -> list[NodeWithScore]:
    return asyncio.run(augmenter.apostprocess_nodes(found))


def _both_ways(docstore: BaseDocumentStore, found: list[NodeWithScore], **parameters: Any) -> CallRecord:
    """Call sync and async, check that result and cost are the same, and return them."""
    augmenter = PrevNextNodePostprocessor(docstore=docstore, **parameters)
    handler = _EndEvents(ends=[])
    dispatcher = get_dispatcher()
    dispatcher.add_event_handler(handler)
    try:
        answers = [call(augmenter, found) for call in (_sync, _async)]
    finally:
        dispatcher.event_handlers.remove(handler)
    records = [
        CallRecord(nodes, end.round_trips, end.reads)
        for nodes, end in zip(answers, handler.ends, strict=True)
    ]
    assert records[0] == records[1]
    return records[0]


def _break(docstore: BaseDocumentStore, error: Exception) -> None:
    """Make all reads of a docstore fail."""

    def fail(*_: object, **__: object) -> None:
        raise error

    async def afail(*_: object, **__: object) -> None:
        raise error

    names = ("get_nodes", "get_node", "get_document", "get_ref_doc_info", "get_all_ref_doc_info", "read")
    for name in names:
        setattr(docstore, name, fail)
        setattr(docstore, f"a{name}", afail)

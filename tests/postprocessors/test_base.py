"""ContextAugmenter: its parameters, messages, events and serialization."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import ids, recorded
from llama_index.core import Document, MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.schema import QueryBundle
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

from llama_index_ext_ctxaug import (
    PROVENANCE_KEY,
    ContextAugmentationEndEvent,
    ContextAugmentationStartEvent,
    ContextAugmenter,
    Expansion,
    Flow,
    PrevNextNodePostprocessor,
    Reach,
    read_provenance,
)
from llama_index_ext_ctxaug.testing import ObservedDocstore, docstore_of, hits, linked_document


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (
            lambda: VectorStoreIndex([], embed_model=MockEmbedding(embed_dim=2)),
            "got VectorStoreIndex; use from_index",
        ),
        (StorageContext.from_defaults, "got StorageContext; .*docstore"),
        (lambda: [Document(text="a")], r"got list; .*add_documents\(nodes\)"),
        (lambda: "redis://", "got str; pass index.docstore"),
        (lambda: None, "got NoneType; pass index.docstore"),
    ],
    ids=["index", "storage context", "documents", "text", "nothing"],
)
def test_a_wrong_docstore_is_explained(make: Any, hint: str) -> None:
    """An invalid docstore is rejected, and the message says where to find the docstore."""
    with pytest.raises(ValueError, match=hint):
        PrevNextNodePostprocessor(docstore=make())


@pytest.fixture
def events() -> Iterator[list[BaseEvent]]:
    """Collect the start and end events."""
    with recorded(ContextAugmentationStartEvent, ContextAugmentationEndEvent) as events:
        yield events


def test_events(postprocess: Any, events: list[BaseEvent]) -> None:
    """A call reports its start, and its end with reads, added nodes and stop reasons."""
    nodes = linked_document(5)
    store = ObservedDocstore(docstore_of(nodes))
    augmenter = PrevNextNodePostprocessor(docstore=store, mode="both", num_nodes=2)
    postprocess(augmenter, hits(nodes, [1, 1]), query_str="what?")
    start, end = events
    assert isinstance(start, ContextAugmentationStartEvent)
    assert (start.augmenter, start.num_hits, start.query_str) == ("PrevNextNodePostprocessor", 1, "what?")
    assert isinstance(end, ContextAugmentationEndEvent)
    assert end.added_node_ids == [nodes[0].node_id, nodes[2].node_id, nodes[3].node_id]
    assert end.num_nodes == 4
    assert end.round_trips == len(store.batches) == 2
    assert end.reads == len(store.node_reads) + len(store.document_reads)
    assert end.stop_reasons == {"document_end": 1, "count": 1}


def test_no_hits_is_no_work(postprocess: Any, events: list[BaseEvent]) -> None:
    """Empty input gives an empty list, reads nothing and reports nothing."""
    store = ObservedDocstore(docstore_of(linked_document(2)))
    assert postprocess(PrevNextNodePostprocessor(docstore=store), []) == []
    assert store.batches == []
    assert events == []


def test_provenance_of_added_nodes(postprocess: Any) -> None:
    """Added nodes name their hits, nearest first, with hops and stop reasons, hidden from models."""
    nodes = linked_document(6)
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode="both", num_nodes=3)
    result = postprocess(augmenter, hits(nodes, [1, 5]))
    provenance = [read_provenance(hit.node) for hit in result]
    assert provenance[1] is None
    assert provenance[5] is None
    assert provenance[0]
    assert (provenance[0].hits, provenance[0].hops) == ((nodes[1].node_id,), 1)
    assert provenance[0].stopped_previous == "document_end"
    assert provenance[3]
    assert provenance[3].hits == (nodes[1].node_id, nodes[5].node_id)
    assert provenance[4]
    assert provenance[4].hits == (nodes[5].node_id, nodes[1].node_id)
    added = result[0].node
    assert PROVENANCE_KEY in added.metadata
    assert PROVENANCE_KEY not in added.get_content(metadata_mode="llm")  # type: ignore[arg-type]
    assert PROVENANCE_KEY not in added.get_content(metadata_mode="embed")  # type: ignore[arg-type]
    json.dumps(added.metadata)


def test_decay(postprocess: Any) -> None:
    """Each hop lowers the score by the factor, negative scores too; None stays None."""
    nodes = linked_document(9)
    augmenter = PrevNextNodePostprocessor(
        docstore=docstore_of(nodes), num_nodes=2, neighbor_score="decay", score_decay=0.5
    )
    result = postprocess(augmenter, hits(nodes, [0, 3, 6], [0.8, -2.0, None]))
    assert [hit.score for hit in result] == [0.8, 0.4, 0.2, -2.0, -4.0, -8.0, None, None, None]


def test_return_hits_keeps_order_and_logs(postprocess: Any, caplog: pytest.LogCaptureFixture) -> None:
    """With on_store_error="return_hits" the error is logged and the distinct hits are returned."""
    nodes = linked_document(6)
    store = ObservedDocstore(docstore_of(nodes), fail_after=1)
    augmenter = PrevNextNodePostprocessor(docstore=store, num_nodes=2, on_store_error="return_hits")
    retrieved = hits(nodes, [3, 0, 3])
    assert postprocess(augmenter, retrieved) == [retrieved[0], retrieved[1]]
    assert "the docstore failed" in caplog.text
    assert "the docstore is gone" in caplog.text


def test_an_error_of_the_policy_is_never_taken_for_one_of_the_store() -> None:
    """return_hits covers the docstore alone: the error of a filter is still raised."""

    def broken(node: Any) -> bool:
        raise ZeroDivisionError

    nodes = linked_document(3)
    augmenter = PrevNextNodePostprocessor(
        docstore=docstore_of(nodes), neighbor_filters=broken, on_store_error="return_hits"
    )
    with pytest.raises(ZeroDivisionError):
        augmenter.postprocess_nodes(hits(nodes, [0]))


def test_growth_ends_before_a_refused_node(postprocess: Any) -> None:
    """A node that the filters reject is not skipped: expansion ends there, and reports it."""
    nodes = linked_document(5)
    for place, node in enumerate(nodes):
        node.metadata["tenant"] = "b" if place == 2 else "a"
    filters = MetadataFilters(filters=[MetadataFilter(key="tenant", value="a")])
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), num_nodes=4, neighbor_filters=filters)
    result = postprocess(augmenter, hits(nodes, [0]))
    assert ids(result) == [nodes[0].node_id, nodes[1].node_id]
    provenance = read_provenance(result[1].node)
    assert provenance
    assert provenance.stopped_next == "filter"


def test_filters_are_saved_and_a_function_is_asked_for_again() -> None:
    """MetadataFilters round-trip; a lost filter function never silently means no filter."""
    filters = MetadataFilters(filters=[MetadataFilter(key="tenant", value="a")])
    store = SimpleDocumentStore()
    saved = PrevNextNodePostprocessor(docstore=store, neighbor_filters=filters).to_json()
    restored = PrevNextNodePostprocessor.from_json(saved, docstore=store)
    assert restored.neighbor_filters == filters
    saved = PrevNextNodePostprocessor(docstore=store, neighbor_filters=lambda node: True).to_json()
    with pytest.raises(ValueError, match="pass it again"):
        PrevNextNodePostprocessor.from_json(saved, docstore=store)
    PrevNextNodePostprocessor.from_dict(json.loads(saved) | {"neighbor_filters": None}, docstore=store)


class NextOfBest(ContextAugmenter):
    """Adds the chunk after the best hit."""

    def expand(self, expansion: Expansion, query: QueryBundle | None) -> Flow[None]:
        """Add the chunk after the best hit."""
        yield from expansion.expand({next(iter(expansion.hits)): Reach(next=1)})


def test_a_policy_of_ones_own(postprocess: Any) -> None:
    """A subclass only implements its policy: name, parameters and output come from the engine."""
    nodes = linked_document(6)
    augmenter = NextOfBest(docstore=docstore_of(nodes), neighbor_score="inherit")
    result = postprocess(augmenter, hits(nodes, [4, 1]))
    assert ids(result) == [nodes[4].node_id, nodes[5].node_id, nodes[1].node_id]
    assert augmenter.to_dict()["class_name"] == "NextOfBest"


class BestAlone(ContextAugmenter):
    """Returns only the best hit."""

    def expand(self, expansion: Expansion, query: QueryBundle | None) -> None:  # type: ignore[override]
        """Keep the best hit."""
        best = next(iter(expansion.hits))
        expansion.chunks = {best: expansion.hits[best]}


def test_a_policy_that_reads_nothing_is_a_plain_method(postprocess: Any) -> None:
    """A policy need not be a generator."""
    nodes = linked_document(3)
    result = postprocess(BestAlone(docstore=docstore_of(nodes)), hits(nodes, [2, 0]))
    assert ids(result) == [nodes[2].node_id]


async def test_concurrent_calls_share_nothing() -> None:
    """Concurrent calls on one postprocessor each get their own result."""
    documents = [linked_document(20, source_id=f"doc{number}") for number in range(8)]
    store = ObservedDocstore(docstore_of(*documents), latency=0.002)
    augmenter = PrevNextNodePostprocessor(docstore=store, mode="both", num_nodes=4)
    alone = [ids(await augmenter.apostprocess_nodes(hits(nodes, [9]))) for nodes in documents]
    together = await asyncio.gather(*(augmenter.apostprocess_nodes(hits(nodes, [9])) for nodes in documents))
    assert [ids(result) for result in together] == alone


async def test_a_cancelled_call_leaves_no_read_behind() -> None:
    """After a cancellation in mid-read, no further read is made."""
    nodes = linked_document(20)
    store = ObservedDocstore(docstore_of(nodes), latency=0.05)
    augmenter = PrevNextNodePostprocessor(docstore=store, num_nodes=2)
    task = asyncio.create_task(augmenter.apostprocess_nodes(hits(nodes, [3])))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.1)
    assert len(store.batches) == 1
    assert len(asyncio.all_tasks()) == 1


PROGRAM = """
import json, pickle, sys
from llama_index_ext_ctxaug import PrevNextNodePostprocessor
from llama_index_ext_ctxaug.testing import docstore_of
documents, hits = pickle.load(open(sys.argv[1], "rb"))
augmenter = PrevNextNodePostprocessor(docstore=docstore_of(*documents), mode="both", num_nodes=2)
print(json.dumps([hit.to_dict() for hit in augmenter.postprocess_nodes(hits)]))
"""


def test_equal_input_gives_equal_output_in_another_process(tmp_path: Path) -> None:
    """Output is byte-equal under two hash seeds, with nodes pickled into the other process."""
    documents = [
        linked_document(9, source_id=f"doc{n}", links=links) for n, links in enumerate(["both", "previous"])
    ]
    retrieved = [*hits(documents[1], [4, 8]), *hits(documents[0], [0, 7, 3])]
    path = tmp_path / "nodes.pickle"
    path.write_bytes(pickle.dumps((documents, retrieved)))
    outputs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(path)],
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    ]
    here = PrevNextNodePostprocessor(docstore=docstore_of(*documents), mode="both", num_nodes=2)
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0]) == [hit.to_dict() for hit in here.postprocess_nodes(retrieved)]


def test_verbose_details_stay_out_of_the_log(postprocess: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A call without a problem logs nothing."""
    nodes = linked_document(4)
    with caplog.at_level(logging.DEBUG, logger="llama_index_ext_ctxaug"):
        postprocess(PrevNextNodePostprocessor(docstore=docstore_of(nodes)), hits(nodes, [1]))
    assert caplog.messages == []


def test_augmenting_twice_is_augmenting_once(postprocess: Any) -> None:
    """Neighbors that an augmenter added do not expand again, alone or with their hits."""
    nodes = linked_document(12)
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode="both", num_nodes=2)
    once = postprocess(augmenter, hits(nodes, [5]))
    assert ids(postprocess(augmenter, once)) == ids(once)
    assert ids(postprocess(augmenter, once[:1])) == ids(once[:1])


def test_pages_are_ordered_by_the_key_that_is_named(postprocess: Any) -> None:
    """page_key names the metadata that orders the documents of a file."""
    pages = [
        linked_document(1, source_id=f"d{n}", metadata={"file": "f", "sheet": n, "page_label": -n})
        for n in range(3)
    ]
    parameters = {"docstore": docstore_of(*reversed(pages)), "num_nodes": 2, "document_key": "file"}
    by_sheet = PrevNextNodePostprocessor(page_key="sheet", **parameters)
    assert ids(postprocess(by_sheet, hits(pages[0], [0]))) == [page[0].node_id for page in pages]


@pytest.mark.parametrize("places", [[1, 2], [2, 1]])
def test_both_ends_say_why_growth_ended(postprocess: Any, places: list[int]) -> None:
    """The first and last node of a run name the stop reason; a document's end precedes a count."""
    nodes = linked_document(6)
    nodes[4].metadata["tenant"] = "b"
    augmenter = PrevNextNodePostprocessor(
        docstore=docstore_of(nodes),
        mode="both",
        num_nodes=2,
        neighbor_filters=lambda node: "tenant" not in node.metadata,
    )
    result = postprocess(augmenter, hits(nodes, places))
    first, last = read_provenance(result[0].node), read_provenance(result[-1].node)
    assert first
    assert last
    assert (first.stopped_previous, last.stopped_next) == ("document_end", "filter")

"""WholeDocuments: the same nodes in one process, in several and in batches of any size."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from pydoc_data.topics import topics

import llama_index.core
import pytest
from llama_index.core import Document
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser import HierarchicalNodeParser, MarkdownNodeParser, SentenceSplitter
from llama_index.core.schema import BaseNode, NodeRelationship, RelatedNodeInfo, TransformComponent
from pydantic import ValidationError

from llama_index_ext_ctxaug import NeighborLinker, WholeDocuments, WindowExtractor
from llama_index_ext_ctxaug.testing import linked_document

DOCUMENTS = [Document(id_=name, text=topics[name]) for name in ("while", "try", "with", "for", "assert")]


def chunk_id(number: int, node: BaseNode) -> str:
    """Return the same id for a chunk in every process."""
    return f"{node.node_id}/{number}"


def section_id(number: int, node: BaseNode) -> str:
    """Return an id for a section; chunks are numbered from 0 in each section."""
    return f"{node.node_id}#{number}"


def steps() -> list[TransformComponent]:
    """Return a parser, a linker and windows."""
    parser = SentenceSplitter(chunk_size=64, chunk_overlap=8, id_func=chunk_id)
    return [parser, NeighborLinker(), WindowExtractor(window_size=2)]


def in_batches(step: TransformComponent, nodes: Sequence[BaseNode], size: int) -> list[BaseNode]:
    """Run a step on batches of nodes, as a distributed engine does."""
    starts = range(0, len(nodes), size)
    return [node for start in starts for node in step(nodes[start : start + size])]


def test_the_steps_in_turn() -> None:
    """The result equals that of the transformations in turn, sync and async."""
    expected: Sequence[BaseNode] = DOCUMENTS
    for step in steps():
        expected = step(expected)
    whole = WholeDocuments(steps())
    assert list(whole(DOCUMENTS)) == list(expected)
    assert list(asyncio.run(whole.acall(DOCUMENTS))) == list(expected)


@pytest.mark.parametrize("size", [1, 2, 16])
@pytest.mark.parametrize(
    "make_parsers",
    [
        lambda: [SentenceSplitter(chunk_size=64, chunk_overlap=8, id_func=chunk_id)],
        lambda: [
            MarkdownNodeParser(id_func=section_id),
            SentenceSplitter(chunk_size=64, chunk_overlap=0, id_func=chunk_id),
        ],
    ],
    ids=["splitter", "markdown and splitter"],
)
def test_batches_of_any_size(make_parsers: Callable[[], list[TransformComponent]], size: int) -> None:
    """Batches of documents give the same nodes, links and windows as one call."""
    whole = WholeDocuments([*make_parsers(), NeighborLinker(), WindowExtractor(window_size=2)])
    assert in_batches(whole, DOCUMENTS, size) == list(whole(DOCUMENTS))


def test_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """num_workers=2 gives the nodes of one process."""
    # Worker processes load the tokenizer anew; without LlamaIndex's copy they download it.
    cache = Path(llama_index.core.__file__).parent / "_static" / "tiktoken_cache"
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(cache))
    pipeline = IngestionPipeline(transformations=[WholeDocuments(steps())], disable_cache=True)
    assert list(pipeline.run(documents=DOCUMENTS, num_workers=2)) == list(pipeline.run(documents=DOCUMENTS))


@pytest.mark.parametrize("step", [NeighborLinker(), WindowExtractor()], ids=["linker", "windows"])
def test_a_batch_that_cuts_a_document(step: TransformComponent, caplog: pytest.LogCaptureFixture) -> None:
    """A batch that begins or ends inside a document gives one warning that names the remedy."""
    nodes = linked_document(9)
    for part in (nodes[:5], nodes[5:]):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            step(part)
        assert len(caplog.messages) == 1
        assert "begin or end inside a document" in caplog.messages[0]
        assert "WholeDocuments" in caplog.messages[0]
    caplog.clear()
    step(nodes)
    assert not caplog.messages


@pytest.mark.parametrize(
    "part", [slice(0, -1), slice(1, None)], ids=["without the last", "without the first"]
)
def test_a_batch_that_cuts_the_children_of_a_parent(part: slice, caplog: pytest.LogCaptureFixture) -> None:
    """Unlinked children are reported as cut if their parent lists more than the batch holds."""
    parent, *children = linked_document(5, links="none")
    parent.relationships[NodeRelationship.CHILD] = [RelatedNodeInfo(node_id=c.node_id) for c in children]
    for child in children:
        child.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id=parent.node_id)
    NeighborLinker()([parent, *children])
    assert not caplog.messages
    NeighborLinker()([parent, *children[part]])
    assert len(caplog.messages) == 1
    assert "begin or end inside a document" in caplog.messages[0]


def test_whole_documents_give_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Batches of whole documents give no warning, hierarchies and their leaves included."""
    hierarchy = HierarchicalNodeParser.from_defaults([256, 64], chunk_overlap=0)
    with caplog.at_level(logging.WARNING, logger="llama_index_ext_ctxaug"):
        in_batches(WholeDocuments([hierarchy, NeighborLinker(), WindowExtractor()]), DOCUMENTS, 2)
        nodes = hierarchy(DOCUMENTS)
        NeighborLinker()([node for node in nodes if NodeRelationship.CHILD not in node.relationships])
    assert not [record for record in caplog.records if record.name.startswith("llama_index_ext_ctxaug")]


def test_saved_for_the_cache_of_a_pipeline() -> None:
    """Different parameters of a step give a different cache key, and equal ones the same."""
    one, same = WholeDocuments(steps()), WholeDocuments(transformations=steps())
    other = WholeDocuments([*steps()[:-1], WindowExtractor(window_size=5)])
    assert one.to_dict()["class_name"] == "WholeDocuments"
    assert str(one.to_dict()["transformations"][1:]) == str(same.to_dict()["transformations"][1:])
    assert str(one.to_dict()["transformations"][1:]) != str(other.to_dict()["transformations"][1:])


@pytest.mark.parametrize("wrong", [[], ["text"]])
def test_nothing_to_run_is_refused(wrong: list[TransformComponent]) -> None:
    """Without transformations, or with values of another type, construction fails."""
    with pytest.raises(ValidationError, match="transformations"):
        WholeDocuments(wrong)

"""Inside LlamaIndex: query engines, chat engines and workflows, sync and async, over real prose."""

from __future__ import annotations

import asyncio
from pydoc_data.topics import topics
from typing import Any

import pytest
from blockbuster import blockbuster_ctx
from helpers import ids
from llama_index.core import Document, get_response_synthesizer
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import BaseNode, QueryBundle
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.workflow import StartEvent, StopEvent, Workflow, step
from llama_index.retrievers.bm25 import BM25Retriever

from llama_index_ext_ctxaug import PrevNextNodePostprocessor

QUESTION = "What happens when a generator function is called?"


@pytest.fixture(scope="module")
def nodes() -> list[BaseNode]:
    """Chunks of some chapters of the language reference."""
    documents = [Document(text=topics[name], id_=name) for name in ("types", "yield", "try", "calls")]
    return SentenceSplitter(chunk_size=128, chunk_overlap=0).get_nodes_from_documents(documents)


@pytest.fixture(scope="module")
def retriever(nodes: list[BaseNode]) -> BM25Retriever:
    """Keyword search over them."""
    return BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=3)


@pytest.fixture(scope="module")
def augmenter(nodes: list[BaseNode]) -> PrevNextNodePostprocessor:
    """One neighbor on each side."""
    docstore = SimpleDocumentStore()
    docstore.add_documents(nodes)
    return PrevNextNodePostprocessor(docstore=docstore, mode="both")


@pytest.fixture
def expected(
    retriever: BM25Retriever, augmenter: PrevNextNodePostprocessor, nodes: list[BaseNode]
) -> list[str]:
    """Ids of the nodes that the model reads: the hits and their neighbors, in runs."""
    hits = retriever.retrieve(QUESTION)
    places = {node.node_id: place for place, node in enumerate(nodes)}
    result = ids(augmenter.postprocess_nodes(hits))
    for hit in hits:
        place = places[hit.node.node_id]
        assert {
            n.node_id for n in nodes[place - 1 : place + 2] if n.ref_doc_id == hit.node.ref_doc_id
        } <= set(result)
    return result


def test_query_engine(
    retriever: BM25Retriever, augmenter: PrevNextNodePostprocessor, expected: list[str]
) -> None:
    """retrieve, aretrieve, query and aquery all give the augmented nodes."""
    synthesizer = get_response_synthesizer(llm=MockLLM(max_tokens=4))
    engine = RetrieverQueryEngine(retriever, synthesizer, node_postprocessors=[augmenter])
    bundle = QueryBundle(QUESTION)
    assert ids(engine.retrieve(bundle)) == expected
    assert ids(engine.query(QUESTION).source_nodes) == expected
    assert ids(asyncio.run(engine.aretrieve(bundle))) == expected
    assert ids(asyncio.run(engine.aquery(QUESTION)).source_nodes) == expected


def test_chat_engine(
    retriever: BM25Retriever, augmenter: PrevNextNodePostprocessor, expected: list[str]
) -> None:
    """A context chat engine reads the augmented nodes, in chat and in achat."""
    engine = ContextChatEngine.from_defaults(
        retriever, llm=MockLLM(max_tokens=4), node_postprocessors=[augmenter]
    )
    assert ids(engine.chat(QUESTION).source_nodes) == expected
    engine.reset()
    assert ids(asyncio.run(engine.achat(QUESTION)).source_nodes) == expected


class AugmentingWorkflow(Workflow):
    """Retrieves and augments, as a step of a workflow."""

    retriever: Any
    augmenter: Any

    @step
    async def augment(self, event: StartEvent) -> StopEvent:
        """Await the postprocessor in the event loop of the workflow."""
        hits = self.retriever.retrieve(event.question)
        with blockbuster_ctx():
            return StopEvent(result=await self.augmenter.apostprocess_nodes(hits, query_str=event.question))


async def test_workflow_step(
    retriever: BM25Retriever, augmenter: PrevNextNodePostprocessor, expected: list[str]
) -> None:
    """A step that awaits apostprocess_nodes gets the augmented nodes and never blocks the loop."""
    workflow = AugmentingWorkflow(timeout=30)
    workflow.retriever, workflow.augmenter = retriever, augmenter
    assert ids(await workflow.run(question=QUESTION)) == expected

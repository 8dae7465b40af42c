"""LlamaIndex's documented examples of its four classes, run unchanged and with only the import changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import llama_index.core.postprocessor as llama_index_postprocessors
import llama_index.core.retrievers as llama_index_retrievers
import pytest
from helpers import ids
from llama_index.core import Document, Settings, StorageContext, VectorStoreIndex
from llama_index.core.agent.workflow import ReActAgent
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.node_parser import (
    HierarchicalNodeParser,
    SentenceSplitter,
    SentenceWindowNodeParser,
    get_leaf_nodes,
)
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.tools import QueryEngineTool

import llama_index_ext_ctxaug
from llama_index_ext_ctxaug.testing import ScriptedLLM, WordEmbedding

SENTENCES = [
    "The harbor was built by fishermen.",
    "A storm broke the old pier in spring.",
    "The town paid for a stone pier.",
    "It took nine years to finish.",
    "Ships from the north came in summer.",
    "The lighthouse was lit by oil at first.",
    "Later it was lit by gas and then by electricity.",
    "The keeper lived in the tower with a dog.",
    "A museum holds the old lamp today.",
]
TEXT = " ".join(SENTENCES)
QUESTION = "Who lived in the tower?"


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """Models that need no network, as `Settings` of LlamaIndex."""
    before = Settings._llm, Settings._embed_model
    Settings.llm = ScriptedLLM(answers=lambda prompt: "NEXT" if "PREVIOUS" in prompt else "the keeper")
    Settings.embed_model = WordEmbedding()
    yield
    Settings._llm, Settings._embed_model = before


@pytest.fixture(params=["llama_index", "this package"])
def postprocessors(request: pytest.FixtureRequest) -> ModuleType:
    """The module that the examples import postprocessors from."""
    return llama_index_postprocessors if request.param == "llama_index" else llama_index_ext_ctxaug


@pytest.fixture(params=["llama_index", "this package"])
def retrievers(request: pytest.FixtureRequest) -> ModuleType:
    """The module that the examples import the retriever from."""
    return llama_index_retrievers if request.param == "llama_index" else llama_index_ext_ctxaug


def indexed() -> tuple[VectorStoreIndex, SimpleDocumentStore]:
    """Build the index of the neighbor examples: nodes in a docstore, and an index over it."""
    nodes = SentenceSplitter(chunk_size=16, chunk_overlap=0).get_nodes_from_documents([Document(text=TEXT)])
    docstore = SimpleDocumentStore()
    docstore.add_documents(nodes)
    storage_context = StorageContext.from_defaults(docstore=docstore)
    return VectorStoreIndex(nodes, storage_context=storage_context), docstore


def answers(engine: Any) -> list[list[str]]:
    """Return the ids of an answer's source nodes, for each of the four ways to ask."""
    bundle = QueryBundle(QUESTION)

    async def ask() -> list[list[NodeWithScore]]:
        answer = await engine.aquery(QUESTION)
        return [answer.source_nodes, await engine.aretrieve(bundle)]

    found = [engine.query(QUESTION).source_nodes, engine.retrieve(bundle), *asyncio.run(ask())]
    return [ids(nodes) for nodes in found]


def test_prev_next(postprocessors: ModuleType) -> None:
    """The engine with four following nodes gives the hits and the nodes after them, in reading order."""
    index, docstore = indexed()
    engine = index.as_query_engine(
        similarity_top_k=1,
        node_postprocessors=[postprocessors.PrevNextNodePostprocessor(docstore=docstore, num_nodes=4)],
        response_mode="tree_summarize",
    )
    one, *others = answers(engine)
    order = [node.node_id for node in docstore.docs.values()]
    place = order.index(index.as_retriever(similarity_top_k=1).retrieve(QUESTION)[0].node_id)
    assert one == order[place : place + 5]
    assert others == [one] * 3


@pytest.mark.parametrize("mode", ["previous", "next", "both"])
def test_prev_next_called_on_nodes(postprocessors: ModuleType, mode: str) -> None:
    """The postprocessor works on the nodes of a retriever."""
    index, docstore = indexed()
    postprocessor = postprocessors.PrevNextNodePostprocessor(docstore=docstore, num_nodes=1, mode=mode)
    nodes = index.as_retriever(similarity_top_k=1).retrieve("storm pier spring")
    order = [node.node_id for node in docstore.docs.values()]
    place = order.index(nodes[0].node_id)
    before, after = mode in ("previous", "both"), mode in ("next", "both")
    assert ids(postprocessor.postprocess_nodes(nodes)) == order[place - before : place + 1 + after]


def test_auto_prev_next(postprocessors: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """The engine works with a model that chooses the direction, verbose as in the example."""
    index, docstore = indexed()
    postprocessor = postprocessors.AutoPrevNextNodePostprocessor(docstore=docstore, num_nodes=3, verbose=True)
    engine = index.as_query_engine(
        similarity_top_k=1, node_postprocessors=[postprocessor], response_mode="tree_summarize"
    )
    found = engine.query("storm pier spring").source_nodes
    order = [node.node_id for node in docstore.docs.values()]
    place = order.index(index.as_retriever(similarity_top_k=1).retrieve("storm pier spring")[0].node_id)
    assert sorted(ids(found)) == sorted(order[place : place + 4])
    assert "next" in capsys.readouterr().out.lower()


def sentence_windows() -> VectorStoreIndex:
    """Build the index of the sentence window example."""
    parser = SentenceWindowNodeParser.from_defaults(
        window_size=3, window_metadata_key="window", original_text_metadata_key="original_text"
    )
    return VectorStoreIndex(parser.get_nodes_from_documents([Document(text=TEXT)]))


def test_metadata_replacement(postprocessors: ModuleType) -> None:
    """The model reads the window; the source node's metadata holds window and sentence."""
    engine = sentence_windows().as_query_engine(
        similarity_top_k=2,
        node_postprocessors=[postprocessors.MetadataReplacementPostProcessor(target_metadata_key="window")],
    )
    node = engine.query(QUESTION).source_nodes[0].node
    assert node.metadata["original_text"].strip() == "The keeper lived in the tower with a dog."
    assert node.get_content(metadata_mode=MetadataMode.NONE) == node.metadata["window"]
    assert "oil at first" in node.metadata["window"]


def merging(retrievers: ModuleType, **parameters: Any) -> Any:
    """Build the retriever of the auto-merging example."""
    parser = HierarchicalNodeParser.from_defaults(chunk_sizes=[64, 32, 16], chunk_overlap=0)
    nodes = parser.get_nodes_from_documents([Document(text=TEXT, id_="document")])
    docstore = SimpleDocumentStore()
    docstore.add_documents(nodes)
    storage_context = StorageContext.from_defaults(docstore=docstore)
    base_index = VectorStoreIndex(get_leaf_nodes(nodes), storage_context=storage_context)
    base_retriever = base_index.as_retriever(similarity_top_k=6)
    return retrievers.AutoMergingRetriever(base_retriever, storage_context, **parameters)


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.9])
def test_auto_merging(threshold: float, capsys: pytest.CaptureFixture[str]) -> None:
    """The retriever merges the same children with the same scores, and prints it when verbose."""
    results = []
    for module in (llama_index_retrievers, llama_index_ext_ctxaug):
        retriever = merging(module, simple_ratio_thresh=threshold, verbose=True)
        found = retriever.retrieve(QUESTION)
        again = asyncio.run(retriever.aretrieve(QUESTION))
        texts = [(hit.node.get_content(metadata_mode=MetadataMode.NONE), hit.score) for hit in found]
        assert texts == [(hit.node.get_content(metadata_mode=MetadataMode.NONE), hit.score) for hit in again]
        results.append(texts)
        assert ("Merging" in capsys.readouterr().out) == (len(found) < 6)
    theirs, ours = results
    assert [text for text, _ in ours] == [text for text, _ in theirs]
    assert [score for _, score in ours] == pytest.approx([score for _, score in theirs])


def test_auto_merging_in_an_engine(retrievers: ModuleType) -> None:
    """The query engine over the retriever gives its nodes, sync and async."""
    retriever = merging(retrievers, verbose=True)
    engine = RetrieverQueryEngine.from_args(retriever)
    one, *others = answers(engine)
    assert one == ids(retriever.retrieve(QUESTION))
    assert others == [one] * 3


KINDS = ["PrevNext", "AutoPrevNext", "MetadataReplacement", "AutoMerging"]


def parts(kind: str, ours: bool) -> tuple[BaseRetriever, list[BaseNodePostprocessor]]:
    """Build the retriever and postprocessors of a documented example with one of the two imports."""
    module = llama_index_ext_ctxaug if ours else llama_index_postprocessors
    if kind == "AutoMerging":
        return merging(llama_index_ext_ctxaug if ours else llama_index_retrievers), []
    if kind == "MetadataReplacement":
        replacement = module.MetadataReplacementPostProcessor(target_metadata_key="window")
        return sentence_windows().as_retriever(similarity_top_k=2), [replacement]
    index, docstore = indexed()
    postprocessor = getattr(module, f"{kind}NodePostprocessor")(docstore=docstore, num_nodes=2)
    return index.as_retriever(similarity_top_k=1), [postprocessor]


def texts(nodes: list[NodeWithScore]) -> list[str]:
    """Return the texts of nodes, sorted, since LlamaIndex orders the nodes of AutoPrevNext by id."""
    return sorted(node.node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes)


@pytest.mark.parametrize("kind", KINDS)
def test_streaming(kind: str) -> None:
    """Streaming query engines, sync and async, read the same nodes with either import."""
    found = []
    for ours in (False, True):
        retriever, postprocessors = parts(kind, ours)
        engine = RetrieverQueryEngine.from_args(
            retriever, node_postprocessors=postprocessors, streaming=True, use_async=False
        )
        answer = engine.query(QUESTION)
        assert "".join(answer.response_gen) == "the keeper"

        async def stream(engine: RetrieverQueryEngine = engine) -> tuple[str, list[NodeWithScore]]:
            answer = await engine.aquery(QUESTION)
            return "".join([part async for part in answer.async_response_gen()]), answer.source_nodes

        text, nodes = asyncio.run(stream())
        assert text == "the keeper"
        found += [texts(answer.source_nodes), texts(nodes)]
    assert found[0]
    assert found == [found[0]] * 4


@pytest.mark.parametrize("kind", KINDS)
def test_chat(kind: str) -> None:
    """A chat engine reads the same nodes with either import: chat, achat, stream_chat and astream_chat."""
    found = []
    for ours in (False, True):
        retriever, postprocessors = parts(kind, ours)
        chat = ContextChatEngine.from_defaults(retriever=retriever, node_postprocessors=postprocessors)
        found += [texts(chat.chat(QUESTION).source_nodes)]
        streamed = chat.stream_chat(QUESTION)
        assert "".join(streamed.response_gen) == "the keeper"
        found += [texts(streamed.source_nodes)]

        async def talk(chat: ContextChatEngine = chat) -> list[list[str]]:
            answer = await chat.achat(QUESTION)
            streamed = await chat.astream_chat(QUESTION)
            assert "".join([part async for part in streamed.async_response_gen()]) == "the keeper"
            return [texts(answer.source_nodes), texts(streamed.source_nodes)]

        found += asyncio.run(talk())
    assert found[0]
    assert found == [found[0]] * 8


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent(kind: str) -> None:
    """An agent that uses the query engine as a tool reads the same nodes with either import."""
    steps = [
        f'Thought: I need a tool.\nAction: harbor\nAction Input: {{"input": "{QUESTION}"}}',
        "Thought: I can answer without using any more tools.\nAnswer: the keeper",
    ]
    found = []
    for ours in (False, True):
        retriever, postprocessors = parts(kind, ours)
        engine = RetrieverQueryEngine.from_args(retriever, node_postprocessors=postprocessors)
        tool = QueryEngineTool.from_defaults(engine, name="harbor", description="Knows the harbor.")

        async def ask(tool: QueryEngineTool = tool) -> Any:
            return await ReActAgent(tools=[tool], llm=ScriptedLLM(answers=list(steps))).run(QUESTION)

        output = asyncio.run(ask())
        assert "the keeper" in str(output)
        [call] = output.tool_calls
        found.append(texts(call.tool_output.raw_output.source_nodes))
    assert found[0]
    assert found[0] == found[1]

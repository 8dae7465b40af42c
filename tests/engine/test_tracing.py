"""Traces: figures on OpenTelemetry spans, and callback managers of engines, with the real SDK."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from helpers import Postprocess, ids
from llama_index.core import get_response_synthesizer
from llama_index.core.callbacks import CallbackManager, CBEventType, EventPayload, LlamaDebugHandler
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from llama_index_ext_ctxaug import (
    AutoPrevNextNodePostprocessor,
    BRSRPostprocessor,
    PrevNextNodePostprocessor,
    RerankPostprocessor,
)
from llama_index_ext_ctxaug.testing import ObservedDocstore, ScriptedLLM, docstore_of, hits, linked_document

OURS = "context_augmentation."


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    """Finished spans, in memory."""
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    """A tracer provider that exports each span when it ends."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


@pytest.fixture
def traced(provider: TracerProvider, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Instrument LlamaIndex for OpenTelemetry; a warning of instrumentation or SDK fails the test."""
    instrumentor = LlamaIndexInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    with caplog.at_level(logging.WARNING):
        yield
    instrumentor.uninstrument()
    names = ("openinference", "opentelemetry")
    assert [r.getMessage() for r in caplog.records if r.name.startswith(names)] == []


@pytest.fixture
def nodes() -> list[TextNode]:
    """One document of 60 chunks."""
    return linked_document(60)


class ByNumber(BaseNodePostprocessor):
    """A reranker without a model that reports to its callback manager, as LlamaIndex's do."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        with self.callback_manager.event(
            CBEventType.RERANKING, payload={EventPayload.QUERY_STR: "q"}
        ) as event:
            result = [NodeWithScore(node=hit.node, score=float(n)) for n, hit in enumerate(nodes)]
            event.on_end(payload={EventPayload.NODES: result})
        return result


def span_of(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    """Return the one span of a postprocessor."""
    [span] = [span for span in exporter.get_finished_spans() if span.name.startswith(name)]
    return span


@pytest.mark.usefixtures("traced")
def test_figures_are_attributes_of_the_span(
    postprocess: Postprocess, exporter: InMemorySpanExporter, nodes: list[TextNode]
) -> None:
    """A call's span holds its hits, added nodes, reads, tokens and stop reasons, in and out of threads."""
    store = ObservedDocstore(docstore_of(nodes))
    augmenter = PrevNextNodePostprocessor(docstore=store, mode="both", token_budget=500)
    result = postprocess(augmenter, hits(nodes, [0, 30], [0.5, float("nan")]), query_str="chunk 30")
    attributes = dict(span_of(exporter, "PrevNextNodePostprocessor").attributes or {})
    figures = {key.removeprefix(OURS): value for key, value in attributes.items() if key.startswith(OURS)}
    assert figures.pop("tokens") > 0
    assert figures == {
        "augmenter": "PrevNextNodePostprocessor",
        "hits": 2,
        "nodes": 5,
        "added": 3,
        "reads": len(store.node_reads) + len(store.document_reads),
        "round_trips": len(store.batches),
        "llm_calls": 0,
        "stop_reasons": ("count: 3", "document_end: 1"),
    }
    assert attributes["gen_ai.operation.name"] == "retrieval"
    documents = json.loads(attributes["gen_ai.retrieval.documents"])
    assert [document["id"] for document in documents] == ids(result)
    assert [document["score"] for document in documents] == [0.5, None, None, None, None]


@pytest.mark.usefixtures("traced")
def test_calls_of_a_model_are_counted(
    postprocess: Postprocess, exporter: InMemorySpanExporter, nodes: list[TextNode]
) -> None:
    """The span of AutoPrevNext counts the model calls, and its own event causes no warning."""
    llm = ScriptedLLM(answers=["NEXT"])
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm)
    postprocess(augmenter, hits(nodes, [10, 20, 30]), query_str="chunk 30")
    attributes = span_of(exporter, "AutoPrevNextNodePostprocessor").attributes or {}
    assert attributes[OURS + "llm_calls"] == len(llm.prompts) == 3


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("count", [3, 40])
def test_the_span_of_brsr_drops_nothing(
    postprocess: Postprocess, exporter: InMemorySpanExporter, nodes: list[TextNode], count: int
) -> None:
    """However many windows are reranked, the span keeps all its attributes: fewer than 128."""
    augmenter = BRSRPostprocessor(
        docstore=docstore_of(nodes), reranker=ByNumber(), window_tokens=20, stride_tokens=10, top_n=30
    )
    result = postprocess(augmenter, hits(nodes, range(count)), query_str="chunk 9")
    assert len(result) == 30 if count > 10 else result
    span = span_of(exporter, "BRSRPostprocessor")
    assert span.dropped_attributes == 0
    attributes = span.attributes or {}
    assert len(attributes) < 128
    assert attributes[OURS + "nodes"] == len(result)
    assert "reranker.query" in attributes


def test_without_instrumentation_the_span_of_the_caller_is_left_alone(
    postprocess: Postprocess, exporter: InMemorySpanExporter, provider: TracerProvider, nodes: list[TextNode]
) -> None:
    """A caller's own span around the call gets no attributes."""
    with provider.get_tracer("mine").start_as_current_span("request"):
        postprocess(PrevNextNodePostprocessor(docstore=docstore_of(nodes)), hits(nodes, [0]))
    [span] = exporter.get_finished_spans()
    assert not span.attributes


class Fixed(BaseRetriever):
    """A retriever that always returns the same hits."""

    def __init__(self, found: list[NodeWithScore]) -> None:
        self._found = found
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._found


@pytest.mark.parametrize("kind", ["rerank", "brsr", "nested"])
def test_the_callback_manager_of_an_engine_reaches_inner_steps(nodes: list[TextNode], kind: str) -> None:
    """Reports of an inner reranker reach the engine's handlers, and the reranker is not changed."""
    reranker = ByNumber()
    store = docstore_of(nodes)
    postprocessor: Any = {
        "rerank": lambda: RerankPostprocessor(reranker=reranker),
        "brsr": lambda: BRSRPostprocessor(docstore=store, reranker=reranker),
        "nested": lambda: RerankPostprocessor(reranker=RerankPostprocessor(reranker=reranker)),
    }[kind]()
    debug = LlamaDebugHandler(print_trace_on_end=False)
    engine = RetrieverQueryEngine(
        Fixed(hits(nodes, [3, 9])),
        get_response_synthesizer(llm=MockLLM(max_tokens=2)),
        node_postprocessors=[postprocessor],
        callback_manager=CallbackManager([debug]),
    )
    engine.query("chunk 3")
    assert len(debug.get_event_pairs(CBEventType.RERANKING)) == 1
    assert not reranker.callback_manager.handlers

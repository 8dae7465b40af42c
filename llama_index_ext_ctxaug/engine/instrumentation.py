"""The figures of each outermost call, as a start and an end event and as attributes of its span."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.dispatcher import Dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.event_handlers import NullEventHandler
from llama_index.core.instrumentation.span import active_span_id
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index_ext_ctxaug.events import ContextAugmentationEndEvent, ContextAugmentationStartEvent
from llama_index_ext_ctxaug.passages.provenance import read_provenance

dispatcher = get_dispatcher(__name__)


@dataclass
class CallReport:
    """Figures of one outermost call; its inner steps report into it.

    Attributes:
        reads: keys read from docstores (nodes and document lists).
        round_trips: batched reads, one after another.
        llm_calls: calls of a language model that chose directions.
        tokens: tokens of the output text, if a budget counted them.
        stop_reasons: how often expansion ended, by reason.
        details: further figures of single postprocessors.
        result: the nodes that the call returns.
    """

    reads: int = 0
    round_trips: int = 0
    llm_calls: int = 0
    tokens: int | None = None
    stop_reasons: Counter[str] = field(default_factory=Counter)
    details: dict[str, Any] = field(default_factory=dict)
    result: list[NodeWithScore] = field(default_factory=list)


_current: ContextVar[CallReport | None] = ContextVar("context augmentation call", default=None)


def current_report() -> CallReport:
    """Return the report of the running call."""
    return _current.get() or CallReport()


@contextmanager
def observed_call(
    name: str, nodes: Sequence[NodeWithScore], query: QueryBundle | None
) -> Iterator[CallReport]:
    """Report a call: a start event and, unless the block raises, an end event and span attributes.

    A call inside another one adds to the report of that and sends nothing.

    Args:
        name: class name of the postprocessor.
        nodes: the nodes it received.
        query: the query, if there is one.

    Yields:
        The report; the block sets its `result`.
    """
    if _current.get() is not None:
        yield CallReport()
        return
    report, listeners, span = CallReport(), has_listeners(), _recording_span()
    hit_ids = {hit.node.node_id for hit in nodes} if listeners or span else set()
    token = _current.set(report)
    try:
        if listeners:
            query_str = query.query_str if query else None
            dispatcher.event(
                ContextAugmentationStartEvent(augmenter=name, num_hits=len(hit_ids), query_str=query_str)
            )
        yield report
        end = _end_event(name, hit_ids, report) if listeners or span else None
        if end is not None and listeners:
            dispatcher.event(end)
        if end is not None and span is not None:
            span.set_attributes(_span_attributes(end, report.result))
    finally:
        _current.reset(token)


def has_listeners() -> bool:
    """Return True if an event handler is registered; an unused event costs as much as an in-memory read."""
    current: Dispatcher | None = dispatcher
    while current is not None:
        if any(not isinstance(handler, NullEventHandler) for handler in current.event_handlers):
            return True
        current = current.parent if current.propagate else None
    return False


def _end_event(name: str, hit_ids: set[str], report: CallReport) -> ContextAugmentationEndEvent:
    return ContextAugmentationEndEvent(
        augmenter=name,
        num_hits=len(hit_ids),
        num_nodes=len(report.result),
        added_node_ids=list(dict.fromkeys(_added(report.result, hit_ids))),
        reads=report.reads,
        round_trips=report.round_trips,
        llm_calls=report.llm_calls,
        tokens=report.tokens,
        stop_reasons=dict(report.stop_reasons),
        details=report.details,
    )


def _added(result: Sequence[NodeWithScore], hit_ids: set[str]) -> Iterator[str]:
    """Yield ids of output nodes that were not in the input; of a passage, those of its added chunks."""
    for hit in result:
        if hit.node.node_id in hit_ids:
            continue
        provenance = read_provenance(hit.node)
        if provenance is not None and provenance.role == "passage":
            yield from (piece.node_id for piece in provenance.pieces if piece.node_id not in hit_ids)
        else:
            yield hit.node.node_id


def _recording_span() -> Any:
    """Return the OpenTelemetry span of the running call; None if nobody traces it."""
    trace, span_id = sys.modules.get("opentelemetry.trace"), active_span_id.get()
    if trace is None or span_id is None:
        return None
    span = trace.get_current_span()
    # Without an instrumentation of LlamaIndex the current span is that of the caller.
    is_own = str(getattr(span, "name", "")).startswith(span_id.partition("-")[0])
    return span if is_own and span.is_recording() else None


def _span_attributes(end: ContextAugmentationEndEvent, result: Sequence[NodeWithScore]) -> dict[str, Any]:
    """Return the figures under OpenTelemetry's names for retrieval if they exist, else under our own."""
    figures = {
        "augmenter": end.augmenter,
        "hits": end.num_hits,
        "nodes": end.num_nodes,
        "added": len(end.added_node_ids),
        "reads": end.reads,
        "round_trips": end.round_trips,
        "llm_calls": end.llm_calls,
        "tokens": end.tokens,
        "stop_reasons": [f"{reason}: {count}" for reason, count in sorted(end.stop_reasons.items())],
    }
    documents = [{"id": hit.node.node_id, "score": _finite(hit.score)} for hit in result]
    return {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.retrieval.documents": json.dumps(documents),
        **{f"context_augmentation.{name}": value for name, value in figures.items() if value is not None},
    }


def _finite(score: float | None) -> float | None:
    return score if score is not None and math.isfinite(score) else None

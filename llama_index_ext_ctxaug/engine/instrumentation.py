"""One start event and one end event for each outermost call, and the figures that all its steps add to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.dispatcher import Dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.event_handlers import NullEventHandler
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
        tokens: tokens of the output text, if a budget counted them.
        stop_reasons: how often expansion ended, by reason.
        details: further figures of single postprocessors.
        result: the nodes that the call returns.
    """

    reads: int = 0
    round_trips: int = 0
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
    """Send a start event and, unless the block raises, an end event; a call inside another sends none.

    Args:
        name: class name of the postprocessor.
        nodes: the nodes it received.
        query: the query, if there is one.

    Yields:
        The report; the block sets its `result`.
    """
    outer = _current.get()
    if outer is not None:
        yield CallReport()
        return
    report = CallReport()
    observed = has_listeners()
    hit_ids = {hit.node.node_id for hit in nodes} if observed else set()
    token = _current.set(report)
    try:
        if observed:
            query_str = query.query_str if query else None
            dispatcher.event(
                ContextAugmentationStartEvent(augmenter=name, num_hits=len(hit_ids), query_str=query_str)
            )
        yield report
        if observed:
            dispatcher.event(_end_event(name, hit_ids, report))
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

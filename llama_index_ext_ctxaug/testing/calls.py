"""Call a postprocessor in tests, and look at what it returned, sent and logged."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore

from llama_index_ext_ctxaug.events import ContextAugmentationEndEvent, ContextAugmentationStartEvent
from llama_index_ext_ctxaug.passages.provenance import read_provenance
from llama_index_ext_ctxaug.passages.scores import score_key

QUERY = "Which is chunk 3 of doc0?"


def run_sync(augmenter: BaseNodePostprocessor, found: list[NodeWithScore]) -> list[NodeWithScore]:
    """Call it in this thread."""
    return augmenter.postprocess_nodes(found, query_str=QUERY)


def run_async(augmenter: BaseNodePostprocessor, found: list[NodeWithScore]) -> list[NodeWithScore]:
    """Call its async method in an event loop of its own."""
    return asyncio.run(augmenter.apostprocess_nodes(found, query_str=QUERY))


def dicts(result: list[NodeWithScore]) -> list[dict[str, Any]]:
    """Return the nodes as dicts, for comparison."""
    return [hit.to_dict() for hit in result]


def scores_of(result: list[NodeWithScore]) -> dict[str, float | None]:
    """Return the scores by node id."""
    return {hit.node.node_id: hit.score for hit in result}


def best_scores(found: list[NodeWithScore]) -> dict[str, float | None]:
    """Return the best score of each distinct node, by id."""
    best: dict[str, float | None] = {}
    for hit in found:
        known = best.setdefault(hit.node.node_id, hit.score)
        best[hit.node.node_id] = max(known, hit.score, key=score_key)
    return best


def role_of(hit: NodeWithScore) -> str:
    """Return the role of an output node."""
    provenance = read_provenance(hit.node)
    return "hit" if provenance is None else provenance.role


def hits_in(hit: NodeWithScore) -> list[str]:
    """Return the ids of the hits that an output node is, holds or replaces."""
    provenance = read_provenance(hit.node)
    if provenance is None:
        return [hit.node.node_id]
    if provenance.role == "passage":
        inside = (
            piece.hits if piece.role == "parent" else (piece.node_id,)
            for piece in provenance.pieces
            if piece.role != "neighbor"
        )
        return list(dict.fromkeys(id_ for ids in inside for id_ in ids))
    return [] if provenance.role == "neighbor" else list(provenance.hits)


def stored_ids_in(hit: NodeWithScore) -> list[str]:
    """Return the ids of the stored nodes with text in an output node."""
    provenance = read_provenance(hit.node)
    if provenance is not None and provenance.pieces:
        return [piece.node_id for piece in provenance.pieces]
    return [hit.node.node_id]


class _Recorder(BaseEventHandler):
    _events: list[Any] = PrivateAttr(default_factory=list)

    def handle(self, event: Any, **kwargs: Any) -> None:
        """Keep the events of calls."""
        if isinstance(event, ContextAugmentationStartEvent | ContextAugmentationEndEvent):
            self._events.append(event)


@contextmanager
def recorded_events() -> Iterator[list[Any]]:
    """Collect the start and end events that are sent while the block runs."""
    recorder, dispatcher = _Recorder(), get_dispatcher()
    dispatcher.add_event_handler(recorder)
    try:
        yield recorder._events
    finally:
        dispatcher.event_handlers.remove(recorder)


@contextmanager
def recorded_complaints() -> Iterator[list[str]]:
    """Collect the warnings of nodes that are missing or could not be taken."""
    messages: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if "linked nodes" in message or "are in this docstore" in message:
            messages.append(message)
        return True

    handler = logging.NullHandler(logging.WARNING)
    handler.handle = keep  # type: ignore[method-assign]
    log = logging.getLogger("llama_index_ext_ctxaug")
    log.addHandler(handler)
    try:
        yield messages
    finally:
        log.removeHandler(handler)


@lru_cache(maxsize=1)
def other_process() -> ProcessPoolExecutor:
    """Start a process with a hash seed of its own, which all tests share."""
    seed, os.environ["PYTHONHASHSEED"] = os.environ.get("PYTHONHASHSEED"), "1"
    try:
        executor = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        executor.submit(int).result()
    finally:
        if seed is None:
            del os.environ["PYTHONHASHSEED"]
        else:
            os.environ["PYTHONHASHSEED"] = seed
    return executor

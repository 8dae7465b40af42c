"""Helpers that many tests use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore

Postprocess = Callable[..., list[NodeWithScore]]
"""Type of the `postprocess` fixture."""

Event = TypeVar("Event")


def ids(nodes: Iterable[BaseNode | NodeWithScore]) -> list[str]:
    """Return the ids of nodes, in order."""
    return [node.node_id for node in nodes]


def positions(nodes: Iterable[BaseNode | NodeWithScore]) -> list[int]:
    """Return the positions in their document of chunks that `linked_document` made."""
    return [int(id_.rsplit("-", 1)[1]) for id_ in ids(nodes)]


def texts(result: Iterable[NodeWithScore]) -> list[str]:
    """Return the texts of hits, without metadata."""
    return [hit.node.get_content(metadata_mode=MetadataMode.NONE) for hit in result]


class _Recorder(BaseEventHandler):
    _record: Callable[[Any], None] = PrivateAttr()

    def handle(self, event: Any, **kwargs: Any) -> None:
        self._record(event)


@contextmanager
def recorded(*kinds: type[Event]) -> Iterator[list[Event]]:
    """Collect the events of these kinds from LlamaIndex's root dispatcher while the block runs."""
    events: list[Event] = []

    def record(event: Any) -> None:
        if isinstance(event, kinds):
            events.append(event)

    handler = _Recorder()
    handler._record = record
    dispatcher = get_dispatcher()
    dispatcher.add_event_handler(handler)
    try:
        yield events
    finally:
        dispatcher.event_handlers.remove(handler)

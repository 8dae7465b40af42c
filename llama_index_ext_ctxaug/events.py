"""What an augmenter reports on LlamaIndex's instrumentation dispatcher."""

from __future__ import annotations

from typing import Any

from llama_index.core.bridge.pydantic import Field
from llama_index.core.instrumentation.dispatcher import Dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.event_handlers import NullEventHandler
from llama_index.core.instrumentation.events import BaseEvent


def has_listeners(dispatcher: Dispatcher) -> bool:
    """Whether anybody listens: an event that nobody gets costs as much as reading a node from memory."""
    current: Dispatcher | None = dispatcher
    while current is not None:
        if any(not isinstance(handler, NullEventHandler) for handler in current.event_handlers):
            return True
        current = current.parent if current.propagate else None
    return False


class ContextAugmentationStartEvent(BaseEvent):
    """A call begins.

    Attributes:
        augmenter: class name of the postprocessor.
        num_hits: number of distinct hits that came in.
        query_str: the question, where there is one.
    """

    augmenter: str
    num_hits: int
    query_str: str | None = None

    @classmethod
    def class_name(cls) -> str:
        """Name under which the event is serialized."""
        return "ContextAugmentationStartEvent"


class ContextAugmentationEndEvent(BaseEvent):
    """A call ended without an error.

    Attributes:
        augmenter: class name of the postprocessor.
        num_hits: number of distinct hits that came in.
        num_nodes: number of nodes that went out.
        added_node_ids: ids of the nodes that were added to the hits, in the order of the output.
        reads: keys read from the docstore (nodes and document lists).
        round_trips: batched reads, one after another.
        tokens: tokens of the text that went out, where a budget made them be counted.
        stop_reasons: how often expansion ended for which reason.
        details: what one augmenter reports beyond the others.
    """

    augmenter: str
    num_hits: int
    num_nodes: int
    added_node_ids: list[str]
    reads: int
    round_trips: int
    tokens: int | None = None
    stop_reasons: dict[str, int] = Field(default_factory=dict)
    details: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def class_name(cls) -> str:
        """Name under which the event is serialized."""
        return "ContextAugmentationEndEvent"


class DirectionsChosenEvent(BaseEvent):
    """A language model was asked where context is missing.

    Attributes:
        augmenter: class name of the postprocessor.
        round: number of the round, from 1.
        decisions: for each hit `hit_id`, `direction` (previous, next, none or both), `reason` (answer,
            unclear, llm_error, no_neighbor, blank), the raw `answer` and the `error`, where there is one.
        calls: calls of the model.
        prompt_tokens: tokens of the prompts that were sent, by LlamaIndex's tokenizer.
    """

    augmenter: str
    round: int
    decisions: list[dict[str, Any]]
    calls: int
    prompt_tokens: int

    @classmethod
    def class_name(cls) -> str:
        """Name under which the event is serialized."""
        return "DirectionsChosenEvent"

"""Events on LlamaIndex's instrumentation dispatcher."""

from __future__ import annotations

from typing import Any

from llama_index.core.bridge.pydantic import Field
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.span import active_span_id


class AugmentationEvent(BaseEvent):
    """The base class of the events of this package.

    Attributes:
        span_id: always None: OpenTelemetry instrumentations warn of each unknown event that has one.
        call_span_id: id of LlamaIndex's span of the call.
    """

    span_id: str | None = None
    call_span_id: str | None = Field(default_factory=active_span_id.get)  # type: ignore[arg-type]


class ContextAugmentationStartEvent(AugmentationEvent):
    """A call begins; sent once for each outermost call, not for its inner steps.

    Attributes:
        augmenter: class name of the postprocessor.
        num_hits: number of distinct input nodes.
        query_str: the query, if there is one.
    """

    augmenter: str
    num_hits: int
    query_str: str | None = None

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which the event is serialized."""
        return "ContextAugmentationStartEvent"


class ContextAugmentationEndEvent(AugmentationEvent):
    """An outermost call ended without an error; the figures include those of its inner steps.

    Attributes:
        augmenter: class name of the postprocessor.
        num_hits: number of distinct input nodes.
        num_nodes: number of output nodes.
        added_node_ids: ids of the output nodes that were not in the input, in order; for a passage, those
            of its added chunks.
        reads: keys read from the docstore (nodes and document lists).
        round_trips: batched reads, one after another.
        llm_calls: calls of a language model that chose directions.
        tokens: tokens of the output text, if a budget counted them.
        stop_reasons: how often expansion ended, by reason.
        details: further figures of single postprocessors.
    """

    augmenter: str
    num_hits: int
    num_nodes: int
    added_node_ids: list[str]
    reads: int
    round_trips: int
    llm_calls: int = 0
    tokens: int | None = None
    stop_reasons: dict[str, int] = Field(default_factory=dict)
    details: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which the event is serialized."""
        return "ContextAugmentationEndEvent"


class DirectionsChosenEvent(AugmentationEvent):
    """A language model was asked where context is missing.

    Attributes:
        augmenter: class name of the postprocessor.
        round: number of the round, from 1.
        decisions: for each hit `hit_id`, `direction` (previous, next, none or both), `reason` (answer,
            unclear, llm_error, no_neighbor, blank), the raw `answer` and the `error`, if there is one.
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
        """Return the name under which the event is serialized."""
        return "DirectionsChosenEvent"

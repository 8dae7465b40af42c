"""Counting docstore reads and LLM calls of one call among many that run side by side."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.llm import (
    LLMChatStartEvent,
    LLMCompletionStartEvent,
    LLMPredictStartEvent,
)

from llama_index_ext_ctxaug import ContextAugmentationEndEvent

_BUDGET_LOGGER = "llama_index_ext_ctxaug.budget.tokenizer"


@dataclass
class Tally:
    """What was counted.

    Attributes:
        reads: keys read from docstores; None while no augmenter has reported.
        predictions: calls of an LLM by `predict`, each of which may make a call of the next kind.
        completions: completions and chats.
    """

    reads: int | None = None
    predictions: int = 0
    completions: int = 0

    @property
    def llm_calls(self) -> int:
        """Calls of a language model: not every LLM class reports its completions."""
        return max(self.predictions, self.completions)


def _new_variable() -> ContextVar[Tally | None]:
    return ContextVar("context augmentation tally", default=None)


class Counter(BaseEventHandler):
    """Adds up the events of the call in whose context they are sent."""

    _current: ContextVar[Tally | None] = PrivateAttr(default_factory=_new_variable)

    @classmethod
    def class_name(cls) -> str:
        """Name of the handler."""
        return cls.__name__

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        """Count one event."""
        tally = self._current.get()
        if tally is None:
            return
        if isinstance(event, ContextAugmentationEndEvent):
            tally.reads = (tally.reads or 0) + event.reads
        elif isinstance(event, LLMPredictStartEvent):
            tally.predictions += 1
        elif isinstance(event, LLMChatStartEvent | LLMCompletionStartEvent):
            tally.completions += 1

    def _is_outside(self, record: logging.LogRecord) -> bool:
        """Whether a warning is not of a run that is measured: there a budget leaves out hits on purpose."""
        return self._current.get() is None

    @contextmanager
    def count(self) -> Iterator[Tally]:
        """Count what happens inside, in tasks and threads that are started there as well."""
        tally = Tally()
        token = self._current.set(tally)
        try:
            yield tally
        finally:
            self._current.reset(token)

    @classmethod
    @contextmanager
    def listening(cls) -> Iterator[Counter]:
        """A counter that gets LlamaIndex's events until the block ends."""
        counter, dispatcher = cls(), get_dispatcher()
        dispatcher.add_event_handler(counter)
        budget_logger = logging.getLogger(_BUDGET_LOGGER)
        budget_logger.addFilter(counter._is_outside)
        try:
            yield counter
        finally:
            budget_logger.removeFilter(counter._is_outside)
            dispatcher.event_handlers = [h for h in dispatcher.event_handlers if h is not counter]

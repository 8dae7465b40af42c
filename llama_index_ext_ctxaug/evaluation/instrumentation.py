"""Count docstore reads and LLM calls of one run among concurrent ones."""

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
    """Counts of one run; a prediction may cause a completion or chat."""

    reads: int | None = None  # keys read from docstores, None until an augmenter has reported
    predictions: int = 0
    completions: int = 0

    @property
    def llm_calls(self) -> int:
        """LLM calls; not every LLM class reports its completions."""
        return max(self.predictions, self.completions)


class Counter(BaseEventHandler):
    """Event handler that counts the events of the current context."""

    _current: ContextVar[Tally | None] = PrivateAttr(
        default_factory=lambda: ContextVar[Tally | None]("context augmentation tally", default=None)
    )

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the handler."""
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
        """Return True outside a measured run; within one a budget leaves out hits on purpose."""
        return self._current.get() is None

    @contextmanager
    def count(self) -> Iterator[Tally]:
        """Count the events inside the block, those of tasks and threads started there included."""
        tally = Tally()
        token = self._current.set(tally)
        try:
            yield tally
        finally:
            self._current.reset(token)

    @classmethod
    @contextmanager
    def listening(cls) -> Iterator[Counter]:
        """Register a counter on LlamaIndex's dispatcher until the block ends."""
        counter, dispatcher = cls(), get_dispatcher()
        dispatcher.add_event_handler(counter)
        budget_logger = logging.getLogger(_BUDGET_LOGGER)
        budget_logger.addFilter(counter._is_outside)
        try:
            yield counter
        finally:
            budget_logger.removeFilter(counter._is_outside)
            dispatcher.event_handlers = [h for h in dispatcher.event_handlers if h is not counter]

"""Call a store: sync, or async with a thread where the store's async side does not work."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from llama_index.core.storage.docstore.types import BaseDocumentStore

from llama_index_ext_ctxaug.docstores.event_loops import of_another_loop
from llama_index_ext_ctxaug.docstores.threads import in_thread
from llama_index_ext_ctxaug.flow import Step

logger = logging.getLogger(__name__)

T = TypeVar("T")

_logged: set[str] = set()


@dataclass(frozen=True)
class Call(Generic[T]):
    """The step that makes one call, in its sync or its async form."""

    sync: Callable[[], T]
    async_: Callable[[], Awaitable[T]]

    def run(self) -> T:
        """Make the sync call."""
        return self.sync()

    async def arun(self) -> T:
        """Make the async call."""
        return await self.async_()


@dataclass(frozen=True)
class OrInThread(Generic[T]):
    """Another step, run in a thread where the store's async side does not work.

    Attributes:
        step: the step to run.
        docstore: the store, for log messages.
        sync_only: whether the store is known to have no async side.
        may_hang: whether the thread must be one that can be abandoned.
    """

    step: Step[T]
    docstore: BaseDocumentStore
    sync_only: bool = False
    may_hang: bool = False

    def run(self) -> T:
        """Run the step in the calling thread."""
        return self.step.run()

    async def arun(self) -> T:
        """Run the step with the store's async side, or in a thread."""
        if self.sync_only:
            return await in_thread(self.step.run, may_hang=self.may_hang)
        try:
            return await self.step.arun()
        except Exception as error:
            if not _lacks_async_side(error):
                raise
            log_once(self.docstore, "its async reads run in a thread", error)
            return await in_thread(self.step.run, may_hang=self.may_hang)


_UNUSABLE = (NotImplementedError, ValueError, TypeError, AssertionError, ImportError)
"""Errors that stores raise for want of an async client; if it is another fault, the sync call raises it."""


def _lacks_async_side(error: Exception) -> bool:
    """True if a store may have no async client, or one that belongs to another event loop."""
    if isinstance(error, AttributeError):
        return error.obj is None
    return isinstance(error, _UNUSABLE) or (isinstance(error, RuntimeError) and of_another_loop(error))


def log_once(docstore: BaseDocumentStore, what: str, why: Exception) -> None:
    """Log how stores of this kind are read, once in a process."""
    message = f"{type(docstore).__name__}: {what}, since {str(why) or type(why).__name__}"
    if message not in _logged:
        _logged.add(message)
        logger.warning("%s", message)

"""Call a store: sync, or async with a thread where the store's async side does not work."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from llama_index.core.storage.docstore.types import BaseDocumentStore

from llama_index_ext_ctxaug.docstores.concurrency import in_thread
from llama_index_ext_ctxaug.docstores.event_loops import of_another_loop

logger = logging.getLogger(__name__)

T = TypeVar("T")

_logged: set[str] = set()


@dataclass(frozen=True)
class StoreCall(Generic[T]):
    """The step that makes one call of a store.

    Attributes:
        docstore: the store, for log messages.
        sync: the call in its sync form.
        async_: the same in its async form; None to run `sync` in a thread.
        may_hang: whether such a thread must be one that can be abandoned.
    """

    docstore: BaseDocumentStore
    sync: Callable[[], T]
    async_: Callable[[], Awaitable[T]] | None
    may_hang: bool = False

    def run(self) -> T:
        """Make the sync call."""
        return self.sync()

    async def arun(self) -> T:
        """Make the async call, or the sync one in a thread."""
        if self.async_ is not None:
            try:
                return await self.async_()
            except Exception as error:
                if not _lacks_async_side(error):
                    raise
                log_once(self.docstore, "its async reads run in a thread", error)
        return await in_thread(self.sync, may_hang=self.may_hang)


def _lacks_async_side(error: Exception) -> bool:
    """True if a store has no async client, or one that belongs to another event loop."""
    if isinstance(error, AttributeError):
        return error.obj is None
    return isinstance(error, NotImplementedError) or (
        isinstance(error, RuntimeError) and of_another_loop(error)
    )


def log_once(docstore: BaseDocumentStore, what: str, why: Exception) -> None:
    """Log how stores of this kind are read, once in a process."""
    message = f"{type(docstore).__name__}: {what}, since {str(why) or type(why).__name__}"
    if message not in _logged:
        _logged.add(message)
        logger.warning("%s", message)

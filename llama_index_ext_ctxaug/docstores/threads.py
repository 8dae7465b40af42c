"""Run blocking work in a thread, with a timeout."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

T = TypeVar("T")


def wait_in_thread(work: Callable[[], T], timeout: float, message: str) -> T:
    """Run work in a thread of its own and wait for it at most `timeout` seconds.

    Raises:
        TimeoutError: the work did not end in time; it carries `message`. The thread is abandoned, and
            does not keep the process from exiting.
    """
    future = _start(work)
    try:
        return future.result(timeout)
    except FutureTimeoutError as error:
        if future.done():
            raise  # the work's own error
        raise TimeoutError(message) from error


async def in_thread(work: Callable[[], T], *, may_hang: bool) -> T:
    """Run blocking work in a thread; work that may hang gets a thread that can be abandoned."""
    if may_hang:
        return await asyncio.wrap_future(_start(work))
    return await asyncio.to_thread(work)


def _start(work: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def do() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = context.run(work)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=do, name="ctxaug-read", daemon=True).start()
    return future

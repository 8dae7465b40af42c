"""Run reads side by side, in threads or tasks, with a limit and a timeout."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

T = TypeVar("T")


def in_threads(read: Callable[[str], T], ids: Sequence[str], workers: int) -> list[T]:
    """Return `read(id)` for each id, in order, using at most `workers` threads; raise the first error."""
    shares = _shares(ids, workers)
    with ThreadPoolExecutor(len(shares)) as pool:
        running = [pool.submit(contextvars.copy_context().run, _read_all, read, share) for share in shares]
        return _interleaved([one.result() for one in running], len(ids))


def _read_all(read: Callable[[str], T], ids: Sequence[str]) -> list[T]:
    return [read(id_) for id_ in ids]


async def in_tasks(read: Callable[[str], Awaitable[T]], ids: Sequence[str], workers: int) -> list[T]:
    """Return `read(id)` for each id, in order, using at most `workers` tasks; an error ends them all."""

    async def read_all(share: Sequence[str]) -> list[T]:
        return [await read(id_) for id_ in share]

    tasks = [asyncio.ensure_future(read_all(share)) for share in _shares(ids, workers)]
    try:
        return _interleaved(await asyncio.gather(*tasks), len(ids))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _shares(ids: Sequence[str], workers: int) -> list[Sequence[str]]:
    workers = min(workers, len(ids))
    return [ids[start::workers] for start in range(workers)]


def _interleaved(shares: Sequence[Sequence[T]], count: int) -> list[T]:
    workers = len(shares)
    return [shares[place % workers][place // workers] for place in range(count)]


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

"""Reads side by side: in threads or in tasks, bounded, and given up when they take too long."""

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
    """What `read` gives for each id, in their order, read by so many threads; the first error is raised."""
    workers = min(workers, len(ids))
    shares = [ids[start::workers] for start in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        running = [pool.submit(contextvars.copy_context().run, _read_all, read, share) for share in shares]
        return _interleaved([one.result() for one in running], len(ids))


def _read_all(read: Callable[[str], T], ids: Sequence[str]) -> list[T]:
    return [read(id_) for id_ in ids]


async def in_tasks(read: Callable[[str], Awaitable[T]], ids: Sequence[str], workers: int) -> list[T]:
    """What `read` gives for each id, in their order, read by so many tasks; an error ends them all."""
    workers = min(workers, len(ids))

    async def read_all(share: Sequence[str]) -> list[T]:
        return [await read(id_) for id_ in share]

    tasks = [asyncio.ensure_future(read_all(ids[start::workers])) for start in range(workers)]
    try:
        return _interleaved(await asyncio.gather(*tasks), len(ids))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _interleaved(shares: Sequence[Sequence[T]], count: int) -> list[T]:
    workers = len(shares)
    return [shares[place % workers][place // workers] for place in range(count)]


def wait_in_thread(work: Callable[[], T], timeout: float, complaint: str) -> T:
    """Do something that may never end, and wait for it so many seconds.

    Raises:
        TimeoutError: it has not ended, with this complaint; the thread is left behind, and does not
            keep the process from ending.
    """
    future = _start(work)
    try:
        return future.result(timeout)
    except FutureTimeoutError as error:
        if future.done():
            raise  # the work's own error
        raise TimeoutError(complaint) from error


async def in_thread(work: Callable[[], T], *, may_hang: bool) -> T:
    """Do something that blocks, in a thread; one that may hang gets a thread that can be left behind."""
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

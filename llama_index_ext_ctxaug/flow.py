"""One algorithm, run sync or async: a generator yields steps, a driver carries them out.

The algorithm does not know how it is driven. It yields a `Step` and is sent its result; an error of the
step is raised at the `yield`, so that `try` can handle it. httpx runs its authentication schemes this way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class Step(Protocol[R_co]):
    """A piece of I/O that an algorithm needs, with a sync and an async way to do it."""

    def run(self) -> R_co:
        """Do it in the calling thread."""

    async def arun(self) -> R_co:
        """Do it without blocking the event loop."""


Flow = Generator[Step[Any], Any, T]
"""An algorithm: yields steps, is sent their results, returns a value of type `T`."""


def ask(step: Step[T]) -> Flow[T]:
    """Yield a step and return its typed result."""
    result: T = yield step
    return result


def finished(result: T) -> Flow[T]:
    """Return a result without a step."""
    yield from ()
    return result


def run(flow: Flow[T]) -> T:
    """Drive a flow to its end in the calling thread.

    Args:
        flow: the algorithm; it is always closed.

    Returns:
        The return value of the algorithm.

    Raises:
        Exception: an error of the algorithm, or of a step if the algorithm does not handle it.
    """
    try:
        step = next(flow)
        while True:
            try:
                result = step.run()
            except Exception as error:
                step = flow.throw(error)
            else:
                step = flow.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        flow.close()


async def arun(flow: Flow[T]) -> T:
    """Drive a flow to its end in the event loop; a cancellation closes the flow and is raised.

    Args:
        flow: the algorithm; it is always closed.

    Returns:
        The return value of the algorithm.

    Raises:
        Exception: an error of the algorithm, or of a step if the algorithm does not handle it.
    """
    try:
        step = next(flow)
        while True:
            try:
                result = await step.arun()
            except Exception as error:
                step = flow.throw(error)
            else:
                step = flow.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        flow.close()


@dataclass(frozen=True)
class SideBySide(Generic[T]):
    """The step that drives several flows concurrently; results are in the order of the flows.

    The first error of a flow, in that order, is raised; flows that have not begun by then never begin.

    Attributes:
        flows: the algorithms; they share no mutable state.
        limit: maximum number of concurrent flows: threads if sync, tasks if async.
    """

    flows: Sequence[Flow[T]]
    limit: int

    def run(self) -> list[T]:
        """Drive each flow in a thread."""
        if len(self.flows) < 2 or self.limit < 2:
            return [run(flow) for flow in self.flows]
        with ThreadPoolExecutor(min(self.limit, len(self.flows))) as pool:
            futures = [pool.submit(copy_context().run, run, flow) for flow in self.flows]
            try:
                return [future.result() for future in futures]
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    async def arun(self) -> list[T]:
        """Drive the flows in at most `limit` tasks; an error or a cancellation ends the others too."""
        waiting = iter(enumerate(self.flows))
        results: dict[int, T] = {}

        async def drive() -> None:
            for place, flow in waiting:
                results[place] = await arun(flow)

        tasks = [asyncio.ensure_future(drive()) for _ in range(min(self.limit, len(self.flows)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [results[place] for place in range(len(self.flows))]

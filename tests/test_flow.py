"""flow.py: both drivers run steps, throw their errors into the algorithm and close it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from llama_index_ext_ctxaug.flow import Flow, SideBySide, arun, ask, run

DRIVERS: list[Callable[[Flow[Any]], Any]] = [run, lambda flow: asyncio.run(arun(flow))]


class Double:
    """A step that doubles a number; it fails on negative ones."""

    def __init__(self, number: int) -> None:
        self.number = number

    def run(self) -> int:
        """Return twice the number."""
        if self.number < 0:
            raise ArithmeticError(self.number)
        return 2 * self.number

    async def arun(self) -> int:
        """Return twice the number, after a switch to other tasks."""
        await asyncio.sleep(0)
        return self.run()


@pytest.mark.parametrize("drive", DRIVERS, ids=["run", "arun"])
def test_results_are_sent_in(drive: Callable[[Flow[Any]], Any]) -> None:
    """An algorithm receives the result of each step, and the driver returns its value."""

    def flow() -> Flow[list[int]]:
        first = yield from ask(Double(1))
        second = yield from ask(Double(first))
        return [first, second]

    assert drive(flow()) == [2, 4]


@pytest.mark.parametrize("drive", DRIVERS, ids=["run", "arun"])
def test_errors_of_a_step_arrive_at_the_yield(drive: Callable[[Flow[Any]], Any]) -> None:
    """An algorithm can catch the error of a step and continue with other steps."""

    def flow() -> Flow[int]:
        try:
            yield from ask(Double(-1))
        except ArithmeticError:
            return (yield from ask(Double(5)))
        return 0

    assert drive(flow()) == 10


@pytest.mark.parametrize("drive", DRIVERS, ids=["run", "arun"])
def test_an_unhandled_error_closes_the_algorithm(drive: Callable[[Flow[Any]], Any]) -> None:
    """An error that the algorithm does not handle is raised, and its finally blocks have run."""
    closed: list[bool] = []

    def flow() -> Flow[int]:
        try:
            return (yield from ask(Double(-1)))
        finally:
            closed.append(True)

    with pytest.raises(ArithmeticError):
        drive(flow())
    assert closed == [True]


async def test_cancellation_closes_the_algorithm() -> None:
    """A cancelled call closes the algorithm, which cannot swallow the cancellation as an error."""
    closed: list[str] = []

    class Forever:
        def run(self) -> None:
            raise AssertionError

        async def arun(self) -> None:
            await asyncio.Event().wait()

    def flow() -> Flow[None]:
        try:
            yield from ask(Forever())
        except Exception:
            closed.append("as an error")
        finally:
            closed.append("closed")

    task = asyncio.create_task(arun(flow()))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed == ["closed"]


def test_keyboard_interrupt_passes_through() -> None:
    """An interrupt is not thrown into the algorithm, but closes it."""
    closed: list[bool] = []

    class Interrupt:
        def run(self) -> None:
            raise KeyboardInterrupt

        async def arun(self) -> None:
            raise KeyboardInterrupt

    def flow() -> Flow[None]:
        try:
            yield from ask(Interrupt())
        finally:
            closed.append(True)

    algorithm = flow()  # a reference keeps it alive, so that the driver closes it
    with pytest.raises(KeyboardInterrupt):
        run(algorithm)
    assert closed == [True]


@pytest.mark.parametrize("drive", DRIVERS, ids=["run", "arun"])
@pytest.mark.parametrize("limit", [1, 2, 9])
def test_flows_side_by_side(drive: Callable[[Flow[Any]], Any], limit: int) -> None:
    """Results are in the order of the flows, however many run at a time."""

    def one(number: int) -> Flow[int]:
        return (yield from ask(Double(number)))

    def flow() -> Flow[list[int]]:
        return (yield from ask(SideBySide([one(number) for number in range(7)], limit)))

    assert drive(flow()) == [0, 2, 4, 6, 8, 10, 12]


@pytest.mark.parametrize("drive", DRIVERS, ids=["run", "arun"])
@pytest.mark.parametrize("limit", [1, 2, 9])
def test_an_error_among_flows_side_by_side(drive: Callable[[Flow[Any]], Any], limit: int) -> None:
    """An error of one flow is raised, and every flow that has started is closed."""
    begun: list[int] = []
    closed: list[int] = []

    def one(number: int) -> Flow[int]:
        begun.append(number)
        try:
            return (yield from ask(Double(number)))
        finally:
            closed.append(number)

    def flow() -> Flow[list[int]]:
        return (yield from ask(SideBySide([one(number) for number in (1, -2, 3, 4)], limit)))

    with pytest.raises(ArithmeticError):
        drive(flow())
    assert sorted(closed) == sorted(begun)


@pytest.mark.parametrize("drive", DRIVERS, ids=["run", "arun"])
def test_flows_side_by_side_know_the_context(drive: Callable[[Flow[Any]], Any]) -> None:
    """Each flow sees the context variables of its call, in threads too."""
    name: ContextVar[str] = ContextVar("name", default="nobody")

    def one() -> Flow[str]:
        yield from ask(Double(1))
        return name.get()

    def flow() -> Flow[list[str]]:
        return (yield from ask(SideBySide([one() for _ in range(3)], 3)))

    token = name.set("somebody")
    try:
        assert drive(flow()) == ["somebody"] * 3
    finally:
        name.reset(token)


def test_after_an_error_waiting_flows_never_begin() -> None:
    """When a flow fails, flows that wait for a thread never start and running ones end."""
    begun: list[int] = []
    failed = threading.Event()

    class Wait(Double):
        def run(self) -> int:
            if self.number:
                failed.wait(5)  # keeps its thread until the error was raised
                return 0
            raise ArithmeticError

    def one(number: int) -> Flow[int]:
        begun.append(number)
        return (yield from ask(Wait(number)))

    def fail_first() -> None:
        with pytest.raises(ArithmeticError):
            SideBySide([one(number) for number in range(9)], 2).run()

    # The pool waits for running flows: release them once the others have been given up.
    runner = threading.Thread(target=fail_first)
    runner.start()
    time.sleep(0.5)
    failed.set()
    runner.join()
    assert len(begun) <= 3


async def test_an_error_ends_the_flows_beside_it() -> None:
    """In async code running flows are canceled and closed when another fails."""
    closed: list[bool] = []

    class Forever(Double):
        async def arun(self) -> int:
            await asyncio.Event().wait()
            return 0

    def waits() -> Flow[int]:
        try:
            return (yield from ask(Forever(1)))
        finally:
            closed.append(True)

    def fails() -> Flow[int]:
        return (yield from ask(Double(-1)))

    with pytest.raises(ArithmeticError):
        await asyncio.wait_for(SideBySide([waits(), fails()], 2).arun(), 5)
    assert closed == [True]

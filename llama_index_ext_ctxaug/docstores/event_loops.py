"""Async clients with pooled connections that belong to the event loop that opened them."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_LOOP_ERRORS = (
    "Event loop is closed",
    "attached to a different loop",
    "bound to a different event loop",
    "another operation is in progress",  # asyncpg, of a connection that a first such error left behind
)

_loops: dict[int, Callable[[], object]] = {}
"""The event loop that each client's connections belong to, by the client's identity."""


@contextmanager
def own_loop(client: Any) -> Iterator[None]:
    """Use an async client in the first event loop that asks for it, and in no other.

    In a second loop, a pool returns connections that hang in the first one.

    Raises:
        NotImplementedError: the client's connections belong to another loop.
    """
    loop, key = asyncio.get_running_loop(), id(client)
    if key not in _loops:
        weakref.finalize(client, _loops.pop, key, None)
        _loops[key] = weakref.ref(loop)
    if _loops[key]() is not loop:
        raise NotImplementedError("its async client belongs to another event loop")
    try:
        yield
    except Exception as error:
        if not of_another_loop(error):
            raise
        _loops[key] = lambda: None
        raise NotImplementedError("its async client belongs to another event loop") from error


def of_another_loop(error: Exception) -> bool:
    """True if an error, or one that caused it, says that a connection belongs to another event loop."""
    cause: BaseException | None = error
    while cause is not None:
        text = str(cause)
        if any(part in text for part in _LOOP_ERRORS):
            return True
        cause = cause.__cause__
    return False

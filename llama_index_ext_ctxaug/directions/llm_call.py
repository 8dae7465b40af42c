"""Asking a language model: the step, with a time limit, and what of its errors may be shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, wait
from contextvars import copy_context
from dataclasses import dataclass
from threading import Thread
from typing import Any

from llama_index.core.llms import LLM, CustomLLM
from llama_index.core.prompts import BasePromptTemplate


@dataclass(frozen=True)
class LLMCall:
    """The step that sends one prompt and gives back the text of the reply.

    Attributes:
        llm: the model; a chat model gets messages, another one text.
        prompt: the template.
        variables: what is filled in.
        timeout: most seconds to wait; None for no limit of our own.
    """

    llm: LLM
    prompt: BasePromptTemplate
    variables: Mapping[str, str]
    timeout: float | None = None

    def run(self) -> str:
        """Ask and wait; a call that takes too long is left to itself, in a thread of its own."""
        if self.timeout is None:
            return self._predict()
        reply: Future[str] = Future()
        Thread(target=copy_context().run, args=(_fulfill, reply, self._predict), daemon=True).start()
        if not wait([reply], self.timeout).done:
            raise self._late()
        return reply.result()

    async def arun(self) -> str:
        """Ask by the model's async call; a model that has only the sync one is asked in a thread."""
        if _only_sync(self.llm):
            call: Coroutine[Any, Any, str] = asyncio.to_thread(self._predict)
        else:
            call = self.llm.apredict(self.prompt, **self.variables)
        asked = asyncio.ensure_future(call)
        try:
            if not (await asyncio.wait([asked], timeout=self.timeout))[0]:
                raise self._late()
            return await asked
        finally:
            asked.cancel()

    def _late(self) -> TimeoutError:
        return TimeoutError(f"the LLM gave no answer within {self.timeout} s")

    def _predict(self) -> str:
        return self.llm.predict(self.prompt, **self.variables)


def _fulfill(reply: Future[str], call: Callable[[], str]) -> None:
    try:
        reply.set_result(call())
    except BaseException as error:  # whatever it is, it belongs to whoever waits
        reply.set_exception(error)


def _only_sync(llm: LLM) -> bool:
    """Whether the async calls of a model are core's, which run the sync ones on the event loop."""
    if not isinstance(llm, CustomLLM):
        return False
    # By name, since core wraps inherited methods anew for every class.
    return all(
        getattr(type(llm), name).__qualname__ == f"CustomLLM.{name}" for name in ("achat", "acomplete")
    )


def describe(error: Exception, llm: LLM) -> str:
    """An error of a model in one line of at most 200 characters, without the model's key."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    key = getattr(llm, "api_key", None)
    if isinstance(key, str) and key:
        text = text.replace(key, "***")
    return text[:200]

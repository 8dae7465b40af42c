"""Call a language model within a time limit, and describe its errors without secrets."""

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
    """A step that sends one prompt and returns the text of the reply.

    Attributes:
        llm: the model; a chat model receives messages, any other model text.
        prompt: the template.
        variables: values of the template's variables.
        timeout: maximum seconds to wait; None for no limit but the model's own.
    """

    llm: LLM
    prompt: BasePromptTemplate
    variables: Mapping[str, str]
    timeout: float | None = None

    def run(self) -> str:
        """Send the prompt; a call that exceeds the timeout goes on in a thread of its own, unheeded."""
        if self.timeout is None:
            return self._predict()
        reply: Future[str] = Future()
        Thread(target=copy_context().run, args=(_fulfill, reply, self._predict), daemon=True).start()
        if not wait([reply], self.timeout).done:
            raise self._late()
        return reply.result()

    async def arun(self) -> str:
        """Send the prompt by the model's async method, or in a thread if it has only the sync one."""
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
    except BaseException as error:  # raised again where the reply is awaited
        reply.set_exception(error)


def _only_sync(llm: LLM) -> bool:
    """Return True if the model's async methods are core's, which block the event loop with the sync ones."""
    if not isinstance(llm, CustomLLM):
        return False
    # By name, since core wraps inherited methods anew for every class.
    return all(
        getattr(type(llm), name).__qualname__ == f"CustomLLM.{name}" for name in ("achat", "acomplete")
    )


def describe(error: Exception, llm: LLM) -> str:
    """Return an error of a model in one line of at most 200 characters, without the model's API key."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    key = getattr(llm, "api_key", None)
    if isinstance(key, str) and key:
        text = text.replace(key, "***")
    return text[:200]

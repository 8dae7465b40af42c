"""A language model that is asked each prompt once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.llms import LLM

from llama_index_ext_ctxaug.evaluation.json_lines import append_lines, read_lines

_SHARED = ("system_prompt", "query_wrapper_prompt", "output_parser")


class CachedLLM(LLM):
    """A language model that keeps its replies by model and prompt; streamed replies are not kept.

    Args:
        llm: the model.
        path: a JSONL file of replies, so that a later run asks nothing again; None to keep them in memory.

    Example:
        ```python
        report = compare(retriever, augmenters, questions, llm=CachedLLM(llm, "answers.jsonl"))
        ```
    """

    llm: LLM = Field(exclude=True, description="The model.")
    path: Path | None = Field(default=None, description="JSONL file of replies.")
    _replies: dict[str, str] = PrivateAttr(default_factory=dict)

    def __init__(self, llm: LLM, path: str | Path | None = None) -> None:
        values: dict[str, Any] = {"llm": llm, "path": path, **{name: getattr(llm, name) for name in _SHARED}}
        super().__init__(**values)
        if self.path:
            known = (one for one in read_lines(self.path) if isinstance(one, dict) and "reply" in one)
            self._replies = {one["key"]: one["reply"] for one in known if "key" in one}

    @property
    def metadata(self) -> LLMMetadata:
        """The model's metadata, without function calling, whose replies are not text."""
        return self.llm.metadata.model_copy(update={"is_function_calling_model": False})

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Return the reply to messages."""
        key = self._key(_text(messages), kwargs)
        if key not in self._replies:
            self._keep(key, self.llm.chat(messages, **kwargs).message.content)
        return _as_chat(self._replies[key])

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Return the reply to messages."""
        key = self._key(_text(messages), kwargs)
        if key not in self._replies:
            self._keep(key, (await self.llm.achat(messages, **kwargs)).message.content)
        return _as_chat(self._replies[key])

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Return the reply to a prompt."""
        key = self._key(prompt, kwargs)
        if key not in self._replies:
            self._keep(key, self.llm.complete(prompt, formatted, **kwargs).text)
        return CompletionResponse(text=self._replies[key])

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Return the reply to a prompt."""
        key = self._key(prompt, kwargs)
        if key not in self._replies:
            self._keep(key, (await self.llm.acomplete(prompt, formatted, **kwargs)).text)
        return CompletionResponse(text=self._replies[key])

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """Stream the reply to messages, past the cache."""
        return self.llm.stream_chat(messages, **kwargs)

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        """Stream the reply to messages, past the cache."""
        return await self.llm.astream_chat(messages, **kwargs)

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """Stream the reply to a prompt, past the cache."""
        return self.llm.stream_complete(prompt, formatted, **kwargs)

    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseAsyncGen:
        """Stream the reply to a prompt, past the cache."""
        return await self.llm.astream_complete(prompt, formatted, **kwargs)

    @property
    def fingerprint(self) -> str:
        """A text that differs for models and parameters that may reply differently."""
        parameters = {name: getattr(self.llm, name, None) for name in ("temperature", "max_tokens")}
        return json.dumps([self.llm.metadata.model_name, parameters])

    def _key(self, prompt: str, options: dict[str, Any]) -> str:
        text = json.dumps([self.fingerprint, prompt, sorted(options.items())], default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def _keep(self, key: str, reply: str | None) -> None:
        self._replies[key] = reply or ""
        if self.path:
            append_lines(self.path, [{"key": key, "reply": reply or ""}])


def _text(messages: Sequence[ChatMessage]) -> str:
    return json.dumps([(message.role.value, message.content) for message in messages])


def _as_chat(reply: str) -> ChatResponse:
    return ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT, content=reply))

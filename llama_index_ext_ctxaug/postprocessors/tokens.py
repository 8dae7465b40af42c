"""The tokenizer that counts, brought without blocking the event loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from llama_index.core.utils import get_tokenizer

from llama_index_ext_ctxaug.flow import Flow, ask
from llama_index_ext_ctxaug.passages.budget import Tokenizer


@dataclass(frozen=True)
class LoadTokenizer:
    """The step that brings LlamaIndex's tokenizer: the first time in a process it is read from files."""

    def run(self) -> Tokenizer:
        """Bring it in the calling thread."""
        return get_tokenizer()

    async def arun(self) -> Tokenizer:
        """Bring it in a worker thread."""
        return await asyncio.to_thread(get_tokenizer)


def tokenizer_or_default(tokenizer: Tokenizer | None) -> Flow[Tokenizer]:
    """The tokenizer that was given, else the one that LlamaIndex's settings hold at this moment."""
    if tokenizer is not None:
        return tokenizer
    return (yield from ask(LoadTokenizer()))

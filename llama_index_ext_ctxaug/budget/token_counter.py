"""Count tokens, and estimate them from parts of texts that are counted once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from llama_index_ext_ctxaug.budget.fit import Tokenizer

_PART_END = re.compile(r"[.!?](?= \S)|(?<=\w)[。！？]|\n(?![^\S\n]*\n)")
"""Places where tokenizers begin a new token: before the space after a sentence, and behind line breaks."""

_IDEOGRAPHIC = "。！？"
"""Marks that tokenizers join with the letters behind them rather than with those before."""


@dataclass
class TokenCounter:
    """Count the tokens of texts that have much in common, such as drafts of one context.

    Attributes:
        tokenizer: returns the tokens of a text.
    """

    tokenizer: Tokenizer
    _known: dict[str, int] = field(default_factory=dict)

    def count(self, text: str) -> int:
        """Count the tokens of a text."""
        return len(self.tokenizer(text))

    def estimate(self, text: str) -> int:
        """Return the sum of the tokens of the text's sentences and lines, each of which is counted once.

        For tokenizers that split at spaces and line breaks first, as most do, this is the exact number.
        """
        if "" not in self._known:
            self._known[""] = self.count("")  # tokens that a tokenizer adds to every text
        around = self._known[""]
        return around + sum(self._part(part) - around for part in _parts(text))

    def _part(self, part: str) -> int:
        if part not in self._known:
            self._known[part] = self.count(part)
        return self._known[part]


def _parts(text: str) -> Iterator[str]:
    start = 0
    for match in _PART_END.finditer(text):
        end = match.start() if match[0] in _IDEOGRAPHIC else match.end()
        if end > start:
            yield text[start:end]
            start = end
    if start < len(text):
        yield text[start:]

"""Count tokens, and estimate them from parts of texts that are counted once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from llama_index_ext_ctxaug.budget.fit import Tokenizer

_END = re.compile(r"[.!?。！？\n](?:(?<=[.!?])(?= \S)|(?<=\w[。！？])|(?<=\n)(?![^\S\n]*\n))")
"""Places where tokenizers begin a new token: before the space after a sentence, and behind line breaks."""

_IDEOGRAPHIC = "。！？"
"""Marks that tokenizers join with the letters behind them rather than with those before."""

_MIN_CHARACTERS = 10
"""A tokenizer takes a few long texts faster than many short ones."""


_MAX_KNOWN = 50_000
"""Maximum parts of texts whose tokens are remembered for one tokenizer, about 5 MB."""

_known: WeakKeyDictionary[Tokenizer, dict[str, int]] = WeakKeyDictionary()


@dataclass
class TokenCounter:
    """Count the tokens of texts that have much in common, such as drafts of one context.

    Counts of sentences and lines are remembered between calls, since the same chunks are retrieved again.

    Attributes:
        tokenizer: returns the tokens of a text.
    """

    tokenizer: Tokenizer
    _counts: dict[str, int] = field(init=False)
    _last: tuple[str, int] = ("", 0)

    def __post_init__(self) -> None:
        try:
            self._counts = _known.setdefault(self.tokenizer, {})
        except TypeError:  # neither every callable has a hash nor a weak reference
            self._counts = {}

    def count(self, text: str) -> int:
        """Count the tokens of a text; the last one is remembered."""
        if not text or text != self._last[0]:
            self._last = (text, len(self.tokenizer(text)))
        return self._last[1]

    def estimate(self, text: str) -> int:
        """Return the sum of the tokens of the text's sentences and lines, each counted once.

        For tokenizers that split at spaces and line breaks first, as most do, this is the exact number.
        """
        around = self._part("")  # tokens that a tokenizer adds to every text
        return around + sum(self._part(part) - around for part in _parts(text))

    def _part(self, part: str) -> int:
        tokens = self._counts.get(part)
        if tokens is None:
            if len(self._counts) >= _MAX_KNOWN:
                self._counts.clear()
            tokens = self._counts[part] = len(self.tokenizer(part))
        return tokens


def _parts(text: str) -> Iterator[str]:
    """Split a text behind sentences and lines; short ones stay with the next."""
    start = before = 0
    for match in _END.finditer(text):
        end = match.start() if match[0] in _IDEOGRAPHIC else match.end()
        if end - before >= _MIN_CHARACTERS:
            yield text[start:end]
            start = end
        before = end
    if start < len(text):
        yield text[start:]

"""Cut a text into overlapping windows of whole sentences, each at most a number of tokens long."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate
from typing import NamedTuple

from llama_index_ext_ctxaug.errors import ConfigurationError
from llama_index_ext_ctxaug.passages.span import Span
from llama_index_ext_ctxaug.windows.segmentation import (
    SentenceSplitter,
    cluster_spans,
    line_spans,
    sentence_spans,
    word_spans,
)

CountTokens = Callable[[str], int]

_CHARS_PER_TOKEN = 8
"""A sentence with more characters for each token of a window is cut before its tokens are counted."""

_BLOCK = 2000
"""Maximum characters that are tokenized at once where a sentence is cut: tokenizers are slow on long runs."""

_TOKENS_PER_CHAR = 4
"""Maximum tokens of a character: tokenizers fall back to bytes, and UTF-8 has up to four of them."""


class Window(NamedTuple):
    """A slice of a text.

    Attributes:
        start: first character.
        end: end, exclusive.
        tokens: number of tokens.
    """

    start: int
    end: int
    tokens: int


class _Unit(NamedTuple):
    """A span that is not split, with its tokens: counted for a sentence, apportioned for its parts."""

    span: Span
    tokens: float


def check_window(window_tokens: int, stride_tokens: int) -> None:
    """Check that a stride moves on and leaves no text out.

    Raises:
        ConfigurationError: if the stride is below 1 or above the window.
    """
    if window_tokens < 1:
        raise ConfigurationError(f"window_tokens must be at least 1, got {window_tokens!r}")
    if not 1 <= stride_tokens <= window_tokens:
        raise ConfigurationError(
            f"stride_tokens must be between 1 and window_tokens ({window_tokens!r}), got {stride_tokens!r}: "
            "it is the step from the start of one window to the next, not their overlap"
        )


def sliding_windows(
    text: str,
    *,
    window_tokens: int,
    stride_tokens: int,
    count_tokens: CountTokens,
    split_sentences: SentenceSplitter | None = None,
) -> list[Window]:
    """Cover a text with overlapping windows.

    A window holds whole sentences. A sentence that is longer than a window is cut between lines, else
    between words, else between grapheme clusters. Each window begins about a stride after the one before
    and ends at least one unit after it. Where the last window would add less than half a stride, it
    replaces the one before, if the text stays covered.

    Args:
        text: the text; white space alone has no windows.
        window_tokens: maximum tokens of a window. Only a single character may have more.
        stride_tokens: maximum tokens from the start of a window to the start of the next; a longer
            sentence makes a longer step.
        count_tokens: counts the tokens of a text; called once for each sentence and each window.
        split_sentences: cuts a text into sentences; by default a rule for many scripts.

    Returns:
        The windows in order. Each is `text[start:end]`, and together they hold every character.

    Raises:
        ConfigurationError: if the stride is below 1 or above the window.
    """
    check_window(window_tokens, stride_tokens)
    if not text.strip():
        return []
    units = list(_units(text, window_tokens, count_tokens, split_sentences))
    cutter = _Cutter(text, units, window_tokens, count_tokens)
    places = _fold_tail(cutter, cutter.cover(stride_tokens), stride_tokens)
    return [cutter.window(first, last) for first, last in places]


class _Cutter:
    """Find which ranges of units fit into a window, and count their tokens."""

    def __init__(self, text: str, units: list[_Unit], limit: int, count_tokens: CountTokens) -> None:
        self.text = text
        self.units = units
        self.limit = limit
        self.count_tokens = count_tokens
        self.before = [0.0, *accumulate(unit.tokens for unit in units)]
        self._counted: dict[tuple[int, int], int] = {}

    def window(self, first: int, last: int) -> Window:
        """Return the window of the units from first to last, exclusive."""
        return Window(self.units[first].span.start, self.units[last - 1].span.end, self.tokens(first, last))

    def tokens(self, first: int, last: int) -> int:
        """Count the tokens of these units together: joined text may have more or fewer than its parts."""
        if (first, last) not in self._counted:
            text = self.text[self.units[first].span.start : self.units[last - 1].span.end]
            self._counted[first, last] = self.count_tokens(text)
        return self._counted[first, last]

    def last_that_fits(self, first: int) -> int:
        """Return the end of the longest window that begins with this unit; it holds at least one unit."""
        last = bisect_right(self.before, self.before[first] + self.limit + 1e-6, lo=first + 1) - 1
        last = max(last, first + 1)
        while last > first + 1 and (tokens := self.tokens(first, last)) > self.limit:
            kept = (self.before[last] - self.before[first]) * self.limit / tokens
            shorter = bisect_right(self.before, self.before[first] + kept, lo=first + 1) - 1
            last = max(first + 1, min(shorter, last - 1))
        return last

    def first_that_fits(self, last: int) -> int:
        """Return the start of the longest window that ends here."""
        first = bisect_left(self.before, self.before[last] - self.limit - 1e-6, hi=last)
        first = min(first, last - 1)
        while first < last - 1 and self.tokens(first, last) > self.limit:
            first += 1
        return first

    def cover(self, stride: int) -> list[tuple[int, int]]:
        """Return windows from the first unit on, each ending later than the one before."""
        places = [(0, self.last_that_fits(0))]
        while places[-1][1] < len(self.units):
            first, covered = places[-1]
            step = bisect_right(self.before, self.before[first] + stride + 1e-6, lo=first + 1) - 1
            first = min(max(step, first + 1), covered)
            # A window that ends where the last one did adds nothing: begin later.
            while first < covered and (last := self.last_that_fits(first)) <= covered:
                first += 1
            last = self.last_that_fits(first)
            places.append((first, last))
        return places


def _fold_tail(cutter: _Cutter, places: list[tuple[int, int]], stride: int) -> list[tuple[int, int]]:
    """Replace the last two windows by one where the last adds little, or extend the last one backwards."""
    if len(places) < 2:
        return places
    neighbor, tail = places[-2], places[-1]
    if cutter.before[tail[1]] - cutter.before[neighbor[1]] >= stride / 2:
        return places
    fullest = (cutter.first_that_fits(tail[1]), tail[1])
    if len(places) > 2 and fullest[0] <= places[-3][1]:
        return [*places[:-2], fullest]
    if cutter.before[tail[1]] - cutter.before[tail[0]] < cutter.limit / 2:
        return [*places[:-1], fullest]
    return places


def _units(
    text: str, window_tokens: int, count_tokens: CountTokens, split_sentences: SentenceSplitter | None
) -> Iterator[_Unit]:
    """Yield sentences, the lines of a sentence longer than a window, the words of a line longer than one."""
    longest = max(_BLOCK, _CHARS_PER_TOKEN * window_tokens)

    def counted(span: Span) -> int | None:
        """Count the tokens of a part that fits into a window; None if it does not fit."""
        if span.end - span.start > longest:
            return None
        tokens = count_tokens(text[span.start : span.end])
        return tokens if tokens <= window_tokens else None

    for sentence in sentence_spans(text, split_sentences):
        tokens = counted(sentence)
        if tokens is not None:
            yield _Unit(sentence, tokens)
            continue
        lines = line_spans(text, sentence)
        for line in lines:
            tokens = counted(line) if len(lines) > 1 else None
            if tokens is not None:
                yield _Unit(line, tokens)
            else:
                yield from _words(text, line, window_tokens, count_tokens)


def _words(text: str, line: Span, window_tokens: int, count_tokens: CountTokens) -> Iterator[_Unit]:
    """Yield words, or the characters of words longer than a window, with their share of the tokens."""
    count = cache(count_tokens)
    block: list[Span] = []
    for word in word_spans(text, line):
        for piece in _window_sized(text, word, window_tokens, count):
            if block and piece.end - block[0].start > _BLOCK:
                yield from _apportioned(text, block, count)
                block = []
            block.append(piece)
    yield from _apportioned(text, block, count)


def _window_sized(text: str, word: Span, window_tokens: int, count: CountTokens) -> tuple[Span, ...]:
    length = word.end - word.start
    if length * _TOKENS_PER_CHAR <= window_tokens:
        return (word,)
    if length <= _BLOCK and count(text[word.start : word.end]) <= window_tokens:
        return (word,)
    return tuple(cluster_spans(text, word))


def _apportioned(text: str, block: list[Span], count: CountTokens) -> Iterator[_Unit]:
    """Apportion the tokens of a block among its words by what each has alone."""
    alone = [count(text[span.start : span.end]) for span in block]
    share = count(text[block[0].start : block[-1].end]) / max(1, sum(alone))
    for span, tokens in zip(block, alone, strict=True):
        yield _Unit(span, share * tokens)

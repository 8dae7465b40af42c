"""The longest start or end of a text within a number of tokens, cut between sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llama_index_ext_ctxaug.passages.span import Span
from llama_index_ext_ctxaug.windows.segmentation import cluster_spans, sentence_spans, word_spans
from llama_index_ext_ctxaug.windows.sliding import CountTokens

_CHARACTERS_PER_TOKEN = 16
"""More characters than a token has on average in any text worth reading; it bounds what is looked at."""


def start_within(text: str, max_tokens: int, count: CountTokens) -> int:
    """Return the end of the longest start of a text that is within a number of tokens.

    Args:
        text: any text that is not empty.
        max_tokens: maximum tokens.
        count: counts the tokens of a text.

    Returns:
        The number of characters: all of them, else up to the end of a sentence, else of a word or of a
        character. At least one character, so that reading goes on with any limit.
    """
    bound = min(len(text), max_tokens * _CHARACTERS_PER_TOKEN)
    if bound == len(text) and count(text) <= max_tokens:
        return bound

    def fits(end: int) -> bool:
        return count(text[:end]) <= max_tokens

    for spans in (sentence_spans(text[:bound]), word_spans(text, Span(0, bound))):
        if end := _last_fit([span.end for span in spans], fits):
            return end
    clusters = [span.end for span in cluster_spans(text, Span(0, min(len(text), 256)))]
    return _last_fit(clusters, fits) or clusters[0]


def end_within(text: str, max_tokens: int, count: CountTokens) -> int:
    """Return the start of the longest end of a text that is within a number of tokens.

    As `start_within`, from the end: the number of characters to leave out, never all of them.
    """
    skipped = max(0, len(text) - max_tokens * _CHARACTERS_PER_TOKEN)
    if not skipped and count(text) <= max_tokens:
        return 0
    part = Span(min(skipped, len(text) - 1), len(text))

    def fits(start: int) -> bool:
        return count(text[start:]) <= max_tokens

    sentences = [span.start + part.start for span in sentence_spans(text[part.start :])]
    for starts in (sentences, [span.start for span in word_spans(text, part)]):
        # Text that begins at the bound may begin inside a sentence or a word.
        start = _last_fit([start for start in reversed(starts) if start > part.start or not skipped], fits)
        if start is not None:
            return start
    clusters = [span.start for span in cluster_spans(text, Span(max(0, len(text) - 256), len(text)))]
    start = _last_fit(clusters[::-1], fits)
    return clusters[-1] if start is None else start


def _last_fit(cuts: Sequence[int], fits: Callable[[int], bool]) -> int | None:
    """Return the last cut that fits, by bisection since longer texts have more tokens; None for none."""
    low, high = 0, len(cuts)
    while low < high:
        middle = (low + high) // 2
        if fits(cuts[middle]):
            low = middle + 1
        else:
            high = middle
    return cuts[low - 1] if low else None

"""The parts of a text that are not split: sentences, lines, words, grapheme clusters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator

from llama_index_ext_ctxaug.passages.span import Span

SentenceSplitter = Callable[[str], list[str]]
"""Cuts a text into its sentences, in order; LlamaIndex's `split_by_sentence_tokenizer()` is one."""

_CLOSERS = "\"'”’»」』）)】\\]》"
_NO_SPACE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3100-\u312f"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts that put no space between words, so that each of their characters is a unit."""

_SENTENCE_END = re.compile(
    rf"(?:[。！？｡।॥؟۔]+[{_CLOSERS}]*|[.!?…]+[{_CLOSERS}]*(?=\s+[^\sa-zß-öø-ÿ])"
    rf"|[!?…]+[{_CLOSERS}]*(?=[{_NO_SPACE}])|\n[ \t]*(?=\n))\s*"
)
_ABBREVIATION = re.compile(r"(?:^|[\s(])(?:Mr|Mrs|Ms|Dr|Prof|St|No|Fig|Eq|vs|cf|e\.g|i\.e|[A-Z])\.$")
_WORD = re.compile(rf"(?:(?![{_NO_SPACE}])\w)+(?:[.,'’:/-](?:(?![{_NO_SPACE}])\w)+)*")
_HAN_RUN = re.compile("[\u3041-\u3096\u30a1-\u30fa\u3400-\u4dbf\u4e00-\u9fff]{2,}")
_AFTER_WORD = re.compile(rf"[,.;:!?，。；：！？、%°…{_CLOSERS}}}]*\s*")
_ZWJ = "\u200d"


def sentence_spans(text: str, split: SentenceSplitter | None = None) -> list[Span]:
    """Cut a text into sentences that cover it; space behind a sentence belongs to it.

    The built-in rule reads the marks of many scripts (. ! ? 。！？ । ؟ ۔) and blank lines, and needs no
    model. A splitter may leave out characters (space, mostly): they go to the sentence before.

    Args:
        text: any text.
        split: another splitter.

    Returns:
        The spans in order, none empty; none for an empty text.
    """
    ends = _ends(text) if split is None else _ends_of(text, split(text))
    spans: list[Span] = []
    start = 0
    for end in ends:
        spans.append(Span(start, end))
        start = end
    if start < len(text):
        spans.append(Span(start, len(text)))
    return spans


def _ends(text: str) -> Iterator[int]:
    for match in _SENTENCE_END.finditer(text):
        if match[0][0] == "." and _ABBREVIATION.search(text[max(0, match.start() - 6) : match.start() + 1]):
            continue
        yield match.end()


def _ends_of(text: str, sentences: list[str]) -> Iterator[int]:
    """Where sentences that were cut elsewhere begin; one that is not in the text is passed over."""
    at = 0
    for sentence in sentences:
        core = sentence.strip()
        found = text.find(core, at) if core else -1
        if found >= 0:
            if at > 0:  # what a splitter left out before the first sentence belongs to it
                yield found
            at = found + len(core)


def line_spans(text: str, span: Span) -> list[Span]:
    """Cut a part of a text after its line breaks."""
    ends = [match.end() for match in re.finditer(r"\n", text[span.start : span.end])]
    starts = [0, *ends]
    parts = zip(starts, [*ends, span.end - span.start], strict=True)
    return [Span(span.start + start, span.start + end) for start, end in parts if end > start]


def word_spans(text: str, span: Span) -> list[Span]:
    """Cut a part of a text into words, numbers and, in scripts without spaces, characters.

    Marks and space behind a word belong to it; no combining sequence and no emoji is cut.
    """
    spans: list[Span] = []
    start = span.start
    while start < span.end:
        if run := _HAN_RUN.match(text, start, span.end):
            # All but the last stand alone; a mark may follow the last.
            spans += [Span(place, place + 1) for place in range(start, run.end() - 1)]
            start = run.end() - 1
        end = _word_end(text, start)
        match = _AFTER_WORD.match(text, end)
        end = min(match.end() if match else end, span.end)
        spans.append(Span(start, end))
        start = end
    return spans


def cluster_spans(text: str, span: Span) -> list[Span]:
    """Cut a part of a text into what a reader sees as characters."""
    spans: list[Span] = []
    start = span.start
    while start < span.end:
        end = min(cluster_end(text, start), span.end)
        spans.append(Span(start, end))
        start = end
    return spans


def cluster_end(text: str, start: int) -> int:
    """The end of the grapheme cluster that begins here.

    Combining marks, variation selectors, skin tones, tags and vowels of Hangul go with what they
    modify, a joiner and a virama bind what follows, regional indicators go in pairs, CR with LF.
    """
    end = start + 1
    if text.startswith("\r\n", start):
        return start + 2
    if _is_flag_letter(text[start]) and end < len(text) and _is_flag_letter(text[end]):
        end += 1
    while end < len(text):
        char = text[end]
        if char < "\u0300" or not _extends(char):
            break
        end += 1
        binds = char == _ZWJ or unicodedata.combining(char) == 9
        if binds and end < len(text) and not text[end].isspace() and (char == _ZWJ or text[end].isalpha()):
            end += 1
    return end


def _word_end(text: str, start: int) -> int:
    match = _WORD.match(text, start)
    if match is None:
        return cluster_end(text, start)
    end = match.end()
    # Marks are no word characters for `re`: a word of Devanagari, or "e" with an accent of its own, goes on.
    while end < len(text) and text[end] >= "\u0300" and _extends(text[end]):
        end = cluster_end(text, end - 1)
        if match := _WORD.match(text, end):
            end = match.end()
    return end


def _is_flag_letter(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _extends(char: str) -> bool:
    return (
        unicodedata.category(char)[0] == "M"
        or char == _ZWJ
        or "\U0001f3fb" <= char <= "\U0001f3ff"
        or "\U000e0020" <= char <= "\U000e007f"
        or "\u1160" <= char <= "\u11ff"
    )

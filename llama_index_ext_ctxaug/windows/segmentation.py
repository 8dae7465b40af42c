"""Cut a text into units that stay whole: sentences, lines, words, grapheme clusters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import regex

from llama_index_ext_ctxaug.passages.span import Span

SentenceSplitter = Callable[[str], list[str]]
"""Cuts a text into its sentences, in order; LlamaIndex's `split_by_sentence_tokenizer()` is one."""

CLOSERS = r"\"'\p{Pe}\p{Pf}"
"""Quotes and brackets that may follow the end of a sentence, as part of a character class."""
_NO_SPACE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3100-\u312f"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts without spaces between words: each of their characters is a unit."""

TIBETAN_MARKS = "\u0f0d-\u0f12\u0f14"
"""Shads, which Unicode leaves out of its sentence terminals since they end phrases too."""
GREEK_QUESTION_MARK = r"(?<=\p{Greek}[\p{M}\p{Pf}]*)[;\u037e]"
"""A semicolon after a Greek letter."""
_SPACED = ".!?…‼⁇⁈⁉‽"  # end a sentence before white space; inside a word (3.14, example.org) they end none
_SENTENCE_END = regex.compile(
    # Marks of one script. The Burmese mark \u104a is left out: it is a comma.
    rf"(?:(?:[\p{{Sentence_Terminal}}--[{_SPACED}․﹒．\u104a]]+|[{TIBETAN_MARKS}](?:\s*[{TIBETAN_MARKS}])*"
    rf"|[﹒．](?!(?<=\p{{Nd}}.)\p{{Nd}}))[{CLOSERS}]*"
    rf"|(?:[{_SPACED}]+|{GREEK_QUESTION_MARK}|(?<=\p{{Armenian}}):)[{CLOSERS}“‘«]*(?=\s+[^\s\p{{Ll}}])"
    rf"|[{_SPACED}--.]+[{CLOSERS}]*(?=[{_NO_SPACE}])|\n[ \t]*(?=\n))\s*",
    regex.V1,
)
_ABBREVIATION = re.compile(r"(?:^|[\s(])(?:Mr|Mrs|Ms|Dr|Prof|St|No|Fig|Eq|vs|cf|e\.g|i\.e|[A-Z])\.$")
_LETTER = rf"(?:(?![{_NO_SPACE}])(?=\w)\X)"  # to `regex`, unlike `re`, combining marks are word characters
_INNER = r"(?:[.,'’:/-]|(?<=\p{Nd})[．，](?=\p{Nd}))"
_WORD = regex.compile(
    rf"(?:{_LETTER}+(?:{_INNER}{_LETTER}+)*|\X)[\p{{Terminal_Punctuation}}%°…{CLOSERS}]*\s*"
)
_CLUSTER = regex.compile(r"\X")
_HAN_RUN = re.compile("[\u3041-\u3096\u30a1-\u30fa\u3400-\u4dbf\u4e00-\u9fff]{2,}")


def sentence_spans(text: str, split: SentenceSplitter | None = None) -> list[Span]:
    """Cut a text into sentences that cover it; white space after a sentence belongs to it.

    The built-in rule needs no model. A sentence ends at a blank line, at Unicode's sentence terminals of any
    script, at Tibetan shads and at the Greek question mark; at . ! ? only before white space that no lower
    case letter follows. Scripts without such marks, Thai and Lao, are cut at blank lines alone. Characters
    that a splitter leaves out (mostly white space) go to the sentence before them.

    Args:
        text: any text.
        split: replaces the built-in rule.

    Returns:
        The spans in order, none of them empty; no spans for an empty text.
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
    """Yield where each sentence of a splitter ends; a sentence that is not in the text is skipped."""
    at = 0
    for sentence in sentences:
        core = sentence.strip()
        found = text.find(core, at) if core else -1
        if found >= 0:
            if at > 0:  # what a splitter left out before the first sentence belongs to it
                yield found
            at = found + len(core)


def line_spans(text: str, span: Span) -> list[Span]:
    """Cut a part of a text after each line break."""
    ends = [match.end() for match in re.finditer(r"\n", text[span.start : span.end])]
    starts = [0, *ends]
    parts = zip(starts, [*ends, span.end - span.start], strict=True)
    return [Span(span.start + start, span.start + end) for start, end in parts if end > start]


def word_spans(text: str, span: Span) -> list[Span]:
    """Cut a part of a text into words, numbers and, in scripts without spaces, characters.

    Punctuation and white space after a word belong to it. No grapheme cluster is cut.
    """
    spans: list[Span] = []
    start = span.start
    while start < span.end:
        if run := _HAN_RUN.match(text, start, span.end):
            # Each character is a word; a mark may follow the last one.
            spans += [Span(place, place + 1) for place in range(start, run.end() - 1)]
            start = run.end() - 1
        word = _WORD.match(text, start, span.end)
        end = word.end() if word else span.end
        spans.append(Span(start, end))
        start = end
    return spans


def cluster_spans(text: str, span: Span) -> list[Span]:
    """Cut a part of a text into what a reader sees as characters: Unicode's extended grapheme clusters."""
    return [Span(*match.span()) for match in _CLUSTER.finditer(text, span.start, span.end)]

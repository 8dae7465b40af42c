"""Decide what separates two chunks, and whether text is missing between them."""

from __future__ import annotations

import re

HOLE_SEPARATOR = "\n\n[...]\n\n"
"""Separator where text of the document is missing."""

MAX_STRIPPED = 40
"""Maximum characters between linked chunks that count as white space stripped by the splitter."""

MAX_LEFT_OUT = 80
"""Maximum characters of the document that a parser may leave out between linked chunks without a hole."""

_MAX_MARKUP = 5_000

_WORD = re.compile(r"[^\W_]")
_MARKUP = re.compile(r"<(script|style)\b.*?</\1\s*>|<!--.*?-->|<[^<>]*>|&#?\w+;", re.DOTALL | re.IGNORECASE)
_HEADING = re.compile(r"#{1,6}\s|={3,}$|-{3,}$")
_BLOCK = re.compile(r"(?:[-*+•]|\d{1,3}[.)])\s|```|~~~|\||<\w|>\s")
_SENTENCE_END = re.compile(r"[.!?…:;,][\"'”’»)\]]*$")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u3190-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef"
    "\U00020000-\U0003ffff]"
)


def separator(before: str, after: str) -> str:
    """Return what separates two chunks that follow one another, where nothing shows what is between.

    Args:
        before: the text before.
        after: the text after.

    Returns:
        A blank line before and after a heading; a line break before a list item, a table row or another
        block, between lines, and after a title; nothing where white space is there already, or between
        characters of a script without spaces; else a space.
    """
    last, first = before.rstrip().rpartition("\n")[2].strip(), after.strip().partition("\n")[0]
    white = before[len(before.rstrip()) :] + after[: len(after) - len(after.lstrip())]
    if not last or not first or "\n" in white:
        return ""
    if _HEADING.match(first) or _HEADING.match(last):
        return "\n\n"
    in_row = "|" in first and last.startswith("|") and not (last.endswith("|") and first.startswith("|"))
    if not in_row and (_BLOCK.match(first) or _BLOCK.match(last)):
        return "\n"
    if white or unspaced(last[-1] + first[0]):
        return ""
    lines = "\n" in before or "\n" in after or (first[0].isupper() and not _SENTENCE_END.search(last))
    return "\n" if lines and not in_row else " "


def stripped_space(size: int, before: str, after: str) -> str | None:
    """Return likely white space of a size between two chunks; None if text is missing there.

    Args:
        size: characters of the document between the chunks.
        before: the text before.
        after: the text after.
    """
    if size > MAX_STRIPPED or before[-1:].isspace() or after[:1].isspace():
        return None
    if size == 1:
        return "\n" if unspaced(before[-1:] + after[:1]) else separator(before, after)[:1] or " "
    return "\n\n" + " " * (size - 2)


def is_space(text: str) -> bool:
    """Return True if a text is white space or marks that a parser strips, such as those of a heading."""
    return text.isspace() or ("<" not in text and not has_words(text))


def is_headings(text: str) -> bool:
    """Return True if all lines of a text that have words are Markdown headings."""
    return "<" not in text and all(line.startswith("#") for line in text.splitlines() if has_words(line))


def has_words(text: str) -> bool:
    """Return True if a text has letters or digits outside of markup, or is too long to be markup alone."""
    return len(text) > _MAX_MARKUP or _WORD.search(_MARKUP.sub("", text)) is not None


def unspaced(text: str) -> bool:
    """Return True if a text has a character of a script that puts no space between words."""
    return _UNSPACED.search(text) is not None

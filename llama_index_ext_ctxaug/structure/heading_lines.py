"""Find headings in a text: Markdown, underlined and numbered ones, in English and Chinese.

A doubtful line is not a heading: a missed heading lets a section grow to its token limit, a false one
cuts it short.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

TextHeadingKind = Literal["markdown", "underlined", "numbered"]
TEXT_HEADING_KINDS: tuple[TextHeadingKind, ...] = ("markdown", "underlined", "numbered")

MAX_TITLE = 100
"""Maximum characters of a title: longer lines are sentences."""

_FENCE = re.compile(r"[ \t]{0,3}(`{3,}|~{3,})[ \t]*([^`\s]*)")
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?:[\w-]+:[^\n]*\n|[ \t]+[^\n]*\n|- [^\n]*\n)+---[ \t]*(?:\n|\Z)")
_ATX = re.compile(r" {0,3}(#{1,6})[ \t]+(?!#)(\S.*?)[ \t]*#*[ \t]*$")
_UNDERLINE = re.compile(r"[ \t]{0,3}([=\-~^\"'*+#])\1{2,}[ \t]*$")
_QUOTE_TABLE_ITEM = re.compile(r"\s*(?:[>|]|[-*+•·][ \t])")
_ITEM_NUMBER = re.compile(r"\s*\d+[.)、]")
_SENTENCE_END = re.compile(r"[.。!！;；,，:：、…][\"'”’」』）)\]]*$")
_TABLE_OR_CONTENTS = re.compile(r"\||\t|\.{3,}|…|(?:\. ){3}| {3}")
_CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
_TITLE_START = re.compile(rf"[\"'“‘«「『《（(\[]?[^\W\d_a-zß-öø-ÿ]|[{_CJK}]")

_QUANTITY = re.compile(
    r"(?:[kKMGTP]i?B|[kMGT]?Hz|[kMG]?Wh?|[km]?[VAJN]|°[CF]|[AP]M|USD|EUR|[Mm]illion|[Bb]illion|[Pp]er\s?cent)\b"
)

_HAN = "〇零一二三四五六七八九十百千两"
_NUMBERED = re.compile(rf"[\s　]*[\d§第（(PBTCASIVX{_HAN}]")
_HAN_UNIT = re.compile(rf"\s*第\s*[{_HAN}\d]+\s*([编編篇卷部章节節回条條])分?([\s　：:、.·—-]*)(.*)$")
_HAN_ITEM = re.compile(rf"[\s　]*[{_HAN}]+[、．.]\s*(\S.*)$")
_HAN_SUBITEM = re.compile(rf"[\s　]*[（(][{_HAN}]+[）)][、．.]?\s*(\S.*)$")
_NAMED = re.compile(
    r"\s*((?i:Part|Book|Title|Chapter|Appendix|Annex|Section|Sec\.|Article|Art\.|§§?))"
    r"\s*(\d+[a-z]?(?:\.\d+)*|[IVXLC]+\b|[A-Z]\b)(\s*[.:—–-]\s*|\s+|$)(.*)$"
)
_DECIMAL = re.compile(r"\s{0,3}(\d{1,2}(?:\.\d{1,3}){1,4})\.?[ \t　]+(.*)$")
_SINGLE = re.compile(r"\s{0,3}(?:(\d{1,2})([.、．]?)|([IVX]{1,5})(\.))[ \t　]*(.*)$")

_MARKS: Mapping[TextHeadingKind, tuple[str, ...]] = {
    "markdown": ("#", "===", "---"),
    "underlined": tuple(mark * 3 for mark in "~^\"'*+#"),
}
"""Marks without which a text has no heading of a kind; this check settles most chunks."""

_UNDERLINE_LEVELS: Mapping[str, int] = {"#": 0, "*": 0, "=": 1, "-": 2, "~": 3, "^": 3}
_HAN_UNIT_LEVELS: Mapping[str, int] = {"章": 2, "回": 2, "节": 3, "節": 3, "条": 4, "條": 4}
_NAMED_LEVELS: Mapping[str, int] = {
    "part": 1,
    "book": 1,
    "title": 1,
    "chapter": 2,
    "appendix": 2,
    "annex": 2,
    "section": 3,
    "sec.": 3,
}
_CLAUSE_LEVEL, _HAN_ITEM_LEVEL, _HAN_SUBITEM_LEVEL = 4, 5, 6


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading in a text.

    Attributes:
        start: index of its first character.
        level: its place in the hierarchy, where lower is higher; only comparisons of levels are
            meaningful. Markdown and setext levels as they are; 0 for titles underlined with `*` or
            `#`; 1 part, 2 chapter or "3 Title", 3 section or "3.2 Title" and one more for each
            further number, 4 article and §, 5 "一、", 6 "（二）".
        title: its text, without marks and underline.
    """

    start: int
    level: int
    title: str


@dataclass(frozen=True, slots=True)
class _Line:
    start: int
    text: str
    hidden: bool = False

    @property
    def blank(self) -> bool:
        return not self.text.strip()


_Rule = Callable[[list[_Line], int], "tuple[int, str] | None"]


def find_headings(text: str, kinds: Iterable[TextHeadingKind] = TEXT_HEADING_KINDS) -> list[Heading]:
    """Return the headings of a text, in order.

    Lines in fenced code and YAML front matter are skipped, and so are items directly followed by their
    sibling: they belong to a list or a table of contents.

    Args:
        text: a document or a part of one.
        kinds: the kinds of headings to look for.
    """
    rules = [_RULES[kind] for kind in kinds if any(mark in text for mark in _MARKS.get(kind, ("",)))]
    if not rules:
        return []
    lines = _lines(text)
    headings: list[Heading] = []
    for place, line in enumerate(lines):
        if not (line.hidden or line.blank):
            found = next((found for rule in rules if (found := rule(lines, place))), None)
            headings += [Heading(line.start, *found)] if found else []
    return headings


def _lines(text: str) -> list[_Line]:
    front = _FRONT_MATTER.match(text)
    hidden_to = front.end() if front else 0
    lines: list[_Line] = []
    start = 0
    for line in text.split("\n"):
        lines.append(_Line(start, line.rstrip("\r"), hidden=start < hidden_to))
        start += len(line) + 1
    return _hide_code(lines)


def _hide_code(lines: list[_Line]) -> list[_Line]:
    """Hide fenced code; a part that begins inside a block closes it with its first fence."""
    fences = _fences(lines)
    if not fences:
        return lines
    # A fence that names a language opens a block, so the blocks before it are closed.
    opens_at = next((number for number, (_, match) in enumerate(fences) if match[2]), None)
    if opens_at is None and len(fences) % 2:  # either side of the odd fence may be code
        return [_Line(line.start, line.text, hidden=True) for line in lines]
    inside = opens_at is not None and opens_at % 2 == 1
    at = {place for place, _ in fences}
    result: list[_Line] = []
    for place, line in enumerate(lines):
        inside ^= place in at
        result.append(_Line(line.start, line.text, line.hidden or inside or place in at))
    return result


def _fences(lines: list[_Line]) -> list[tuple[int, re.Match[str]]]:
    """Return the lines that open or close code; tildes below a line outside code underline a title."""
    fences: list[tuple[int, re.Match[str]]] = []
    inside_tildes = False
    for place, line in enumerate(lines):
        match = _FENCE.match(line.text)
        if match is None:
            continue
        if match[1][0] == "~":
            if not inside_tildes and place and not lines[place - 1].blank:
                continue
            inside_tildes = not inside_tildes
        fences.append((place, match))
    return fences


def _markdown(lines: list[_Line], place: int) -> tuple[int, str] | None:
    match = _ATX.match(lines[place].text)
    if match is None:
        return _titled(lines, place, "=-")
    # A "# line" beside another one: both are comments of a script.
    beside = lines[max(0, place - 1) : place] + lines[place + 1 : place + 2]
    is_comment = len(match[1]) == 1 and any(line.text.startswith(("# ", "#!")) for line in beside)
    return None if is_comment else (len(match[1]), match[2])


def _underlined(lines: list[_Line], place: int) -> tuple[int, str] | None:
    return _titled(lines, place, "~^\"'*+#")


def _titled(lines: list[_Line], place: int, marks: str) -> tuple[int, str] | None:
    """Return the title above an underline of one of these marks."""
    if place + 1 >= len(lines) or lines[place + 1].hidden:
        return None
    line, title = lines[place].text, lines[place].text.strip()
    match = _UNDERLINE.match(lines[place + 1].text)
    if match is None or match[1] not in marks or len(title) > MAX_TITLE or _UNDERLINE.match(line):
        return None
    if _QUOTE_TABLE_ITEM.match(line) or _SENTENCE_END.search(title) or "|" in title:
        return None
    needed = len(title) if _ITEM_NUMBER.match(line) else len(title) // 2
    if len(lines[place + 1].text.strip()) < needed:
        return None
    before = lines[place - 1] if place else None
    if before is not None and not (before.blank or before.hidden or _UNDERLINE.match(before.text)):
        return None
    return _UNDERLINE_LEVELS.get(match[1], 4), title


def _numbered(lines: list[_Line], place: int) -> tuple[int, str] | None:
    text = lines[place].text
    if not _NUMBERED.match(text):
        return None
    if len(text.strip()) > 4 * MAX_TITLE or _TABLE_OR_CONTENTS.search(text.strip()):
        return None
    if not _begins_block(lines, place):
        return None
    return _decimal(text) or _named(text) or _han_unit(text) or _item(lines, place)


def _begins_block(lines: list[_Line], place: int) -> bool:
    """Return True if a line does not continue the sentence on the line before."""
    if place == 0 or lines[place - 1].blank or lines[place - 1].hidden:
        return True
    before = lines[place - 1].text.rstrip()
    return bool(
        re.search(r"[.。!！?？:：;；][\"'”’」』）)\]]*$", before)
        or _UNDERLINE.match(before)
        or _ATX.match(before)
        or _han_unit(before)
        or _decimal(before)
    )


def _is_title(title: str, limit: int = MAX_TITLE) -> bool:
    return len(title) <= limit and _TITLE_START.match(title) is not None and not _SENTENCE_END.search(title)


def _decimal(text: str) -> tuple[int, str] | None:
    match = _DECIMAL.match(text)
    if match is None:
        return None
    title = match[2].strip()
    if not _is_title(title) or _QUANTITY.match(title):
        return None
    return 2 + match[1].count("."), text.strip()


def _named(text: str) -> tuple[int, str] | None:
    match = _NAMED.match(text)
    if match is None:
        return None
    name, separator, title = match[1].lower(), match[3], match[4].strip()
    clause = name.startswith(("art", "§"))
    if not (name.startswith("§") or match[1][0].isupper()):
        return None
    marked = bool(separator.strip())
    if title and not (clause and marked and _TITLE_START.match(title)) and not _is_title(title):
        return None
    return _NAMED_LEVELS.get(name, _CLAUSE_LEVEL), text.strip()


def _han_unit(text: str) -> tuple[int, str] | None:
    match = _HAN_UNIT.match(text)
    if match is None:
        return None
    unit, separator, title = match[1], match[2], match[3].strip()
    level = _HAN_UNIT_LEVELS.get(unit, 1)
    if not title or level == _CLAUSE_LEVEL:
        return (level, text.strip()) if separator or not title else None
    if _SENTENCE_END.search(title) or re.search(r"[。；;]", title) or len(title) > MAX_TITLE // 2:
        return None
    if not separator and (len(title) > 25 or re.search(r"[，,！!？?了课日]", title)):
        return None
    return level, text.strip()


def _item(lines: list[_Line], place: int) -> tuple[int, str] | None:
    """Match numbers that list items have too: a heading has no sibling beside it, and text after it."""
    text = lines[place].text
    style, level, title = _item_style(text)
    if style is None or not _is_title(title, MAX_TITLE // 2) or re.search(r"[。；;]", title):
        return None
    if style == "number" and not (_blank_at(lines, place - 1) and _blank_at(lines, place + 1)):
        return None
    before, after = _nearest(lines, place, -1), _nearest(lines, place, 1)
    beside = {_item_style(line)[0] for line in (before, after) if line is not None}
    return None if after is None or style in beside else (level, text.strip())


def _item_style(text: str) -> tuple[str | None, int, str]:
    """Return the style of an item's number, its level and its title."""
    if match := _HAN_ITEM.match(text):
        return "han", _HAN_ITEM_LEVEL, match[1].strip()
    if match := _HAN_SUBITEM.match(text):
        return "han-sub", _HAN_SUBITEM_LEVEL, match[1].strip()
    if match := _SINGLE.match(text):
        gap = match[2] or match[4] or (match.end() != match.start(5) and text[match.start(5) - 1].isspace())
        return ("number", 2, match[5].strip()) if gap else (None, 0, "")
    return None, 0, ""


def _blank_at(lines: list[_Line], place: int) -> bool:
    return place < 0 or (place < len(lines) and (lines[place].blank or lines[place].hidden))


def _nearest(lines: list[_Line], place: int, step: int) -> str | None:
    """Return the nearest line before or after that is not blank."""
    beside = range(place + step, len(lines) if step > 0 else -1, step)
    return next((lines[other].text for other in beside if not lines[other].blank), None)


_RULES: Mapping[TextHeadingKind, _Rule] = {
    "markdown": _markdown,
    "underlined": _underlined,
    "numbered": _numbered,
}

"""What a language model's reply says about the direction in which context is missing."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, cast

from llama_index_ext_ctxaug.directions.labels import DEFAULT_LABELS, LABELS_ALONE, Labels

Answer = Literal["previous", "next", "none", "both"]
"""What stands before the excerpt is needed, what stands after it, neither, or both."""

_THINKING = re.compile(r"<(think|thinking|reasoning|thought)>.*?(</\1>|\Z)", re.S | re.I)
_THINKING_END = re.compile(r"\A.*</(?:think|thinking|reasoning|thought)>", re.S | re.I)
_ECHO = re.compile(r"\n\s*(?:context|question|excerpt|passage|user|片段|上下文|问题|問題)\s*[:：]", re.I)
_JSON = re.compile(r"\{[^{}]*\}|\[[^\[\]{}]*\]")
_MARKER = re.compile(
    r"(?:\b(?:answer|decision|verdict|direction|prediction|result|conclusion|output|label|choice)\b"
    r"|答案|结论|結論|回答|判断|判斷|方向|结果|結果)"
    r"[\s\"'*_`]*(?:\bis\b|\bwould be\b|[:：=]|->|→|是|为|為)[\s:：]*",
    re.I,
)
_TRIM = " \t\r\n*_`#>~|$\"'“”‘’「」『』《》()（）[]【】{}<>.,;:!?。，；：！？、-–—→=\\"
_BULLET = re.compile(r"^\s*(?:[-*•]\s+|\(?\d{1,2}[.)]\s+|\\boxed\b)")
_BREAK = re.compile(
    r"[.;!?。；！？，,\n()（）:：|]|\s[-–—]+\s|[–—]|\b(?:but|because|since|while|whereas|although|so|as|rather|instead)\b"
    r"|但是|但|而是|因为|因為|由于|所以|因此",
    re.I,
)
_SENTENCE = re.compile(r"[.!?。！？\n]")
_AND = re.compile(
    r"[\s\"'*_`]*(?:and|as well as|&|\+|/|,|、|以及|和|与|與|及|跟|还有)*[\s\"'*_`]*(?:the)?\s*", re.I
)
_ALSO = re.compile(r"\band\b|\balso\b|\bas well\b|和|以及|也", re.I)
_OR = re.compile(r"\bor\b|还是|或", re.I)
_JOINT = re.compile(r"[\s\"'*_`]*(?:and|or|nor|&|/|、|和|与|與|及|跟|或者?)[\s\"'*_`]*(?:the)?\s*", re.I)
_OFFERED = re.compile(r"(?:\bor|或者?|还是)[\s\"'*_`]*\Z", re.I)
_ONLY = re.compile(r"\bnot (?:only|just)\b|不仅仅?|不只|不但|不光", re.I)
_AFTER_LABEL, _BEFORE_LABEL = 24, 32
"""How many characters may lie between a label and the word behind or before it that denies it."""


def parse_direction(answer: str, labels: Labels | None = None) -> Answer | None:
    """Read the verdict out of a reply.

    The last line that is a label and nothing else decides, with or without "Answer:" before it; else
    what "the answer is" names last; else the label that the reply begins with; else the labels in the
    text that are not denied, if they agree. Thinking in tags does not count.

    Args:
        answer: the reply as it came.
        labels: words of another language, by "previous", "next", "none", "both", and "not" for the
            words that deny a label; English and Chinese are always understood.

    Returns:
        The verdict, or None where the reply gives none, or several that contradict one another.
    """
    reader = _Reader(labels or {})
    text = unicodedata.normalize("NFKC", answer).replace("’", "'")
    text = _THINKING_END.sub("", _THINKING.sub("\n", text)).strip()
    return reader.verdict(reader.without_echo(text))


def parse_directions(answer: str, count: int, labels: Labels | None = None) -> list[Answer] | None:
    """Read a reply that gives a verdict for each of several numbered excerpts.

    Args:
        answer: the reply as it came: a JSON object by number, a JSON list, or a line for each number.
        count: number of excerpts, numbered from 1.
        labels: see `parse_direction`.

    Returns:
        The verdicts in order, or None where any of them is missing, unclear or given twice.
    """
    text = _THINKING_END.sub("", _THINKING.sub("\n", unicodedata.normalize("NFKC", answer)))
    found: list[tuple[int, str]] = _numbered_in_json(text) or [
        (int(match[1]), match[2])
        for match in re.finditer(r"^\W*(?:excerpt|片段|第)?\s*(\d+)\s*(?:段|个)?\W+(.+)$", text, re.M | re.I)
    ]
    verdicts = {number: parse_direction(said, labels) for number, said in found}
    if len(found) != count or set(verdicts) != set(range(1, count + 1)) or None in verdicts.values():
        return None
    return [cast(Answer, verdicts[number]) for number in range(1, count + 1)]


def _numbered_in_json(text: str) -> list[tuple[int, str]]:
    for match in _JSON.finditer(text):
        value = _loads(match[0])
        if isinstance(value, dict) and all(re.search(r"\d+", key) for key in value):
            return [(int(re.findall(r"\d+", key)[-1]), str(said)) for key, said in value.items()]
        if isinstance(value, list):
            return [(number, str(said)) for number, said in enumerate(value, start=1)]
    return []


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


class _Mention(NamedTuple):
    """A label in a sentence."""

    direction: Answer
    start: int
    end: int
    loud: bool
    denied: bool = False


class _Reader:
    """Reads texts with one set of labels."""

    def __init__(self, labels: Labels) -> None:
        self.words: dict[str, str] = {}
        self.alone: dict[str, str] = {}
        denials = [*DEFAULT_LABELS["not"], *labels.get("not", ())]
        for kind in ("previous", "next", "none", "both"):
            self.words.update((word.casefold(), kind) for word in DEFAULT_LABELS[kind])
            self.alone.update((word.casefold(), kind) for word in LABELS_ALONE[kind])
        for kind in ("previous", "next", "none", "both"):
            self.words.update((word.casefold(), kind) for word in labels.get(kind, ()))
        self.label = _pattern(self.words)
        self.denial = _pattern(denials)

    def without_echo(self, text: str) -> str:
        """The reply without a further case that the model made up behind its verdict."""
        echo = _ECHO.search(text)
        if echo and self._last_line(text[: echo.start()]):
            return text[: echo.start()]
        return text

    def verdict(self, text: str) -> Answer | None:
        """See `parse_direction`."""
        return (
            self._whole(text)
            or self._structured(text)
            or self._last_line(text)
            or self._behind_marker(text)
            or self._at_start(text)
            or self._in_prose(text)
        )

    def _whole(self, text: str) -> Answer | None:
        """The label that a text consists of, or BOTH for two labels joined by "and"."""
        text = _BULLET.sub("", text).strip(_TRIM).casefold()
        kind = self.words.get(text) or self.alone.get(text)
        if kind is None and "\n" not in text:
            mentions = list(self._mentions(text))
            fills = mentions and mentions[0].start == 0 and mentions[-1].end == len(text)
            if fills and all(_AND.fullmatch(text, a.end, b.start) for a, b in pairwise(mentions)):
                return self._agreed(mentions, text)
        return cast("Answer | None", kind)

    def _structured(self, text: str) -> Answer | None:
        for match in reversed(list(_JSON.finditer(text))):
            value = _loads(match[0])
            if isinstance(value, list):
                value = " and ".join(map(str, value)) or "none"
            elif isinstance(value, dict):
                value = _field(value)
            if isinstance(value, str) and (verdict := self._whole(value)):
                return verdict
        return None

    def _last_line(self, text: str) -> Answer | None:
        for line in reversed(text.splitlines()):
            marker = _MARKER.search(line)
            verdict = self._whole(line[marker.end() :] if marker else line)
            if verdict:
                return verdict
        return None

    def _behind_marker(self, text: str) -> Answer | None:
        for marker in reversed(list(_MARKER.finditer(text))):
            said = _SENTENCE.split(text[marker.end() :].lstrip(_TRIM), maxsplit=1)[0]
            verdict = self._at_start(said) or self._in_prose(said)
            if verdict:
                return verdict
        return None

    def _at_start(self, text: str) -> Answer | None:
        """The label that a reply begins with, where it is set off from what follows."""
        text = text.lstrip(_TRIM)
        first = self.label.match(text)
        if first is None:
            return None
        clause = _BREAK.search(text, first.end())
        if clause and clause[0] in "?？":
            return None
        head = text[: clause.start()] if clause else text
        verdict = self._whole(head)
        if verdict and clause and clause[0] in ",，" and self._joined_to_next(text[clause.start() :]):
            return None
        return verdict

    def _joined_to_next(self, rest: str) -> bool:
        joint = _AND.match(rest)
        return joint is not None and self.label.match(rest, joint.end()) is not None

    def _in_prose(self, text: str) -> Answer | None:
        """What the labels that are not denied agree on: in all of the text, or else in its last sentence."""
        mentions = [mention for start, end in _clauses(text) for mention in self._in_clause(text, start, end)]
        if any(mention.loud for mention in mentions) and not text.isupper():
            mentions = [mention for mention in mentions if mention.loud]
        affirmed = [mention for mention in mentions if not mention.denied]
        if not affirmed:
            return "none" if mentions else None
        ends = [mark.end() for mark in _SENTENCE.finditer(text, 0, affirmed[-1].start)]
        last = [mention for mention in affirmed if not ends or mention.start >= ends[-1]]
        return self._agreed(affirmed, text) or self._agreed(last, text)

    def _mentions(self, text: str, start: int = 0, end: int | None = None) -> Iterator[_Mention]:
        for match in self.label.finditer(text, start, len(text) if end is None else end):
            kind = cast(Answer, self.words[match[0].casefold()])
            loud = match[0].isascii() and match[0].isupper()
            yield _Mention(kind, match.start(), match.end(), loud)

    def _in_clause(self, text: str, start: int, end: int) -> list[_Mention]:
        """The labels of a clause. Beside a direction, "none" only denies, unless it is offered with "or"."""
        mentions = list(self._mentions(text, start, end))
        sides = [mention for mention in mentions if mention.direction != "none"]
        if not sides:
            return mentions
        offered = [m for m in mentions if m.direction == "none" and _OFFERED.search(text[start : m.start])]
        denials = [(m.start, m.end) for m in mentions if m.direction == "none" and m not in offered]
        denials += [match.span() for match in self.denial.finditer(_ONLY.sub(_blank, text), start, end)]
        denied = self._denied(sides, denials, text)
        return [side._replace(denied=side.start in denied) for side in sides] + offered

    def _denied(self, sides: list[_Mention], denials: list[tuple[int, int]], text: str) -> set[int]:
        """Where the denied directions of a clause start: what denies stands close before, or behind the last.

        A denial goes on to the direction that is joined to a denied one.
        """
        denied: set[int] = set()
        joined = [bool(_JOINT.fullmatch(text, a.end, b.start)) for a, b in pairwise(sides)]
        for place, side in enumerate(sides):
            before = any(0 <= side.start - end <= _BEFORE_LABEL for _, end in denials)
            if before or (place and joined[place - 1] and sides[place - 1].start in denied):
                denied.add(side.start)
        last = sides[-1]
        if any(0 <= start - last.end <= _AFTER_LABEL for start, _ in denials):
            for place in range(len(sides) - 1, -1, -1):
                denied.add(sides[place].start)
                if place and not joined[place - 1]:
                    break
        return denied

    def _agreed(self, mentions: Sequence[_Mention], text: str) -> Answer | None:
        """The one direction of all mentions; BOTH for both of them, joined by "and"."""
        kinds = {mention.direction for mention in mentions}
        if len(kinds) == 1:
            return mentions[0].direction
        if "none" in kinds:
            return None
        if "both" in kinds:
            return "both"
        gaps = [text[a.end : b.start] for a, b in pairwise(mentions)]
        if any(_OR.search(gap) for gap in gaps):
            return None
        return "both" if any(_AND.fullmatch(gap) or _ALSO.search(gap) for gap in gaps) else None


def _field(value: Mapping[str, Any]) -> str:
    """The field of a JSON object that states the verdict, as text."""
    flags = {str(key).casefold(): said for key, said in value.items() if isinstance(said, bool)}
    if flags:
        return " and ".join(key for key, said in flags.items() if said) or "none"
    texts = [said for said in value.values() if isinstance(said, str)]
    lists = [said for said in value.values() if isinstance(said, list)]
    marked = [said for key, said in value.items() if _MARKER.search(f"{key}:") and isinstance(said, str)]
    if lists and not marked:
        return " and ".join(map(str, lists[-1])) or "none"
    return (marked or texts or [""])[-1]


def _clauses(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each part of a text in which a denial reaches the labels."""
    start = 0
    for mark in _BREAK.finditer(text):
        yield start, mark.start()
        start = mark.end()
    yield start, len(text)


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _pattern(words: Mapping[str, str] | Sequence[str]) -> re.Pattern[str]:
    """Any of the words, the longest first; a word of letters is no part of a longer one."""
    alternatives = [
        re.escape(word) if re.search(r"[\u3040-\u9fff]", word) else rf"(?<![^\W_]){re.escape(word)}(?![^\W_])"
        for word in sorted(words, key=lambda word: (-len(word), word))
    ]
    return re.compile("|".join(alternatives), re.I)

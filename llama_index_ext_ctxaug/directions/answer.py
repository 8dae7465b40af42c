"""Read the direction in which context is missing from a language model's reply."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from itertools import chain, pairwise
from typing import Any, Literal, cast

from llama_index_ext_ctxaug.directions.labels import DEFAULT_LABELS, LABELS_ALONE, Labels

Answer = Literal["previous", "next", "none", "both"]
"""The side of an excerpt on which context is missing."""

_THINKING = re.compile(r"<(think|thinking|reasoning|thought)>.*?(</\1>|\Z)", re.S | re.I)
_THINKING_END = re.compile(r"\A.*</(?:think|thinking|reasoning|thought)>", re.S | re.I)
_ECHO = re.compile(r"\n\s*(?:context|question|excerpt|passage|user|片段|上下文|问题|問題)\s*:", re.I)
_JSON = re.compile(r"\{[^{}]*\}|\[[^\[\]{}]*\]")
_NUMBERED = re.compile(r"^\W*(?:excerpt|片段|第)?\s*(\d+)\s*(?:段|个)?\W+(.+)$", re.M | re.I)
_MARKER = re.compile(
    r"(?:\b(?:answer|decision|verdict|directions?|prediction|result|conclusion|output|label|choice)\b"
    r"|答案|结论|結論|回答|判断|判斷|方向|结果|結果)"
    r"[\s\"'*_`]*(?:\bis\b|\bwould be\b|[:=]|->|→|是|为|為)[\s:]*",
    re.I,
)
_EDGES = re.compile(r"\A[\W_]*(?:\d{1,2}[.)][\W_]+)?|[\W_]+\Z")
_SENTENCE = re.compile(r"[.!?。\n]")

# A reply is judged by its signs: p, n, o, b for the labels previous, next, none, both (capitals for labels
# in capitals), ! for a denial, & for "and", / for "or", one - for each character of other words.
_SIGNS = {"previous": "p", "next": "n", "none": "o", "both": "b"}
_MEANINGS = {sign: cast(Answer, kind) for kind, sign in _SIGNS.items()}
_SYNTAX = (
    ("/", r"\bor\b|还是|或者?"),
    ("&", r"\band\b|\bas well(?: as)?\b|\balso\b|[&+/、和与與及跟也]|以及|还有"),
    (",", r","),
    ("?", r"\?"),
    (".", r"[.!。\n]+"),
    ("|", r"[;():|–—]|\s-+\s|\b(?:but|because|since|while|whereas|although|so|as|rather|instead)\b"),
    ("|", r"但是|但|而是|因为|因為|由于|所以|因此"),
    ("", r"\bthe\b"),
    ("-", r"[^\W_\u3040-\u9fff]+|[^\s\"'*_`]"),
)
_WHOLE = re.compile(r"[pnob](?:[&,]*[pnob])*", re.I)
_HEAD = re.compile(r"[pnob](?:&*[pnob])*(?=[|.]|,(?!&*[pnob]))", re.I)
_CLAUSE = re.compile(r"[^|,?.]+")
_SIDES = re.compile(r"[pnb]", re.I)
_NOT_OFFERED = re.compile(r"(?<!/)o(?!/)", re.I)
_DENIED = re.compile(
    r"(?:!|(?<!/)o(?!/))[-&]{0,32}[pnb](?:[&/]+[pnb])*|[pnb](?:[&/]+[pnb])*-{0,24}(?:!|(?<!/)o(?!/))(?!.*[pnb])",
    re.I,
)


def parse_direction(answer: str, labels: Labels | None = None) -> Answer | None:
    """Read the verdict from a reply.

    The first of these decides: the last line that is nothing but a label, with or without "Answer:" before
    it; the words after "the answer is"; the label that begins the reply; the labels in the text that are
    not denied, if they agree. Thinking in tags is ignored.

    Args:
        answer: the reply.
        labels: words of another language, by "previous", "next", "none", "both", and "not" for the
            words that deny a label; English and Chinese are always understood.

    Returns:
        The verdict, or None where the reply has none, or several that contradict one another.
    """
    return _Reader(labels or {}).verdict(_visible(answer).replace("’", "'").strip())


def parse_directions(answer: str, count: int, labels: Labels | None = None) -> list[Answer] | None:
    """Read a reply that has a verdict for each of several numbered excerpts.

    Args:
        answer: the reply: a JSON object by number, a JSON list, or a line for each number.
        count: number of excerpts, numbered from 1.
        labels: see `parse_direction`.

    Returns:
        The verdicts in order, or None where any of them is missing, unclear or given twice.
    """
    text = _visible(answer)
    found = _numbered_in_json(text) or [(int(match[1]), match[2]) for match in _NUMBERED.finditer(text)]
    verdicts = {number: parse_direction(said, labels) for number, said in found}
    if len(found) != count or set(verdicts) != set(range(1, count + 1)) or None in verdicts.values():
        return None
    return [cast(Answer, verdicts[number]) for number in range(1, count + 1)]


def _visible(answer: str) -> str:
    """Drop the thinking of a reply."""
    return _THINKING_END.sub("", _THINKING.sub("\n", unicodedata.normalize("NFKC", answer)))


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
        return ""


def _stated(value: Any) -> str:
    """Return the verdict of a JSON value as text."""
    if isinstance(value, dict):
        if any(isinstance(said, bool) for said in value.values()):
            value = [key for key, said in value.items() if said is True]
        else:
            marked = [said for key, said in value.items() if _MARKER.search(f"{key}:")]
            value = (marked or [*value.values()] or [""])[-1]
    return " and ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


class _Reader:
    """Read texts with one set of labels."""

    def __init__(self, labels: Labels) -> None:
        self.signs = {
            word.casefold(): sign
            for source in (DEFAULT_LABELS, labels)
            for kind, sign in _SIGNS.items()
            for word in source.get(kind, ())
        }
        self.alone = {word.casefold(): kind for kind in _SIGNS for word in LABELS_ALONE[kind]}
        syntax = (
            ("", _any_of(self.signs)),
            ("-", r"\bnot (?:only|just)\b|不仅仅?|不只|不但|不光"),
            ("!", _any_of([*DEFAULT_LABELS["not"], *labels.get("not", ())])),
            *_SYNTAX,
        )
        self.by_group = [sign for sign, _ in syntax]
        self.token = re.compile("|".join(f"({pattern})" for _, pattern in syntax), re.I)

    def verdict(self, text: str) -> Answer | None:
        """See `parse_direction`."""
        head = _ECHO.split(text)[0]  # a model may make up a further case after its verdict
        if self._last_line(head):
            text = head
        said = (_SENTENCE.split(text[marker.end() :])[0] for marker in reversed([*_MARKER.finditer(text)]))
        return (
            self._whole(text)
            or _first(self._whole(_stated(_loads(match[0]))) for match in reversed([*_JSON.finditer(text)]))
            or self._last_line(text)
            or _first(self._in_prose(part) for part in chain(said, [text]))
        )

    def _whole(self, text: str) -> Answer | None:
        """Return the label that the text consists of; BOTH for two labels joined by "and"."""
        text = _EDGES.sub("", text)
        signs = self.signs_of(text)
        if _WHOLE.fullmatch(signs):
            return _agreed(signs.lower())
        return cast("Answer | None", self.alone.get(text.casefold()))

    def _last_line(self, text: str) -> Answer | None:
        return _first(self._whole(_MARKER.split(line)[-1]) for line in reversed(text.splitlines()))

    def _in_prose(self, text: str) -> Answer | None:
        """Return the label that begins the text; else the one that all labels, or the last ones, agree on."""
        signs = self.signs_of(_EDGES.sub("", text))
        if head := _HEAD.match(signs):
            return _agreed(head[0].lower())
        signs = _CLAUSE.sub(lambda clause: _without_denied(clause[0]), signs)
        if text.isupper() or not re.search(r"[PNOBX]", signs):
            signs = signs.lower()
        else:
            signs = re.sub(r"[pnobx]", "-", signs).lower()
        if not re.search(r"[pnob]", signs):
            return "none" if "x" in signs else None
        last = [part for part in re.split(r"[.?]", signs) if re.search(r"[pnob]", part)][-1]
        return _agreed(signs) or _agreed(last)

    def signs_of(self, text: str) -> str:
        """Return the signs of a text."""
        return "".join(map(self._sign, self.token.finditer(text)))

    def _sign(self, match: re.Match[str]) -> str:
        sign = self.by_group[(match.lastindex or 1) - 1]
        if match.lastindex == 1:
            sign = self.signs[match[0].casefold()]
            return sign.upper() if match[0].isascii() and match[0].isupper() else sign
        return sign * len(match[0]) if sign == "-" else sign


def _without_denied(clause: str) -> str:
    """Put x for denied directions. Beside a direction, "none" only denies, unless it is offered with "or"."""
    if not _SIDES.search(clause):
        return clause
    clause = _DENIED.sub(
        lambda run: _SIDES.sub(lambda side: "X" if side[0].isupper() else "x", run[0]), clause
    )
    return _NOT_OFFERED.sub("-", clause)


def _agreed(signs: str) -> Answer | None:
    """Return the one direction of all labels; BOTH for both of them, joined by "and"."""
    places = [match.start() for match in re.finditer(r"[pnob]", signs)]
    kinds = {signs[place] for place in places}
    if len(kinds) == 1:
        return _MEANINGS[kinds.pop()]
    gaps = [signs[first + 1 : second] for first, second in pairwise(places)]
    if "o" in kinds or ("b" not in kinds and any("/" in gap for gap in gaps)):
        return None
    joined = any("&" in gap or not gap.strip(",") for gap in gaps)
    return "both" if "b" in kinds or joined else None


def _first(verdicts: Iterable[Answer | None]) -> Answer | None:
    return next((verdict for verdict in verdicts if verdict), None)


def _any_of(words: Iterable[str]) -> str:
    """Match any of the words, the longest first; a word of letters is no part of a longer one."""
    return "|".join(
        re.escape(word) if re.search(r"[\u3040-\u9fff]", word) else rf"(?<![^\W_]){re.escape(word)}(?![^\W_])"
        for word in sorted(words, key=lambda word: (-len(word), word))
    )

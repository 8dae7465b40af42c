"""The order of the pages of a file: PDF readers make a document of each page."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from llama_index_ext_ctxaug.structure.order_keys import File, OrderKeys, whole_number

_Number = tuple[int, str]
"""A page number, and the letter of a page that was inserted after it."""

_Parsed = tuple[Hashable, _Number]
"""The numbering that a label belongs to, and its number there."""

_ARABIC = re.compile(r"(\D*)(\d+)([a-z]?)(.*)")
_ROMAN = re.compile(r"m{0,3}(cm|cd|d?c{0,3})(xc|xl|l?x{0,3})(ix|iv|v?i{0,3})")
_ROMAN_VALUES = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}
_HAN = re.compile(r"(\D*?)([〇零一二两三四五六七八九十百千]+)(\D*)")
_HAN_DIGITS = {sign: value for value, sign in enumerate("〇一二三四五六七八九")} | {"零": 0, "两": 2}
_HAN_UNITS = {"十": 10, "百": 100, "千": 1000}


@dataclass(frozen=True, slots=True)
class PageOrder:
    """The order of the pages of a file, by their indexes.

    Attributes:
        places: the pages in reading order.
        followers: the page after each page, as the labels confirm it.
        guessed: the page after each other page, if only the order in which they were given says so and
            no label contradicts it.
        repeated: two pages with the same label; None where there are none.
    """

    places: list[int]
    followers: dict[int, int] = field(default_factory=dict)
    guessed: dict[int, int] = field(default_factory=dict)
    repeated: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Pages:
    """The documents that are the pages of a file.

    Attributes:
        ids: their ids, in the order in which they were given.
        order: their order.
        starts_late: True if the first page has a number above 1.
        ends_early: True if a total of pages in metadata is above the last number.
        differing: metadata that may tell files apart, as it does not have one value for all pages and not
            another one for each: for each key the values of the pages.
    """

    ids: list[str]
    order: PageOrder
    starts_late: bool
    ends_early: bool
    differing: Mapping[str, Sequence[str | None]]

    def difference(self, first: str, second: str) -> str | None:
        """Return a key of `differing` in which two pages differ."""
        one, other = self.ids.index(first), self.ids.index(second)
        return next((key for key, values in self.differing.items() if values[one] != values[other]), None)


Documents = Mapping[str, Mapping[str, Any]]
"""The metadata of documents by id, in the order of the reader."""


def files_of(documents: Documents, keys: OrderKeys) -> dict[File, list[str]]:
    """Return the ids of the documents of each file."""
    files: dict[File, list[str]] = {}
    for id_, metadata in documents.items():
        if (file := keys.file(metadata)) is not None:
            files.setdefault(file, []).append(id_)
    return files


def pages_of(ids: list[str], metadata: Documents, keys: OrderKeys) -> Pages:
    """Order the documents of a file.

    Args:
        ids: ids of its documents.
        metadata: the metadata of these documents at least.
        keys: metadata keys that give the page of a document.
    """
    documents = [metadata[id_] for id_ in ids]
    labels = [metadata.get(keys.page) for metadata in documents]
    order = order_pages(labels)
    first, last = (_page_number(labels[order.places[place]]) for place in (0, -1))
    total = whole_number(documents[0].get("total_pages"))
    return Pages(
        ids,
        order,
        starts_late=first is not None and first > 1,
        ends_early=first is not None and last is not None and last + (first == 0) < (total or 0),
        differing=dict(_differing(ids, documents, keys)),
    )


def _differing(
    ids: Sequence[str], documents: Sequence[Mapping[str, Any]], keys: OrderKeys
) -> Iterator[tuple[str, list[str | None]]]:
    for key in dict.fromkeys(key for metadata in documents for key in metadata):
        values = [keys.identifier(key, metadata.get(key)) for metadata in documents]
        if 1 < len(set(values)) < max(3, len(values)) and values != list(ids):
            yield key, values


def order_pages(labels: Sequence[Any]) -> PageOrder:
    """Order the pages of a file.

    Labels that are all of one numbering (1, 2, 2a, 10; A-1, A-2; i, ii, iii; 一, 二, 三) give the order.
    Otherwise it is the order in which the pages were given, confirmed between consecutive numbers.

    Args:
        labels: labels of the pages, in the order of the reader.
    """
    texts = [_normalized(label) for label in labels]
    given = list(range(len(texts)))
    first: dict[str, int] = {}
    for place, text in enumerate(texts):
        if text and first.setdefault(text, place) != place:
            return PageOrder(given, repeated=(first[text], place))
    for parse in _NUMBERINGS:
        parsed = [one for text in texts if (one := parse(text)) is not None]
        if len(parsed) < len(texts) or len({kind for kind, _ in parsed}) != 1:
            continue
        # One-letter labels alone are no Roman numerals: C and D follow A and B.
        if parse is not _roman or max(map(len, texts)) > 1:
            places = sorted(given, key=lambda place: parsed[place][1])
            return PageOrder(places, dict(pairwise(places)))
    return _mixed(texts)


def _mixed(texts: Sequence[str]) -> PageOrder:
    """Order pages of several numberings, or of none."""
    places: dict[_Parsed, int] = {}
    highest: dict[Hashable, _Number] = {}
    contradicted = False
    for place, text in enumerate(texts):
        one = _parsed(text)
        if one is not None:
            places[one] = place
            contradicted |= one[1] < highest.get(one[0], one[1])
            highest[one[0]] = one[1]
    followers = {
        places[one]: places[other]
        for one, other in pairwise(sorted(places, key=lambda one: (str(one[0]), one[1])))
        if one[0] == other[0] and other[1][0] - one[1][0] <= 1
    }
    given = list(range(len(texts)))
    taken = set(followers.values())
    free = ((one, other) for one, other in pairwise(given) if one not in followers and other not in taken)
    return PageOrder(given, followers, {} if contradicted else dict(free))


def _page_number(label: Any) -> int | None:
    parsed = _parsed(_normalized(label))
    return None if parsed is None else parsed[1][0]


def _parsed(text: str) -> _Parsed | None:
    if text in ("c", "d", "l", "m"):  # letters rather than numerals
        return None
    return next((one for parse in _NUMBERINGS if (one := parse(text))), None)


def _normalized(label: Any) -> str:
    number = whole_number(label)
    return str(number) if number is not None else "" if label is None else str(label).strip().lower()


def _arabic(text: str) -> _Parsed | None:
    match = _ARABIC.fullmatch(text)
    return (("arabic", match[1], match[4]), (int(match[2]), match[3])) if match else None


def _roman(text: str) -> _Parsed | None:
    if not text or not _ROMAN.fullmatch(text):
        return None
    values = [_ROMAN_VALUES[letter] for letter in text]
    signed = (-one if one < after else one for one, after in zip(values, [*values[1:], 0], strict=True))
    return "roman", (sum(signed), "")


def _han(text: str) -> _Parsed | None:
    match = _HAN.fullmatch(text)
    if match is None:
        return None
    value = digit = 0
    for sign in match[2]:
        if sign in _HAN_UNITS:
            value, digit = value + (digit or 1) * _HAN_UNITS[sign], 0
        else:
            digit = digit * 10 + _HAN_DIGITS[sign]
    return ("han", match[1], match[3]), (value + digit, "")


_NUMBERINGS: tuple[Callable[[str], _Parsed | None], ...] = (_arabic, _roman, _han)

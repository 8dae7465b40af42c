"""Windows of neighboring hits made one text: where each stands in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

from llama_index_ext_ctxaug.passages.joining import without_spaces
from llama_index_ext_ctxaug.passages.shared_text import MIN_OVERLAP, common_length

MAX_GAP = 2
"""Most characters of white space between windows that touch; none in scripts without spaces."""

MAX_ADDED = 32
"""Most characters that a parser adds to a window, such as a space between each two sentences."""


@dataclass(frozen=True, slots=True)
class MetadataWindow:
    """The text around a hit.

    Attributes:
        text: the window.
        own: the hit's own text.
        start: first character of the hit's own text in the document; None if unknown.
        previous_id: what the hit's PREVIOUS names.
        next_id: what the hit's NEXT names.
        node_id: the hit's id.
    """

    text: str
    own: str
    node_id: str
    start: int | None = None
    previous_id: str | None = None
    next_id: str | None = None

    @property
    def own_place(self) -> int | None:
        """Where the hit's own text stands in the window; None where that is not clear."""
        own = self.own.strip()
        place = self.text.find(own) if own else -1
        if place < 0 or self.text.find(own, place + 1) >= 0:
            return None
        return place

    @property
    def own_start(self) -> int | None:
        """First character of the hit's own text, without white space before it, in the document."""
        return None if self.start is None else self.start + len(self.own) - len(self.own.lstrip())

    @property
    def document_place(self) -> int | None:
        """First character of the window in the document, if the window is a slice of it."""
        place, start = self.own_place, self.own_start
        return None if place is None or start is None else start - place


class Placed(NamedTuple):
    """A window in the text of a group: its number, and its first character there."""

    number: int
    start: int


def merge_windows(windows: Sequence[MetadataWindow]) -> list[list[Placed]]:
    """Group the windows of one document that overlap or touch.

    Where all hits have offsets, their order is the reading order, and windows that touch (at most
    `MAX_GAP` characters between them) are merged too. Else the windows are put in line by their own texts,
    those first that share most.

    Args:
        windows: the windows, in any order.

    Returns:
        The groups, each in reading order; every window stands in exactly one of them.
    """
    if all(window.start is not None for window in windows):
        order = sorted(range(len(windows)), key=lambda number: (windows[number].start or 0, number))
        return _in_line(windows, order)
    return _assembled(windows)


def _in_line(windows: Sequence[MetadataWindow], order: Sequence[int]) -> list[list[Placed]]:
    groups: list[list[Placed]] = []
    reach = 0  # number of the window that ends last in the group
    for number in order:
        if groups:
            before = next(placed for placed in groups[-1] if placed.number == reach)
            place = _place(windows[reach], windows[number])
            if place is not None:
                groups[-1].append(Placed(number, before.start + place))
                if place + len(windows[number].text) > len(windows[reach].text):
                    reach = number
                continue
        groups.append([Placed(number, 0)])
        reach = number
    return groups


def _assembled(windows: Sequence[MetadataWindow]) -> list[list[Placed]]:
    places = {
        (first, second): place
        for first, second in permutations(range(len(windows)), 2)
        if (place := _place(windows[first], windows[second])) is not None
    }
    inside = _contained(windows, places)
    whole = [number for number in range(len(windows)) if number not in inside]
    groups = _chained(windows, whole, places)
    for number, container in inside.items():
        group, start = next((g, placed.start) for g in groups for placed in g if placed.number == container)
        group.append(Placed(number, start + places[container, number]))
    for group in groups:
        group.sort(key=lambda placed: (placed.start + (windows[placed.number].own_place or 0), placed.number))
    return groups


def _contained(windows: Sequence[MetadataWindow], places: Mapping[tuple[int, int], int]) -> dict[int, int]:
    """Windows that lie in another one, and the largest of those; the larger ones first."""
    inside: dict[int, int] = {}
    by_size = sorted(range(len(windows)), key=lambda number: (-len(windows[number].text), number))
    for rank, number in enumerate(by_size):
        size = len(windows[number].text)
        for larger in by_size[:rank]:
            place = places.get((larger, number))
            if place is not None and place + size <= len(windows[larger].text):
                inside[number] = larger
                break
    return inside


def _chained(
    windows: Sequence[MetadataWindow], numbers: Sequence[int], places: Mapping[tuple[int, int], int]
) -> list[list[Placed]]:
    """Put each window behind the one that it shares most with."""
    pairs = sorted(
        (place - len(windows[first].text), first, second)
        for (first, second), place in places.items()
        if first in numbers and second in numbers
    )
    followers: dict[int, int] = {}
    first_of = {number: number for number in numbers}
    last_of = dict(first_of)
    for _, first, second in pairs:
        if first in followers or first_of[second] != second or first_of[first] == second:
            continue
        followers[first] = second
        start, end = first_of[first], last_of[second]
        first_of[second] = first_of[end] = start
        last_of[start] = end
    followed = set(followers.values())
    return [list(_line(n, followers, places)) for n in numbers if n not in followed]


def _line(
    number: int, followers: Mapping[int, int], places: Mapping[tuple[int, int], int]
) -> Iterator[Placed]:
    start = 0
    yield Placed(number, start)
    while number in followers:
        start += places[number, followers[number]]
        number = followers[number]
        yield Placed(number, start)


def _place(first: MetadataWindow, second: MetadataWindow) -> int | None:
    """Where in the first window's text the second begins; None where they have nothing in common."""
    place = _place_by_offsets(first, second)
    if place is not None:
        return place
    place = _place_by_text(first, second)
    return place if place is not None and _may_stand(first, second, place) else None


def _may_stand(first: MetadataWindow, second: MetadataWindow, place: int) -> bool:
    """Whether offsets allow what equal text suggests: phrases that come again are far apart."""
    if first.start is None or second.start is None:
        return True
    if abs(second.start - first.start) > len(first.text) + len(second.text):
        return False
    start, other = first.document_place, second.document_place
    return start is None or other is None or abs(other - start - place) <= MAX_ADDED


def _place_by_offsets(first: MetadataWindow, second: MetadataWindow) -> int | None:
    start, other = first.document_place, second.document_place
    if start is None or other is None:
        return None
    place = other - start
    if not 0 <= place <= len(first.text) + MAX_GAP:
        return None
    if place > len(first.text) and without_spaces(first.text[-1:]) and without_spaces(second.text[:1]):
        return None  # no space is stripped there, and two characters are a sentence
    shared = first.text[place : place + len(second.text)]
    return place if second.text.startswith(shared) else None


def _place_by_text(first: MetadataWindow, second: MetadataWindow) -> int | None:
    shared = common_length(first.text, second.text)
    if shared:
        return len(first.text) - shared
    if len(second.text) >= MIN_OVERLAP and second.text in first.text:
        return first.text.index(second.text)
    if second.node_id == first.next_id or first.node_id == second.previous_id:
        # Each of two linked hits stands in the window of the other, however short they are.
        return _place_of_short(first.text, second.text)
    return None


def _place_of_short(first: str, second: str) -> int | None:
    for shared in range(min(MIN_OVERLAP, len(first), len(second)), 0, -1):
        if first.endswith(second[:shared]):
            return len(first) - shared
    return None

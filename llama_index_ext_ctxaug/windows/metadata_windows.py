"""Find which windows of one document overlap, and their places in the merged text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

from llama_index_ext_ctxaug.passages.separators import unspaced
from llama_index_ext_ctxaug.passages.shared_text import MIN_OVERLAP, common_length

MAX_GAP = 2
"""Maximum characters of white space between windows that touch; none in scripts without spaces."""

MAX_ADDED = 32
"""Maximum characters that a parser adds to a window, such as a space between each two sentences."""


@dataclass(frozen=True, slots=True)
class MetadataWindow:
    """The text around a hit.

    Attributes:
        text: the window.
        own: the hit's own text.
        start: first character of the hit's own text in the document; None if unknown.
        previous_id: id under the hit's PREVIOUS.
        next_id: id under the hit's NEXT.
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
        """Place of the hit's own text in the window; None if it is not there once."""
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
        """First character of the window in the document, if the window is a slice of it; else None."""
        place, start = self.own_place, self.own_start
        return None if place is None or start is None else start - place


class Placed(NamedTuple):
    """A window in the text of a group: its number, and its first character there."""

    number: int
    start: int


_Groups = Mapping[int, tuple[MetadataWindow, list[Placed]]]
"""Merged windows by number, each with the windows in it."""


def merge_windows(windows: Sequence[MetadataWindow]) -> list[list[Placed]]:
    """Group the windows of one document that overlap or touch.

    If all hits have offsets, these give the reading order, and windows that touch (at most `MAX_GAP`
    characters between them) are merged too. Otherwise the texts give it: windows that share most are
    merged first.

    Args:
        windows: the windows, in any order.

    Returns:
        The groups, each in reading order; every window is in exactly one of them.
    """
    if all(window.start is not None for window in windows):
        order = sorted(range(len(windows)), key=lambda number: (windows[number].start or 0, number))
        return _in_line(windows, order)
    return _assembled(windows)


def _in_line(windows: Sequence[MetadataWindow], order: Sequence[int]) -> list[list[Placed]]:
    groups: list[list[Placed]] = []
    reach = 0  # the window that ends last in the group
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
    """Merge two by two, those first that share most, until no two share text."""
    groups = {number: (window, [Placed(number, 0)]) for number, window in enumerate(windows)}
    places = _places(groups, permutations(groups, 2))
    while places:
        first, second = min(places, key=lambda pair: (-_shared(groups, pair, places[pair]), pair))
        place = places[first, second]
        (one, members), (two, others) = groups[first], groups.pop(second)
        moved = [Placed(number, start + place) for number, start in others]
        groups[first] = (_merged(one, two, place), [*members, *moved])
        places = {pair: place for pair, place in places.items() if not {first, second} & set(pair)}
        rest = [number for number in groups if number != first]
        places |= _places(groups, [*((first, other) for other in rest), *((other, first) for other in rest)])
    for _, group in groups.values():
        group.sort(key=lambda placed: (placed.start + (windows[placed.number].own_place or 0), placed.number))
    return [group for _, group in groups.values()]


def _places(groups: _Groups, pairs: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    found = ((pair, _place(groups[pair[0]][0], groups[pair[1]][0])) for pair in pairs)
    return {pair: place for pair, place in found if place is not None}


def _shared(groups: _Groups, pair: tuple[int, int], place: int) -> int:
    first, second = (groups[number][0].text for number in pair)
    return min(len(first) - place, len(second))


def _merged(first: MetadataWindow, second: MetadataWindow, place: int) -> MetadataWindow:
    added = second.text[len(first.text) - place :]
    next_id = second.next_id if added else first.next_id
    return MetadataWindow(
        first.text + added, own="", node_id="", previous_id=first.previous_id, next_id=next_id
    )


def _place(first: MetadataWindow, second: MetadataWindow) -> int | None:
    """Return where in the first window's text the second begins; None if they share nothing."""
    place = _place_by_offsets(first, second)
    if place is not None:
        return place
    place = _place_by_text(first, second)
    return place if place is not None and _may_stand(first, second, place) else None


def _may_stand(first: MetadataWindow, second: MetadataWindow, place: int) -> bool:
    """Return False if offsets contradict an overlap by text: repeated phrases are far apart."""
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
    if place > len(first.text) and unspaced(first.text[-1:]) and unspaced(second.text[:1]):
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
        # Each of two linked hits is in the window of the other, however short it is.
        return _place_of_short(first.text, second.text)
    return None


def _place_of_short(first: str, second: str) -> int | None:
    for shared in range(min(MIN_OVERLAP, len(first), len(second)), 0, -1):
        if first.endswith(second[:shared]):
            return len(first) - shared
    return None

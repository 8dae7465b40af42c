"""Windows of neighboring hits made one text."""

from __future__ import annotations

import itertools

import pytest

from llama_index_ext_ctxaug.passages.window_merging import Placed, Window, merge_windows

SENTENCES = [f"Part {n} says {n * n}. " for n in range(12)]
TEXT = "".join(SENTENCES)


def window(place: int, size: int = 1, *, offsets: bool = True, separator: str = "") -> Window:
    """The window of a sentence of the text."""
    around = SENTENCES[max(0, place - size) : place + size + 1]
    start = TEXT.index(SENTENCES[place]) if offsets else None
    return Window(text=separator.join(around), own=SENTENCES[place], node_id=str(place), start=start)


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("separator", ["", " "])
def test_places(offsets: bool, separator: str) -> None:
    """Windows that overlap are one group, whatever their order, each at the place where its text stands."""
    windows = [window(n, offsets=offsets, separator=separator) for n in (4, 5, 6)]
    for order in itertools.permutations(range(3)):
        (group,) = merge_windows([windows[n] for n in order])
        assert [order[placed.number] for placed in group] == [0, 1, 2]
        whole = separator.join(SENTENCES[3:8])
        for placed in group:
            assert whole.startswith(windows[order[placed.number]].text, placed.start)


@pytest.mark.parametrize("offsets", [True, False])
def test_contained(offsets: bool) -> None:
    """A window inside another one, as at the edge of a document, does not end the chain behind it."""
    windows = [window(n, 3, offsets=offsets) for n in (0, 2, 7)]
    (group,) = merge_windows(windows)
    assert [placed.number for placed in group] == [0, 1, 2]
    assert group[1].start == 0


def test_apart() -> None:
    """Windows with a sentence between them are groups of their own, in reading order."""
    groups = merge_windows([window(8), window(2)])
    assert groups == [[Placed(1, 0)], [Placed(0, 0)]]


def test_touching() -> None:
    """Windows that touch are one group where offsets say so, and two where nothing does."""
    assert merge_windows([window(2), window(5)]) == [[Placed(0, 0), Placed(1, len(window(2).text))]]
    assert len(merge_windows([window(2, offsets=False), window(5, offsets=False)])) == 2


def test_phrase_that_comes_again() -> None:
    """Windows that end and begin alike by chance are not merged where offsets put them far apart."""
    phrase = "See the manual for more."
    first = Window(text=f"One. {phrase}", own="One.", node_id="a", start=0)
    second = Window(text=f"{phrase} Two.", own="Two.", node_id="b", start=5000)
    assert len(merge_windows([first, second])) == 2
    near = Window(text=f"{phrase} Two.", own="Two.", node_id="b", start=70)
    assert len(merge_windows([first, near])) == 2


def test_ambiguous_own_text() -> None:
    """A sentence that its window has twice tells no place; the windows' texts do."""
    first = Window(text="好。好。今天天气很好我们去公园散步。", own="好。", node_id="a", start=2)
    second = Window(text="今天天气很好我们去公园散步。好。好。", own="好。", node_id="b", start=18)
    (group,) = merge_windows([first, second])
    assert group == [Placed(0, 0), Placed(1, 4)]


def test_none() -> None:
    """No windows make no groups."""
    assert merge_windows([]) == []

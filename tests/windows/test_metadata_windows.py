"""Merging the windows of neighboring hits into one text."""

from __future__ import annotations

import itertools

import pytest

from llama_index_ext_ctxaug.windows.metadata_windows import MetadataWindow, Placed, merge_windows

SENTENCES = [f"Part {n} says {n * n}. " for n in range(12)]
TEXT = "".join(SENTENCES)


def window(place: int, size: int = 1, *, offsets: bool = True, separator: str = "") -> MetadataWindow:
    """Return the window of a sentence of the text."""
    around = SENTENCES[max(0, place - size) : place + size + 1]
    start = TEXT.index(SENTENCES[place]) if offsets else None
    return MetadataWindow(text=separator.join(around), own=SENTENCES[place], node_id=str(place), start=start)


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("separator", ["", " "])
def test_places(offsets: bool, separator: str) -> None:
    """Overlapping windows are one group, in any order, each at the place of its text."""
    windows = [window(n, offsets=offsets, separator=separator) for n in (4, 5, 6)]
    for order in itertools.permutations(range(3)):
        (group,) = merge_windows([windows[n] for n in order])
        assert [order[placed.number] for placed in group] == [0, 1, 2]
        whole = separator.join(SENTENCES[3:8])
        for placed in group:
            assert whole.startswith(windows[order[placed.number]].text, placed.start)


@pytest.mark.parametrize("offsets", [True, False])
def test_contained(offsets: bool) -> None:
    """A window inside another one, as at the edge of a document, does not end the chain after it."""
    windows = [window(n, 3, offsets=offsets) for n in (0, 2, 7)]
    (group,) = merge_windows(windows)
    assert [placed.number for placed in group] == [0, 1, 2]
    assert group[1].start == 0


def test_apart() -> None:
    """Windows with a sentence between them are separate groups, in reading order."""
    groups = merge_windows([window(8), window(2)])
    assert groups == [[Placed(1, 0)], [Placed(0, 0)]]


def test_touching() -> None:
    """Touching windows are one group if offsets show it, and two otherwise."""
    assert merge_windows([window(2), window(5)]) == [[Placed(0, 0), Placed(1, len(window(2).text))]]
    assert len(merge_windows([window(2, offsets=False), window(5, offsets=False)])) == 2


@pytest.mark.parametrize("gap", [0, 1, 2, 3])
def test_white_space_between(gap: int) -> None:
    """Windows with two characters between them touch, and with three they do not."""
    first = MetadataWindow(text="First.", own="First.", node_id="a", start=0)
    second = MetadataWindow(text="Second.", own="Second.", node_id="b", start=6 + gap)
    apart = [[Placed(0, 0)], [Placed(1, 0)]]
    assert merge_windows([first, second]) == (apart if gap > 2 else [[Placed(0, 0), Placed(1, 6 + gap)]])


def test_a_sentence_of_two_characters_between() -> None:
    """Windows with a short sentence between them, in a script without spaces, are not joined over it."""
    first = MetadataWindow(text="他来了。", own="他来了。", node_id="a", start=0)
    second = MetadataWindow(text="走吧。", own="走吧。", node_id="b", start=6)  # "好。" is between them
    assert merge_windows([first, second]) == [[Placed(0, 0)], [Placed(1, 0)]]
    touching = MetadataWindow(text="走吧。", own="走吧。", node_id="b", start=4)
    assert merge_windows([first, touching]) == [[Placed(0, 0), Placed(1, 4)]]
    korean = MetadataWindow(text="안녕하세요.", own="안녕하세요.", node_id="a", start=0)
    spaced = MetadataWindow(text="반갑습니다.", own="반갑습니다.", node_id="b", start=7)
    assert merge_windows([korean, spaced]) == [[Placed(0, 0), Placed(1, 7)]]


def test_window_inside_another() -> None:
    """A window inside the previous one does not hide that one from the next."""
    (group,) = merge_windows([window(4, 4), window(5, 0), window(9, 1)])
    assert [placed.number for placed in group] == [0, 1, 2]
    assert [placed.start for placed in group] == [0, TEXT.index(SENTENCES[5]), TEXT.index(SENTENCES[8])]


@pytest.mark.parametrize("start", [40, 5000])
def test_ambiguous_windows_far_apart(start: int) -> None:
    """Equal text does not merge windows if their sentences are known to be too far apart."""
    phrase = "See the manual for more."
    first = MetadataWindow(text=f"Yes. Yes. {phrase}", own="Yes.", node_id="a", start=0)
    second = MetadataWindow(text=f"{phrase} No. No.", own="No.", node_id="b", start=start)
    assert len(merge_windows([first, second])) == (1 if start == 40 else 2)


def test_own_text_that_begins_with_white_space() -> None:
    """A window is placed where its sentence begins, not at the white space before it."""
    first = MetadataWindow(text="One two.", own="One two.", node_id="a", start=0)
    second = MetadataWindow(text="Three.", own="\n\nThree.", node_id="b", start=8)
    assert merge_windows([first, second]) == [[Placed(0, 0), Placed(1, 10)]]


@pytest.mark.parametrize(("next_id", "previous_id"), [("b", None), (None, "a")])
def test_short_windows_by_either_link(next_id: str | None, previous_id: str | None) -> None:
    """Windows that share less than twelve characters are merged if one of them names the other."""
    first = MetadataWindow(text="好。走吧。", own="好。", node_id="a", next_id=next_id)
    second = MetadataWindow(text="走吧。来。", own="走吧。", node_id="b", previous_id=previous_id)
    assert merge_windows([second, first]) == [[Placed(1, 0), Placed(0, 2)]]
    unlinked = [MetadataWindow(text=w.text, own=w.own, node_id=w.node_id) for w in (first, second)]
    assert len(merge_windows(unlinked)) == 2


def test_windows_that_begin_as_the_other_ends() -> None:
    """Two windows, each of which could follow the other, are both kept."""
    opening, ending = "This is how it starts.", "And so it came to an end."
    first = MetadataWindow(text=f"{opening} One. {ending}", own="One.", node_id="a")
    second = MetadataWindow(text=f"{ending} Two. {opening}", own="Two.", node_id="b")
    (group,) = merge_windows([first, second])
    assert sorted(placed.number for placed in group) == [0, 1]


def test_window_inside_a_window_inside_another() -> None:
    """Without offsets, each window is placed at its text in the largest window that contains it."""
    windows = [window(n, size, offsets=False) for n, size in ((5, 0), (5, 3), (5, 1))]
    (group,) = merge_windows(windows)
    assert {placed.number for placed in group} == {0, 1, 2}
    for number, start in group:
        assert windows[1].text.startswith(windows[number].text, start)


def test_phrase_that_comes_again() -> None:
    """Windows that match by chance are not merged if offsets put them far apart."""
    phrase = "See the manual for more."
    first = MetadataWindow(text=f"One. {phrase}", own="One.", node_id="a", start=0)
    second = MetadataWindow(text=f"{phrase} Two.", own="Two.", node_id="b", start=5000)
    assert len(merge_windows([first, second])) == 2
    near = MetadataWindow(text=f"{phrase} Two.", own="Two.", node_id="b", start=70)
    assert len(merge_windows([first, near])) == 2


def test_ambiguous_own_text() -> None:
    """A sentence that its window contains twice gives no place; the windows' texts do."""
    first = MetadataWindow(text="好。好。今天天气很好我们去公园散步。", own="好。", node_id="a", start=2)
    second = MetadataWindow(text="今天天气很好我们去公园散步。好。好。", own="好。", node_id="b", start=18)
    (group,) = merge_windows([first, second])
    assert group == [Placed(0, 0), Placed(1, 4)]


def test_none() -> None:
    """No windows make no groups."""
    assert merge_windows([]) == []

"""The order of the pages of a file, from their labels."""

from __future__ import annotations

import random
from typing import Any

import pytest

from llama_index_ext_ctxaug.structure.pages import order_pages


def in_order(labels: list[Any]) -> list[Any]:
    """Return the labels in reading order."""
    return [labels[place] for place in order_pages(labels).places]


@pytest.mark.parametrize(
    "labels",
    [
        ["1", "2", "2a", "2b", "3", "10"],
        [1, 2.0, "3", "04"],
        ["A-9", "A-10", "A-11"],
        ["page 1 of 3", "page 2 of 3", "page 3 of 3"],
        ["i", "ii", "iv", "v", "ix", "x", "xl"],
        ["I", "II", "V"],
        ["一", "二", "九", "十", "十一", "二十", "二十三", "一百零一"],
        ["第一页", "第二页", "第十二页"],
    ],
    ids=str,
)
def test_one_numbering_gives_the_order(labels: list[Any]) -> None:
    """Pages with labels of one numbering are in its order, whatever the order of the reader."""
    given = list(labels)
    random.Random(7).shuffle(given)
    assert in_order(given) == labels
    order = order_pages(given)
    assert len(order.followers) == len(labels) - 1
    assert not order.guessed


@pytest.mark.parametrize(
    "labels",
    [
        ["A", "B", "C", "D", "i", "ii", "1", "2"],
        ["C", "D"],
        ["X", "I"],
        ["1", "two", "3"],
        ["1st", "2nd", "3rd"],
        ["A-1", "B-2", "A-3"],
        [None, None, None],
        ["", "1", None],
    ],
    ids=str,
)
def test_other_labels_leave_the_order_of_the_reader(labels: list[Any]) -> None:
    """Labels of several numberings, or of none, keep the order of the reader."""
    assert in_order(labels) == labels


def test_numbers_confirm_parts_of_a_mixed_file() -> None:
    """Consecutive numbers of one numbering follow one another; the rest is a guess by the given order."""
    order = order_pages(["cover", "i", "ii", "1", "2", "2a", "3", "5"])
    assert order.followers == {1: 2, 3: 4, 4: 5, 5: 6}
    assert order.guessed == {0: 1, 2: 3, 6: 7}


def test_labels_that_contradict_the_given_order_leave_no_guess() -> None:
    """If numbers show that pages are out of order, only consecutive numbers count."""
    order = order_pages(["2", "cover", "1", "ii", "i"])
    assert order.followers == {2: 0, 4: 3}
    assert order.guessed == {}


@pytest.mark.parametrize("labels", [["1", "2", "1"], [1, "1.0"], ["ii", "II"], ["a", "b", "b"]], ids=str)
def test_a_repeated_label_is_reported(labels: list[Any]) -> None:
    """Two pages with the same label have no order: they may be of two files."""
    order = order_pages(labels)
    assert order.repeated is not None
    first, second = order.repeated
    assert in_order(labels) == labels
    assert str(labels[first])[0].lower() == str(labels[second])[0].lower()
    assert not order.followers
    assert not order.guessed

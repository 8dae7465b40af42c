"""Segments with the greatest sums of values."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from llama_index_ext_ctxaug.selection.rse import rse

VALUES = st.lists(st.sampled_from([-0.5, -0.25, 0.0, 0.25, 0.5, 1.0]), max_size=9)
"""Values with exact sums, so that equal sums are equal."""


def best_by_trying_all(
    values: list[float], ends: set[int], taken: set[int], longest: int
) -> tuple[int, int] | None:
    """Return the first segment with the greatest sum, by the definition."""
    best, best_sum = None, -math.inf
    for start in range(len(values)):
        for end in range(start + 1, min(start + longest, len(values)) + 1):
            inside = range(start, end)
            allowed = values[start] >= 0 and values[end - 1] >= 0 and taken.isdisjoint(inside)
            if allowed and not any(start < e < end for e in ends) and sum(values[start:end]) > best_sum:
                best, best_sum = (start, end), sum(values[start:end])
    return best


@given(VALUES, st.sets(st.integers(1, 8)), st.integers(1, 5), st.integers(0, 9))
def test_each_segment_is_the_best_that_is_left(
    values: list[float], ends: set[int], longest: int, total: int
) -> None:
    """Each segment is the best remaining one by definition, until none reaches the minimum."""
    found = rse([values], ends, max_length=longest, overall_max_length=total, minimum_value=0.25)
    taken: set[int] = set()
    for segment in found:
        allowed = min(longest, total - len(taken))
        assert segment[:2] == best_by_trying_all(values, ends, taken, allowed)
        assert segment.value == sum(values[segment.start : segment.end]) >= 0.25
        taken |= set(range(segment.start, segment.end))
    assert len(taken) <= total
    left = best_by_trying_all(values, ends, taken, min(longest, total - len(taken)))
    assert left is None or sum(values[slice(*left)]) < 0.25


def taken(values: list[list[float]], **limits: float) -> list[tuple[int, int]]:
    """Return the segments of six chunks of one document, with these limits."""
    wide = {"max_length": 9, "overall_max_length": 9, "minimum_value": 0.5}
    return [segment[:2] for segment in rse(values, [6], **{**wide, **limits})]


FIRST, SECOND = [1, -9, 1, -9, -9, -9], [-9, -9, -9, -9, 1, 1]


def test_queries_take_segments_in_turn() -> None:
    """Each query takes its best segment, then each its next, until none reaches the minimum."""
    assert taken([FIRST, SECOND]) == [(0, 1), (4, 6), (2, 3)]
    assert taken([SECOND, FIRST]) == [(4, 6), (0, 1), (2, 3)]
    assert taken([[-9] * 6, FIRST]) == [(0, 1), (2, 3)]
    assert taken([FIRST, FIRST]) == [(0, 1), (2, 3)]
    assert taken([]) == []


def test_the_length_of_all_segments_is_limited() -> None:
    """The limit on all segments together restricts the next segment, whatever its query."""
    assert taken([FIRST, SECOND], overall_max_length=1) == [(0, 1)]
    assert taken([FIRST, SECOND], overall_max_length=2) == [(0, 1), (4, 5)]
    assert taken([FIRST, SECOND], overall_max_length=3) == [(0, 1), (4, 6)]
    assert taken([FIRST, SECOND], overall_max_length=0) == []
    assert taken([SECOND], minimum_value=2) == [(4, 6)]
    assert taken([SECOND], minimum_value=2.5) == []

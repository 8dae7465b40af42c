"""Relevance by place, and the segments of the greatest sums."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_ext_ctxaug.selection.relevance import (
    normalized_scores,
    query_terms,
    rse,
    spread,
    term_shares,
)

VALUES = st.lists(st.sampled_from([-0.5, -0.25, 0.0, 0.25, 0.5, 1.0]), max_size=9)
"""Values whose sums are exact, so that equal sums are equal."""


def best_by_trying_all(
    values: list[float], ends: set[int], taken: set[int], longest: int
) -> tuple[int, int] | None:
    """The first of the segments with the greatest sum, by the definition."""
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
    """Every segment is the best by its definition, given those before it, until nothing worth it is left."""
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
    """The segments of six chunks of one document, with these limits."""
    wide = {"max_length": 9, "overall_max_length": 9, "minimum_value": 0.5}
    return [segment[:2] for segment in rse(values, [6], **{**wide, **limits})]


FIRST, SECOND = [1, -9, 1, -9, -9, -9], [-9, -9, -9, -9, 1, 1]


def test_queries_take_segments_in_turn() -> None:
    """Each query takes its best segment, then each its next, until it has none that is worth it."""
    assert taken([FIRST, SECOND]) == [(0, 1), (4, 6), (2, 3)]
    assert taken([SECOND, FIRST]) == [(4, 6), (0, 1), (2, 3)]
    assert taken([[-9] * 6, FIRST]) == [(0, 1), (2, 3)]
    assert taken([FIRST, FIRST]) == [(0, 1), (2, 3)]
    assert taken([]) == []


def test_the_length_of_all_segments_is_limited() -> None:
    """What is left of the chunks of all segments limits the next one, of whichever query."""
    assert taken([FIRST, SECOND], overall_max_length=1) == [(0, 1)]
    assert taken([FIRST, SECOND], overall_max_length=2) == [(0, 1), (4, 5)]
    assert taken([FIRST, SECOND], overall_max_length=3) == [(0, 1), (4, 6)]
    assert taken([FIRST, SECOND], overall_max_length=0) == []
    assert taken([SECOND], minimum_value=2) == [(4, 6)]
    assert taken([SECOND], minimum_value=2.5) == []


def test_infinite_scores_stand_at_the_ends() -> None:
    """Scores without bounds stand with the highest or the lowest finite one, and alone they stand by rank."""
    found = normalized_scores([math.inf, 2.0, 0.0, -math.inf])
    assert found == pytest.approx([1.0, 1.0, 0.2, 0.2])
    assert normalized_scores([math.inf, -math.inf]) == [1.0, 0.5]
    assert normalized_scores([1e308, -1e308]) == [1.0, 0.5]


@given(
    st.lists(st.floats(-20, 20), min_size=2, max_size=30).map(lambda s: sorted(s, reverse=True)),
    st.floats(0.01, 100),
    st.floats(-50, 50),
)
def test_the_scale_of_scores_does_not_matter(scores: list[float], factor: float, shift: float) -> None:
    """Scores stretched and shifted give the same standing, which lies in (0, 1] and keeps their order."""
    heights = normalized_scores(scores)
    assert all(0 < height <= 1 for height in heights)
    assert heights == sorted(heights, reverse=True)
    if scores[0] - scores[-1] > 1e-3:
        assert normalized_scores([score * factor + shift for score in scores]) == pytest.approx(
            heights, abs=1e-6
        )


@pytest.mark.parametrize("scores", [[None] * 4, [0.3] * 4, [math.nan] * 4])
def test_rank_stands_for_missing_scores(scores: list[float | None]) -> None:
    """Without scores, or with equal ones, the rank tells how high a hit stands."""
    assert normalized_scores(scores) == [1.0, 0.75, 0.5, 0.25]


def test_a_missing_score_stands_lowest() -> None:
    """Among hits with scores, one without stands with the lowest, above nothing."""
    assert normalized_scores([2.0, None, -2.0]) == pytest.approx([1.0, 0.25, 0.25])


def test_no_hits_no_standing() -> None:
    """An empty pool has no standings."""
    assert normalized_scores([]) == []


def test_terms_are_the_words_that_say_what_it_is_about() -> None:
    """Function words and single letters are left out; scripts without spaces give pairs of characters."""
    assert query_terms("What did the Council decide about a Council tax?") == ["council", "decide", "tax"]
    assert query_terms("水枪多") == ["水枪", "枪多"]
    assert query_terms("茶") == ["茶"]
    assert query_terms("茶茶茶 Tea TEA") == ["茶茶", "tea"]
    assert query_terms("?!") == []


def test_rare_terms_count_for_more() -> None:
    """A text with the rare word of the query has more of it than one with the common word."""
    texts = ["Council tax", "council", "council", "tax of the council", "Zebra"]
    shares = term_shares(texts, ["council", "zebra"])
    assert shares[4] == 1.0
    assert shares[0] == shares[1] < 0.5


def test_nothing_found_is_no_share() -> None:
    """Texts that hold nothing of the query have none of it."""
    assert term_shares(["a", "b"], ["zebra"]) == [0.0, 0.0]
    assert term_shares([], ["zebra"]) == []


def test_a_chunk_lends_half_to_the_chunk_beside_it() -> None:
    """A lone chunk lends a half to the chunks beside it, and less with the root of the distance."""
    found = spread([0.0] * 9 + [1.0] + [0.0] * 9)
    assert found[9] == 1.0
    assert found[8] == found[10] == 0.5
    assert found[5] == found[13] == 0.25
    assert found[0] == found[18] == 0.0
    assert found[1] == pytest.approx(0.5 / math.sqrt(8))


def test_close_hits_lift_what_is_between_them() -> None:
    """A chunk between two hits is worth as much as a lone hit, and a chunk beside a lone hit is not."""
    between, beside = spread([1.0, 0.0, 1.0])[1], spread([0.0, 1.0])[0]
    assert between == 1.0 > beside


@given(st.lists(st.floats(0, 1), max_size=12))
def test_spreading_is_the_same_from_both_ends(relevance: list[float]) -> None:
    """A run read backwards has the same values, backwards; nothing is worth less than before."""
    found = spread(relevance)
    assert found == pytest.approx(spread(relevance[::-1])[::-1])
    assert all(after >= before for after, before in zip(found, relevance, strict=True))


@pytest.mark.parametrize("high", [1.7e308, 5e-324])
def test_the_greatest_and_the_smallest_ranges_are_ranges_too(high: float) -> None:
    """The lowest score stands above nothing and the highest at 1, however far they lie apart."""
    assert normalized_scores([high, 0.0]) == [1.0, pytest.approx(1 / 3)]

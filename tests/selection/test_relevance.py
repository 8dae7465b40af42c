"""Relevance by score, words and place."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_ext_ctxaug.selection.relevance import (
    normalized_scores,
    query_terms,
    spread,
    term_shares,
)


def test_infinite_scores_are_at_the_ends() -> None:
    """Infinite scores count as the highest or lowest finite one; if all are infinite, ranks count."""
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
    """Scaled and shifted scores normalize to the same numbers in (0, 1], in the same order."""
    normalized = normalized_scores(scores)
    assert all(0 < number <= 1 for number in normalized)
    assert normalized == sorted(normalized, reverse=True)
    if scores[0] - scores[-1] > 1e-3:
        assert normalized_scores([score * factor + shift for score in scores]) == pytest.approx(
            normalized, abs=1e-6
        )


@pytest.mark.parametrize("scores", [[None] * 4, [0.3] * 4, [math.nan] * 4])
def test_ranks_replace_missing_scores(scores: list[float | None]) -> None:
    """Without scores, or with equal ones, ranks are normalized."""
    assert normalized_scores(scores) == [1.0, 0.75, 0.5, 0.25]


def test_a_missing_score_is_lowest() -> None:
    """Among hits with scores, one without counts as the lowest, above 0."""
    assert normalized_scores([2.0, None, -2.0]) == pytest.approx([1.0, 0.25, 0.25])


def test_an_empty_pool_has_no_scores() -> None:
    """An empty pool gives no normalized scores."""
    assert normalized_scores([]) == []


def test_terms_are_the_content_words() -> None:
    """Function words and single letters are left out; scripts without spaces give pairs of characters."""
    assert query_terms("What did the Council decide about a Council tax?") == ["council", "decide", "tax"]
    assert query_terms("水枪多") == ["水枪", "枪多"]
    assert query_terms("茶") == ["茶"]
    assert query_terms("茶茶茶 Tea TEA") == ["茶茶", "tea"]
    assert query_terms("?!") == []


def test_rare_terms_count_for_more() -> None:
    """A text with the query's rare word has a higher share than one with the common word."""
    texts = ["Council tax", "council", "council", "tax of the council", "Zebra"]
    shares = term_shares(texts, ["council", "zebra"])
    assert shares[4] == 1.0
    assert shares[0] == shares[1] < 0.5


def test_nothing_found_is_no_share() -> None:
    """Texts without any term have a share of 0."""
    assert term_shares(["a", "b"], ["zebra"]) == [0.0, 0.0]
    assert term_shares([], ["zebra"]) == []


def test_a_chunk_lends_half_to_the_chunk_beside_it() -> None:
    """A lone chunk lends a half to the adjacent chunks, and less with the root of the distance."""
    found = spread([0.0] * 9 + [1.0] + [0.0] * 9)
    assert found[9] == 1.0
    assert found[8] == found[10] == 0.5
    assert found[5] == found[13] == 0.25
    assert found[0] == found[18] == 0.0
    assert found[1] == pytest.approx(0.5 / math.sqrt(8))


def test_close_hits_lift_what_is_between_them() -> None:
    """A chunk between two hits is as relevant as a lone hit, and a chunk beside a lone hit is not."""
    between, beside = spread([1.0, 0.0, 1.0])[1], spread([0.0, 1.0])[0]
    assert between == 1.0 > beside


@given(st.lists(st.floats(0, 1), max_size=12))
def test_spreading_is_the_same_from_both_ends(relevance: list[float]) -> None:
    """A run read backwards has the same values in reverse; no value is lower than before."""
    found = spread(relevance)
    assert found == pytest.approx(spread(relevance[::-1])[::-1])
    assert all(after >= before for after, before in zip(found, relevance, strict=True))


@pytest.mark.parametrize("high", [1.7e308, 5e-324])
def test_the_greatest_and_the_smallest_ranges_are_ranges_too(high: float) -> None:
    """The lowest score is above 0 and the highest is 1, however far apart they are."""
    assert normalized_scores([high, 0.0]) == [1.0, pytest.approx(1 / 3)]

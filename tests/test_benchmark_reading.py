"""benchmarks/reading.py on a few of its own questions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))  # they are scripts, not a package

from evidence_data import cut, own_corpus
from reading import BUDGETS, best, measure, oracle, section, turn


@pytest.fixture(scope="module")
def rows() -> dict[str, list[list[float]]]:
    """The results of three questions."""
    corpus = own_corpus()
    return measure(
        corpus, cut(corpus, 64), 3, {"best": best, "turn": turn, "section": section, "oracle": oracle}
    )


def test_each_way_is_measured_at_each_budget(rows: dict[str, list[list[float]]]) -> None:
    """Each way and budget has a share from 0 to 1, and at least one call."""
    assert list(rows) == ["alone", "best", "turn", "section", "oracle"]
    for found in rows.values():
        assert len(found) == len(BUDGETS)
        for mean, whole, calls in found:
            assert 0 <= whole <= mean <= 1
            assert calls >= 1


def test_the_oracle_is_a_bound(rows: dict[str, list[list[float]]]) -> None:
    """No fixed policy of reading on shows more than the steps that lead to the evidence."""
    for way in ("best", "turn"):
        for found, bound in zip(rows[way], rows["oracle"], strict=True):
            assert found[0] <= bound[0] + 1e-9

"""Units of a text that a budget keeps or leaves out."""

from __future__ import annotations

import pytest
from hypothesis import given
from text_strategies import texts

from llama_index_ext_ctxaug.windows.text_units import text_units

TABLE = "| name | year |\n|---|---|\n| Rome | 753 |\n| Oslo | 1048 |\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One is here. Two is there.", ["One is here. ", "Two is there."]),
        ("港口建于一九〇四年。暴风雨毁了码头！", ["港口建于一九〇四年。", "暴风雨毁了码头！"]),
        (f"Before it.\n\n{TABLE}", ["Before it.\n\n", *TABLE.splitlines(keepends=True)]),
        ("| a | 1 |\n| b | 2 |\n", ["| a | 1 |\n", "| b | 2 |\n"]),
        ("```\na = 1. B\nb = 2\n```\nThe end.", ["```\n", "a = 1. B\n", "b = 2\n", "```\n", "The end."]),
        ("def f(x):\n    return x\n\nIt is x. So.", ["def f(x):\n", "    return x\n\n", "It is x. ", "So."]),
        ("A line that\nwraps here. Another\none.", ["A line that\nwraps here. ", "Another\none."]),
        ("", []),
    ],
)
def test_prose_is_cut_by_sentences_and_tables_and_code_by_lines(text: str, expected: list[str]) -> None:
    """Each kind of text has its own units."""
    found = [text[unit.span.start : unit.span.end] for unit in text_units(text)]
    assert found == expected


def test_rows_need_the_header_of_their_table() -> None:
    """Each row names the two lines of its header; prose and rows without a header name nothing."""
    units = text_units(f"Before it.\n\n{TABLE}\nBehind it.")
    assert [unit.header for unit in units] == [(), (1, 2), (1, 2), (1, 2), (1, 2), ()]
    assert [unit.header for unit in text_units("| a | 1 |\n| b | 2 |\n")] == [(), ()]


@given(texts())
def test_units_cover_the_text(text: str) -> None:
    """Together the units are the text, in order, and none is empty."""
    units = text_units(text)
    assert "".join(text[unit.span.start : unit.span.end] for unit in units) == text
    assert all(unit.span.start < unit.span.end for unit in units)
    assert all(header < len(units) for unit in units for header in unit.header)

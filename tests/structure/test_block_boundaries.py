"""Blocks that continue from one chunk into the next."""

from __future__ import annotations

import pytest

from llama_index_ext_ctxaug.structure.block_boundaries import block_runs_on


@pytest.mark.parametrize(
    ("before", "after", "runs_on"),
    [
        ("Text:\n```python\nx = 1", "y = 2\n```\nMore.", True),
        ("Text:\n~~~\nx = 1", "y = 2\n~~~", True),
        ("```\nx = 1", "The fence is never closed.", False),
        ("```\nx = 1\n```", "```\ny = 2\n```", False),
        ("```\na\n```\nText.\n```\nb", "c\n```", True),
        ("Text:\n    ```\n    quoted", "    ```\nMore.", False),
        ("| a | b |\n| - | - |\n| 1 | 2 |", "| 3 | 4 |", True),
        ("| a | b |\n| - | - |\n| 1 | 2 |\n", "\n| 3 | 4 |", True),
        ("| a |", "| b |", True),
        ("a | b | c", "d | e | f", True),
        ("| a | b |", "Text with a | in it.", False),
        ("| a | b |\n\nText.", "| c | d |", False),
        ("- one\n- two", "- three", True),
        ("- one\n- two\n\n", "\n\n- three", True),
        ("1. one", "2) two", True),
        ("• one", "  a) two", True),
        ("一。\n1、 one", "2、 two", True),
        ("- one", "two", False),
        ("one", "- two", False),
        ("| a | b |", "- two", False),
        ("- one\nText.", "- two", False),
        ("", "- one", False),
        ("- one", "", False),
        ("", "", False),
    ],
)
def test_blocks_at_a_border(before: str, after: str, runs_on: bool) -> None:
    """Fences that close later, and rows and items on both sides, continue, even over blank lines."""
    assert block_runs_on(before, after) is runs_on

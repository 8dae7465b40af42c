"""The example of citations runs as a program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[1] / "examples" / "citations.py"


def test_answers_show_pages_and_sources() -> None:
    """Each quote of an answer is shown with its file and page, highlighted in the text of the page."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    quotes = done.stdout.count("” [")
    assert quotes >= 3  # each Python version has its own text of the language reference
    assert done.stdout.count(".pdf, page ") >= quotes
    assert "compound_stmts.pdf, page " in done.stdout
    assert "not certain" not in done.stdout
    assert ">>>The current code generator emits no code for an assert statement" in done.stdout

"""The README in this folder names the origin of each expectation."""

from __future__ import annotations

import ast
import re
from pathlib import Path

FOLDER = Path(__file__).parent


def test_the_catalogue_is_true() -> None:
    """Each test file has a section, and every test named there exists in its file."""
    _, *sections = re.split(r"^## (\S+)$", (FOLDER / "README.md").read_text("utf-8"), flags=re.MULTILINE)
    named = dict(zip(sections[::2], sections[1::2], strict=True))
    assert sorted([*named, Path(__file__).name]) == sorted(path.name for path in FOLDER.glob("test_*.py"))
    for name, section in named.items():
        defined = {
            node.name
            for node in ast.walk(ast.parse((FOLDER / name).read_text("utf-8")))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert set(re.findall(r"`(\w+)`", section)) <= defined, name

"""Parameter tables in README and the documentation match the names and defaults in the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import llama_index_ext_ctxaug as package

README = Path(__file__).parents[1] / "README.md"


def _tables() -> list[tuple[str, list[list[str]]]]:
    """Return the tables of parameters: the heading above each, and its rows."""
    found: list[tuple[str, list[list[str]]]] = []
    heading, inside = "", False
    pages = [README, *sorted(README.parent.glob("docs/*.md"))]
    for line in "\n".join(page.read_text(encoding="utf-8") for page in pages).splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if line == "| parameter | meaning | default |":
            found.append((heading, []))
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|-"):
            found[-1][1].append([cell.strip() for cell in line.strip("|").split(" | ")])
    return found


def _value(text: str) -> object:
    """Return a default as written: a literal, a name in backticks for a text, or a word."""
    try:
        return ast.literal_eval(text.strip("`"))
    except (SyntaxError, ValueError):
        return text.strip("`")


@pytest.mark.parametrize(("heading", "rows"), _tables(), ids=[heading for heading, _ in _tables()])
def test_defaults_are_those_of_the_code(heading: str, rows: list[list[str]]) -> None:
    """Each table of parameters names parameters that exist, each with its default."""
    kind = getattr(package, heading, package.ContextAugmenter)
    assert len(rows) >= 3
    for names, _, defaults in rows:
        written = re.split(r", (?![^(]*\))", defaults)
        for name, default in zip(re.findall(r"`(\w+)`", names), written, strict=False):
            field = kind.model_fields[name]
            assert ("required" if field.is_required() else field.default) == _value(default), name

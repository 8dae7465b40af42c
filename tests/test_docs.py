"""The documentation: code blocks run, links resolve, and figures are in the named results."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from llama_index.core import Settings

ROOT = Path(__file__).parents[1]
HOME = "https://github.com/llama-index-ext/llama-index-ext-ctxaug"
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FIGURE = re.compile(r"(?<![\w/.])(?:\d{4,}|\d*\.\d+|\d+/\d+)(?![\w/])")


def name_of(page: Path) -> str:
    """Return the path of a page inside the repository."""
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return FENCE.sub("", page.read_text("utf-8"))


WITH_CODE = [
    pytest.param(page, id=name_of(page), marks=[pytest.mark.stores] if "import chromadb" in text else [])
    for page in PAGES
    if BLOCK.search(text := page.read_text("utf-8"))
]
"""Pages with Python; those that need Chroma run with the tests of stores."""


@pytest.fixture
def settings() -> Iterator[None]:
    """Restore the models and the chunk size that a page sets."""
    before = dict(vars(Settings))
    yield
    vars(Settings).clear()
    vars(Settings).update(before)


@pytest.mark.enable_socket
@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("page", WITH_CODE)
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python blocks of a page run as one program."""
    monkeypatch.chdir(tmp_path)
    program = "\n\n".join(BLOCK.findall(page.read_text("utf-8")))
    exec(compile(program, name_of(page), "exec"), {"__name__": "__main__"})


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    headings = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(prose(page)))
    return {heading.replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """Links to files and headings lead to existing ones; addresses are complete."""
    for target in LINK.findall(prose(page)):
        if "://" in target:
            url = urlsplit(target)
            assert url.scheme == "https", target
            assert re.fullmatch(r"[\w-]+(\.[\w-]+)+", url.netloc), target
            assert not re.search(r"[\s<>\"{}]", target), target
            assert "llama-index-ext" not in target or target.startswith(HOME), target
            continue
        path, _, anchor = target.partition("#")
        file = Path(os.path.normpath(page.parent / path)) if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


MEASURED = [page for page in PAGES if "## Measured" in page.read_text("utf-8")]


@pytest.mark.parametrize("page", MEASURED, ids=name_of)
def test_measured_figures_are_in_the_results(page: Path) -> None:
    """Each figure under "Measured" is in a table of results that its line links to."""
    section = prose(page).split("## Measured")[1]
    for item in re.split(r"\n- ", section)[1:]:
        linked = [page.parent / target for target in LINK.findall(item) if "results/" in target]
        results = " ".join(file.read_text("utf-8").replace(",", "") for file in linked)
        for figure in FIGURE.findall(LINK.sub("", item).replace(",", "")):
            close = r"0?" + re.escape(figure.lstrip("0") if figure.startswith(".") else figure)
            assert re.search(rf"(?<![\d.]){close}(?!\d)", results), figure

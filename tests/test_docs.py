"""The documentation: the code blocks of each page run, and links between pages lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([\w./-]+\.md)\)")
PAGES = sorted(page.name for page in DOCS.glob("*.md"))
WITH_CODE = [page for page in PAGES if BLOCK.search((DOCS / page).read_text("utf-8"))]


@pytest.mark.enable_socket
@pytest.mark.parametrize("page", WITH_CODE)
def test_code_blocks_run(page: str, tmp_path: Path) -> None:
    """The Python blocks of a page run as one program in a fresh process."""
    program = tmp_path / "page.py"
    program.write_text("\n\n".join(BLOCK.findall((DOCS / page).read_text("utf-8"))), "utf-8")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages(page: str) -> None:
    """Each link to another page names one that exists."""
    for target in LINK.findall((DOCS / page).read_text("utf-8")):
        assert (DOCS / target).is_file(), target

"""README.md: its code runs, in the order in which it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.enable_socket
def test_code_blocks_run_in_order(tmp_path: Path) -> None:
    """All Python blocks run as one program in a fresh process."""
    blocks = BLOCK.findall(README.read_text(encoding="utf-8"))
    assert len(blocks) >= 5
    program = tmp_path / "readme.py"
    program.write_text("\n\n".join(blocks), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=README.parent,
    )
    assert done.returncode == 0, done.stderr[-3000:]

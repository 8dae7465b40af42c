"""The example of ingestion on Ray gives the nodes of one process; run with `-m ray`, extra `ray`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.ray
PROGRAM = Path(__file__).parents[2] / "examples" / "ray_ingestion.py"


def test_ray_gives_the_nodes_of_one_process() -> None:
    """Batches of 16 documents give the nodes, links and windows of one process."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--batch-size", "16"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "equal to one process: True" in done.stdout

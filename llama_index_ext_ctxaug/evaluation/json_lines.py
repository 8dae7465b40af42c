"""JSONL files that a run appends to, which an interruption may cut anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


def read_lines(path: Path) -> Iterator[Any]:
    """Yield the records of a file, if there is one; a line that is not JSON was cut and is left out."""
    if path.is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                yield json.loads(line)
            except ValueError:
                continue


def append_lines(path: Path, records: Iterable[Any]) -> None:
    """Append records at once; folder and file are made if absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        # The line break comes first, so that a line that an interruption has cut spoils no other.
        file.write("".join("\n" + json.dumps(record) for record in records))

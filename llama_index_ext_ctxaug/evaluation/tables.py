"""Rows of values as text: aligned for a terminal, Markdown, CSV, parquet."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation.escaping import for_cell, for_markdown, for_storage, for_terminal

Records = Sequence[Mapping[str, object]]


def number(value: float | None) -> str:
    """A number as a reader wants it: few figures, a dash for none."""
    if value is None:
        return "–"
    if value == int(value) or abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.1g}" if abs(value) < 0.0005 else f"{value:.3f}"


def shown(value: object) -> str:
    """A value of a table as text."""
    if isinstance(value, bool):
        return "yes" if value else ""
    if value is None or isinstance(value, int | float):
        return number(value)
    return str(value)


def to_terminal(records: Records, columns: Sequence[str], width: int = 40) -> str:
    """A table with aligned columns."""
    cells = [
        [str(column) for column in columns],
        *([for_terminal(shown(record[c]), width) for c in columns] for record in records),
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(line.rstrip() for line in [lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


def to_markdown(records: Records, columns: Sequence[str]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(for_markdown(c) for c in columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(for_markdown(shown(record[c])) for c in columns) + " |" for record in records]
    return "\n".join(lines)


def write_csv(records: Records, path: Path) -> None:
    """A CSV file in UTF-8 without cells that a spreadsheet would run."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        names = list(records[0]) if records else []
        writer.writerow([for_cell(name) for name in names])
        writer.writerows([for_cell(record[name]) for name in names] for record in records)


def write_parquet(records: Records, path: Path) -> None:
    """A parquet file; needs the extra `eval`."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigurationError(
            "writing .parquet needs pyarrow: pip install 'llama-index-ext-ctxaug[eval]'"
        ) from error
    rows = [{for_storage(k): for_storage(v) for k, v in record.items()} for record in records]
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)

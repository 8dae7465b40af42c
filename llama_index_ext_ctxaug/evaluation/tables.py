"""Tables for a terminal, Markdown, CSV and parquet."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

from llama_index_ext_ctxaug.evaluation.escaping import for_cell, for_markdown, for_terminal, without_controls
from llama_index_ext_ctxaug.evaluation.extras import load_extra

Records = Sequence[Mapping[str, object]]


def to_text(value: object) -> str:
    """Format a value for a reader: numbers with few digits, a dash for None."""
    if isinstance(value, bool):
        return "yes" if value else ""
    if value is None:
        return "–"
    if not isinstance(value, int | float):
        return str(value)
    if value == int(value) or abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.1g}" if abs(value) < 0.0005 else f"{value:.3f}"


def to_terminal(records: Records, columns: Sequence[str], width: int = 40) -> str:
    """Format a table with aligned columns."""
    console_class, text = load_extra("rich.console", "eval").Console, load_extra("rich.text", "eval").Text
    table = load_extra("rich.table", "eval").Table(box=load_extra("rich.box", "eval").SIMPLE_HEAD)
    for column in columns:
        right = not any(isinstance(record[column], str) for record in records)
        table.add_column(text(column.replace("_", " ")), justify="right" if right else "left")
    for record in records:
        table.add_row(*(text(for_terminal(to_text(record[column]), width)) for column in columns))
    console = console_class(color_system=None, file=StringIO())
    console.width = max(console.width, console.measure(table).minimum)  # numbers are not wrapped
    console.print(table)
    return "\n".join(line.rstrip() for line in console.file.getvalue().strip("\n").splitlines())


def to_markdown(records: Records, columns: Sequence[str]) -> str:
    """Format a Markdown table."""
    rows = [columns, *([to_text(record[c]) for c in columns] for record in records)]
    lines = ["| " + " | ".join(map(for_markdown, row)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(columns), *lines[1:]])


def write_csv(records: Records, path: Path) -> None:
    """Write a CSV file in UTF-8, without cells that a spreadsheet would run."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        names = list(records[0]) if records else []
        writer.writerow([for_cell(name) for name in names])
        writer.writerows([for_cell(record[name]) for name in names] for record in records)


def write_parquet(records: Records, path: Path) -> None:
    """Write a parquet file; needs the extra `eval`."""
    pyarrow, parquet = load_extra("pyarrow", "eval"), load_extra("pyarrow.parquet", "eval")
    rows = [{str(without_controls(k)): without_controls(v) for k, v in record.items()} for record in records]
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)

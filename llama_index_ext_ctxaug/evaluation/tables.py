"""Tables for a terminal, Markdown, CSV and parquet."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from llama_index_ext_ctxaug.evaluation.escaping import for_cell, for_markdown, for_terminal, without_controls
from llama_index_ext_ctxaug.evaluation.extras import load_extra

Records = Sequence[Mapping[str, object]]


@dataclass(frozen=True)
class Table:
    """A table for a reader: headings, and rows of a text followed by numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: int | None = None  # number of the row of the best system

    def to_terminal(self) -> str:
        """Format the table with aligned columns; only headings wrap, between words."""
        text = load_extra("rich.text", "eval").Text
        table = load_extra("rich.table", "eval").Table(box=load_extra("rich.box", "eval").SIMPLE_HEAD)
        rows = [[for_terminal(cell, 40) for cell in row] for row in self.rows]
        widths = []
        for place, column in enumerate(self.columns):
            widths.append(max(map(len, [*column.split(), *(row[place] for row in rows)])))
            table.add_column(text(column), justify="right" if place else "left", width=widths[-1])
        for row in rows:
            table.add_row(*map(text, row))
        # A width counts only together with a height; without it rich cuts the table at 80 columns.
        size = {"width": sum(widths) + 3 * len(widths) + 1, "height": len(rows)}
        console = load_extra("rich.console", "eval").Console(color_system=None, file=StringIO(), **size)
        console.print(table)
        lines = (line.rstrip() for line in console.file.getvalue().splitlines())
        return "\n".join(line for line in lines if line)

    def to_markdown(self) -> str:
        """Format a Markdown table."""
        lines = [markdown_row(row) for row in (self.columns, *self.rows)]
        return "\n".join([lines[0], "|" + "---|" * len(self.columns), *lines[1:]])


def markdown_row(cells: Sequence[str]) -> str:
    """Format a row of a Markdown table."""
    return "| " + " | ".join(map(for_markdown, cells)) + " |"


def to_text(value: float | None, unit: str = "") -> str:
    """Format a number with two or three digits, seconds with their unit; a dash for None."""
    if value is None:
        return "–"
    if unit == "s":
        milliseconds = f"{value * 1000:.0f} ms" if value >= 0.01 else f"{value * 1000:.2f} ms"
        return f"{value:.1f} s" if value >= 1 else milliseconds
    if value == int(value) or abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 1:
        return f"{value:#.3g}"
    return f"{value:.1g}" if abs(value) < 0.0005 else f"{value:.3f}"


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

"""The sections of a report: the choice and the table at each budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_index_ext_ctxaug.evaluation.choice import Choice
from llama_index_ext_ctxaug.evaluation.outcome import Metric
from llama_index_ext_ctxaug.evaluation.systems import BASELINE
from llama_index_ext_ctxaug.evaluation.tables import Records, Table, markdown_row, to_text


@dataclass(frozen=True)
class Section:
    """The result at one budget.

    Attributes:
        budget: maximum tokens of a context; None for no limit.
        title: heading.
        choice: the choice; None if there is none.
        reasons: the choice, or why there is none, in sentences.
        table: a row for each system.
        note: the result as a row of a Markdown table, for the reader's notes.
    """

    budget: int | None
    title: str
    choice: Choice | None
    reasons: Sequence[str]
    table: Table
    note: str


def make_section(
    budget: int | None,
    *,
    count: int,
    choice: Choice | None,
    reasons: Sequence[str],
    records: Records,
    metrics: Sequence[Metric],
) -> Section:
    """Build a section.

    Args:
        budget: maximum tokens of a context; None for no limit.
        count: number of questions.
        choice: the choice; None if there is none.
        reasons: the choice, or why there is none, in sentences.
        records: the summary at this budget.
        metrics: the columns, those of the choice first.
    """
    title = f"{within(budget).strip().capitalize()}, {count} questions"
    columns = ["system", *(metric.name.replace("_", " ") for metric in metrics)]
    failed = any(record["failed"] for record in records)
    rows = [
        [str(record["system"]), *(_cell(record, metric) for metric in metrics)]
        + ([to_text(_number(record["failed"]))] if failed else [])
        for record in records
    ]
    best = next((place for place, record in enumerate(records) if record["is_best"]), None)
    table = Table([*columns, "failed"] if failed else columns, rows, best)
    return Section(budget, title, choice, reasons, table, _note(title, choice, table))


def within(budget: int | None) -> str:
    """Return the words that follow a result, for instance " within 500 tokens"."""
    return " without a limit" if budget is None else f" within {budget} tokens"


def _note(title: str, choice: Choice | None, table: Table) -> str:
    if choice is None or table.best is None:
        return ""
    best = table.rows[table.best]
    figures = [f"{name} {value}" for name, value in zip(table.columns[1:4], best[1:4], strict=True)]
    interval = choice.against_baseline.get(choice.winner)
    return markdown_row(
        [title, best[0], *figures, f"against {BASELINE} {interval}" if interval else BASELINE]
    )


def _cell(record: Mapping[str, object], metric: Metric) -> str:
    return to_text(_number(record[metric.name]), metric.unit)


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) else None

"""The sections of a report: the choice and the table at each budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from llama_index_ext_ctxaug.evaluation.choice import Choice
from llama_index_ext_ctxaug.evaluation.outcome import Metric
from llama_index_ext_ctxaug.evaluation.systems import BASELINE
from llama_index_ext_ctxaug.evaluation.tables import Records, Table, markdown_row, to_text


@dataclass(frozen=True)
class Section:
    """The result at one budget.

    Attributes:
        budget: maximum tokens of a context; None for no limit.
        choice: the choice; None if there is none.
        reasons: the choice, or why there is none, in sentences.
        records: the summary at this budget.
        metrics: the columns, those of the choice first.
    """

    budget: int | None
    choice: Choice | None
    reasons: Sequence[str]
    records: Records
    metrics: Sequence[Metric]

    @property
    def title(self) -> str:
        """The heading."""
        count = max(int(str(record["questions"])) for record in self.records)
        return f"{within(self.budget).strip().capitalize()}, {count} questions"

    @cached_property
    def table(self) -> Table:
        """A row for each system."""
        columns = ["system", *(metric.name.replace("_", " ") for metric in self.metrics)]
        rows = [[str(record["system"]), *(_cell(record, m) for m in self.metrics)] for record in self.records]
        if any(record["failed"] for record in self.records):
            columns.append("failed")
            rows = [[*row, str(record["failed"])] for row, record in zip(rows, self.records, strict=True)]
        best = next((place for place, record in enumerate(self.records) if record["is_best"]), None)
        return Table(columns, rows, best)

    @property
    def note(self) -> str:
        """The result as a row of a Markdown table, for the reader's notes; "" without a choice."""
        if self.choice is None or self.table.best is None:
            return ""
        best = self.table.rows[self.table.best]
        figures = [f"{name} {value}" for name, value in zip(self.table.columns[1:4], best[1:4], strict=True)]
        interval = self.choice.against_baseline.get(self.choice.winner)
        against = f"against {BASELINE} {interval}" if interval else BASELINE
        return markdown_row([self.title, best[0], *figures, against])


def within(budget: int | None) -> str:
    """Return the words that follow a result, for instance " within 500 tokens"."""
    return " without a limit" if budget is None else f" within {budget} tokens"


def _cell(record: Mapping[str, object], metric: Metric) -> str:
    value = record[metric.name]
    return to_text(value if isinstance(value, int | float) else None, metric.unit)

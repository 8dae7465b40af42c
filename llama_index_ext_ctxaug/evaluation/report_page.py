"""The values that the template of a report draws: sections with their tables, charts, gains, context maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from llama_index_ext_ctxaug.evaluation.charts import Point, Scatter, interval_axis, scatter
from llama_index_ext_ctxaug.evaluation.choice import Choice
from llama_index_ext_ctxaug.evaluation.context_map import map_documents
from llama_index_ext_ctxaug.evaluation.outcome import Metric
from llama_index_ext_ctxaug.evaluation.rows import Row
from llama_index_ext_ctxaug.evaluation.systems import BASELINE
from llama_index_ext_ctxaug.evaluation.tables import Records, Table, markdown_row, to_text

_MAX_LINKS = 12
"""Maximum links to questions with the largest differences, for each system."""


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


def page_values(
    rows: Sequence[Row], records: Records, metrics: Sequence[str], choice: Choice | None
) -> dict[str, object]:
    """Return charts and context maps; `metrics` are the names that the choice goes by."""
    indexes = {str(name): index for index, name in enumerate(dict.fromkeys(r["system"] for r in records))}
    free = [record for record in records if record["budget"] is None]
    return {
        "baseline": BASELINE,
        "metrics": metrics,
        "choice": choice,
        "indexes": indexes,
        "numbers": {id_: number for number, id_ in enumerate(dict.fromkeys(row.question_id for row in rows))},
        "by_tokens": _scatter(records, indexes, "tokens", "tokens", metrics),
        "by_seconds": _scatter(free, indexes, "seconds", "seconds for a question", metrics),
        "interval_axis": interval_axis(choice.against_baseline if choice else {}, 170, 450),
        "questions": _questions(rows, metrics),
    }


def gains_of(system: str, differences: Mapping[str, float]) -> dict[str, object]:
    """Return how many questions a system gains and loses, and at which it differs most."""
    better = sum(value > 0 for value in differences.values())
    worse = sum(value < 0 for value in differences.values())
    largest = sorted(differences.items(), key=lambda item: (-abs(item[1]), item[0]))[:_MAX_LINKS]
    return {
        "system": system,
        "better": better,
        "worse": worse,
        "equal": len(differences) - better - worse,
        "differences": differences,
        "largest": [item for item in largest if item[1]],
    }


def _scatter(
    records: Records, systems: Mapping[str, int], column: str, x_name: str, metrics: Sequence[str]
) -> Scatter | None:
    series: dict[str, list[Point]] = {name: [] for name in systems}
    for record in records:
        x, budget = record.get(column), record["budget"]
        numbers = [value for name in metrics if isinstance(value := record[name], int | float)]
        if isinstance(x, int | float) and numbers:
            label = "no limit" if budget is None else f"within {budget} tokens"
            series[str(record["system"])].append(Point(x, sum(numbers) / len(numbers), label))
    return scatter(series, x_name, ("mean of " if len(metrics) > 1 else "") + ", ".join(metrics))


def _questions(rows: Sequence[Row], metrics: Sequence[str]) -> list[dict[str, object]]:
    groups: dict[str, list[Row]] = {}
    answers: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        if row.budget is None:
            groups.setdefault(row.question_id, []).append(row)
        if row.answer is not None:
            system = row.system + (within(row.budget) if row.budget else "")
            answers.setdefault(row.question_id, []).append((system, row.answer))
    return [
        {
            "id": id_,
            "text": group[0].question,
            "scores": "; ".join(
                f"{row.system} " + ", ".join(to_text(row.scores.get(name)) for name in metrics)
                for row in group
            ),
            "documents": map_documents({row.system: row.blocks for row in group}),
            "answers": answers.get(id_, []),
        }
        for id_, group in groups.items()
    ]

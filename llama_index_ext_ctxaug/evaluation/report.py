"""What a comparison found: tables, the choice of the best system, a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from llama_index.core.postprocessor.types import BaseNodePostprocessor

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation import tables
from llama_index_ext_ctxaug.evaluation.choice import Candidate, Choice, Strategy, choose
from llama_index_ext_ctxaug.evaluation.escaping import for_markdown, for_terminal
from llama_index_ext_ctxaug.evaluation.outcome import Metric
from llama_index_ext_ctxaug.evaluation.rows import Row
from llama_index_ext_ctxaug.evaluation.systems import BASELINE, System

PREFIX = "passage_augmenter_"
"""Before the name of a metric of the augmented context; the plain name is that of the hits, as in AutoRAG."""


class Report:
    """What a comparison found.

    Args:
        rows: a row for each question, system and budget.
        systems: what was compared, the baseline first.
        metrics: what was measured.
        problems: a sentence for each thing that failed or was not there.

    Attributes:
        rows: as given.
        systems: as given.
        metrics: as given.
        problems: as given.
        choice: the best system; `choose` makes another one by other rules.

    Example:
        ```python
        report = compare(retriever, {"one on each side": augmenter}, questions)
        print(report)
        engine = index.as_query_engine(node_postprocessors=report.best)
        ```
    """

    def __init__(
        self,
        rows: Sequence[Row],
        systems: Sequence[System],
        metrics: Sequence[Metric],
        problems: Sequence[str] = (),
    ) -> None:
        self.rows = list(rows)
        self.systems = list(systems)
        self.metrics = list(metrics)
        self.problems = list(problems)
        self._choice: Choice | None = None
        self._choice_metrics: list[str] = []
        self._choice_budget: int | None = None

    @cached_property
    def budgets(self) -> list[int | None]:
        """The numbers of tokens, None (no limit) first."""
        return sorted({row.budget for row in self.rows}, key=lambda budget: budget or 0)

    @property
    def choice(self) -> Choice:
        """The best system by the rules that were last given to `choose`, or by its defaults."""
        return self._choice or self.choose()

    @property
    def best(self) -> list[BaseNodePostprocessor]:
        """The postprocessors of the best system, ready for `node_postprocessors=`."""
        name = self.choice.winner
        return next(system for system in self.systems if system.name == name).within(self._choice_budget)

    @property
    def choice_metrics(self) -> list[str]:
        """Names of the metrics that the choice goes by."""
        return self._choice_metrics or self._default_metrics()

    def choose(
        self,
        metrics: Sequence[str] | None = None,
        *,
        budget: int | None = None,
        strategy: Strategy = "mean",
        speed_threshold: float | None = None,
        token_threshold: float | None = None,
    ) -> Choice:
        """Choose the best system; the report, `best` and the page go by it from then on.

        Args:
            metrics: names of the metrics to go by; None for recall of evidence, answers or ids, whichever
                were measured.
            budget: the number of tokens at which the systems are compared; None for no limit.
            strategy: how several metrics become one mark, see `mark`.
            speed_threshold: most seconds for a question; where no system is within, all stay.
            token_threshold: most tokens of a context; the same.

        Raises:
            ConfigurationError: an unknown metric or budget, or no system has a score.
        """
        names = list(metrics) if metrics is not None else self._default_metrics()
        known = {metric.name: metric for metric in self.metrics}
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            raise ConfigurationError(
                f"choose: metrics {unknown or names!r} were not measured; measured were {sorted(known)!r}"
            )
        if budget not in self.budgets:
            raise ConfigurationError(f"choose: budget {budget!r} was not run; run were {self.budgets!r}")
        candidates = [
            self._candidate(system, budget, [known[name] for name in names]) for system in self.systems
        ]
        self._choice = choose(
            candidates,
            BASELINE,
            strategy=strategy,
            speed_threshold=speed_threshold,
            token_threshold=token_threshold,
        )
        self._choice_metrics, self._choice_budget = names, budget
        return self._choice

    def summary(self) -> list[dict[str, object]]:
        """A record for each system and budget: the mean of each metric over the questions that have it."""
        winner, budget = self._winner()
        records: list[dict[str, object]] = []
        for limit in self.budgets:
            for system in self.systems:
                rows = self._rows_of(system.name, limit)
                means = {metric.name: mean(rows, metric.name) for metric in self.metrics}
                records.append(
                    {
                        "system": system.name,
                        "budget": limit,
                        "is_best": (system.name, limit) == (winner, budget),
                        "questions": len(rows),
                        "failed": sum(bool(row.errors) for row in rows),
                        **means,
                        "settings": system.settings,
                    }
                )
        return records

    def questions(self) -> list[dict[str, object]]:
        """A record for each question, system and budget.

        A metric's plain name is its score for the hits alone (the pass-through within the same budget),
        with `PREFIX` it is that of the system's context.
        """
        before: dict[tuple[str, int | None], Mapping[str, object]] = {
            (row.question_id, row.budget): row.scores for row in self.rows if row.system == BASELINE
        }
        records: list[dict[str, object]] = [
            {
                "question_id": row.question_id,
                "question": row.question,
                "system": row.system,
                "budget": row.budget,
                **before[row.question_id, row.budget],
                **{PREFIX + name: value for name, value in row.scores.items()},
                "errors": "; ".join(row.errors),
            }
            for row in self.rows
        ]
        return records

    def differences(self, system: str) -> dict[str, float]:
        """By question, how much better than the baseline a system is, over the metrics of the choice."""
        one = self._candidate_named(system)
        other = self._candidate_named(BASELINE)
        result: dict[str, list[float]] = {}
        for metric, scores in one.scores.items():
            for id_, value in scores.items():
                if id_ in other.scores[metric]:
                    result.setdefault(id_, []).append(value - other.scores[metric][id_])
        return {id_: sum(values) / len(values) for id_, values in sorted(result.items())}

    def to_markdown(self) -> str:
        """The summary, the choice and the problems as Markdown."""
        records = self.summary()
        parts = ["# Comparison of augmenters", tables.to_markdown(records, self.columns(records, "settings"))]
        parts += ["## Choice", *(f"- {for_markdown(reason)}" for reason in self._reasons())]
        if self.problems:
            parts += ["## Problems", *(f"- {for_markdown(problem)}" for problem in self.problems)]
        return "\n\n".join(parts).replace("\n\n- ", "\n- ") + "\n"

    def to_html(self) -> str:
        """One self-contained page: table, charts, wins and losses, the context map of each question."""
        from llama_index_ext_ctxaug.evaluation.page import report_page

        return report_page(self)

    def save(self, folder: str | Path) -> Path:
        """Write report.html, report.md, and summary and questions as .csv and, with pyarrow, .parquet.

        Args:
            folder: where to; it is made where it is not there.

        Returns:
            The path of the page.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.md").write_text(self.to_markdown(), encoding="utf-8")
        for name, records in (("summary", self.summary()), ("questions", self.questions())):
            tables.write_csv(records, folder / f"{name}.csv")
            tables.write_parquet(records, folder / f"{name}.parquet")
        page = folder / "report.html"
        page.write_text(self.to_html(), encoding="utf-8")
        return page

    def __str__(self) -> str:
        records = self.summary()
        lines = [tables.to_terminal(records, self.columns(records)), "", *self._reasons()]
        if self.problems:
            shown = [for_terminal(problem) for problem in self.problems[:5]]
            more = len(self.problems) - len(shown)
            lines += [
                "",
                f"Problems ({len(self.problems)}):",
                *shown,
                *([f"... and {more} more"] if more else []),
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from llama_index_ext_ctxaug.evaluation.page import in_notebook

        return in_notebook(self.to_html())

    def _reasons(self) -> list[str]:
        try:
            return [for_terminal(reason, 400) for reason in self.choice.reasons]
        except ConfigurationError as error:
            return [f"No choice: {error}"]

    def _winner(self) -> tuple[str | None, int | None]:
        try:
            return self.choice.winner, self._choice_budget
        except ConfigurationError:
            return None, None

    def columns(self, records: Sequence[dict[str, object]], *more: str) -> list[str]:
        """The columns of the summary that say something, for a reader."""
        columns = ["system", "budget", "is_best", "questions"]
        if any(record["failed"] for record in records):
            columns.append("failed")
        if self.budgets == [None]:
            columns.remove("budget")
        return [*columns, *(m.name for m in self.metrics if _says_something(m, records)), *more]

    def _default_metrics(self) -> list[str]:
        scored = {name for row in self.rows for name, value in row.scores.items() if value is not None}
        quality = [m.name for m in self.metrics if m.quality and m.name in scored]
        return quality or [m.name for m in self.metrics if m.larger_is_better and m.name in scored]

    def _rows_of(self, system: str, budget: int | None) -> list[Row]:
        return [row for row in self.rows if row.system == system and row.budget == budget]

    def _candidate_named(self, name: str) -> Candidate:
        names = self.choice_metrics
        metrics = [metric for metric in self.metrics if metric.name in names]
        system = next(system for system in self.systems if system.name == name)
        return self._candidate(system, self._choice_budget, metrics)

    def _candidate(self, system: System, budget: int | None, metrics: Sequence[Metric]) -> Candidate:
        rows = self._rows_of(system.name, budget)
        scores = {
            metric.name: {
                row.question_id: -value if metric.larger_is_better is False else value
                for row in rows
                if (value := row.scores[metric.name]) is not None
            }
            for metric in metrics
        }
        cost: dict[str, Any] = {name: mean(rows, name) or 0.0 for name in ("tokens", "seconds")}
        return Candidate(system.name, scores, **cost)


def _says_something(metric: Metric, records: Sequence[Mapping[str, object]]) -> bool:
    """Whether a metric has a value anywhere; a cost that nothing has is no news."""
    values = [record[metric.name] for record in records]
    return any(values) if metric.larger_is_better is False else any(v is not None for v in values)


def mean(rows: Sequence[Row], metric: str) -> float | None:
    """The mean of a metric over the rows that have it; None where none has."""
    values = [value for row in rows if (value := row.scores.get(metric)) is not None]
    return sum(values) / len(values) if values else None

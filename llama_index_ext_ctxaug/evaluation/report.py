"""The report of a comparison: tables, the choice of the best system, a page."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from llama_index.core.postprocessor.types import BaseNodePostprocessor

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation import tables
from llama_index_ext_ctxaug.evaluation.choice import Candidate, Choice, Strategy, choose, paired_differences
from llama_index_ext_ctxaug.evaluation.escaping import for_markdown, for_terminal
from llama_index_ext_ctxaug.evaluation.outcome import Metric
from llama_index_ext_ctxaug.evaluation.page import in_notebook, render
from llama_index_ext_ctxaug.evaluation.report_page import Section, gains_of, page_values, within
from llama_index_ext_ctxaug.evaluation.rows import Row
from llama_index_ext_ctxaug.evaluation.systems import BASELINE, System

logger = logging.getLogger(__name__)

PREFIX = "passage_augmenter_"
"""Prefix of a metric of the augmented context; the plain name is that of the hits, as in AutoRAG."""

_TITLE = "Comparison of augmenters"
_SHOWN_PROBLEMS = 5


class Report:
    """The result of a comparison.

    Attributes:
        rows: a row for each question, system and budget.
        systems: the systems, the baseline first.
        metrics: the metrics.
        problems: a sentence for each thing that failed or was missing.

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
        self._rules: dict[str, Any] = {}
        self._metrics: list[str] | None = None
        self._budget: int | None = None
        self._choices: dict[int | None, Choice] = {}  # by the rules of the last `choose`

    @cached_property
    def budgets(self) -> list[int | None]:
        """The budgets in tokens, None (no limit) first."""
        return sorted({row.budget for row in self.rows}, key=lambda budget: budget or 0)

    @property
    def choice(self) -> Choice:
        """The best system by the last arguments of `choose`, or by its defaults."""
        return self.choice_within(self._budget)

    @property
    def best(self) -> list[BaseNodePostprocessor]:
        """The postprocessors of the best system, ready for `node_postprocessors=`."""
        name = self.choice.winner
        return next(system for system in self.systems if system.name == name).within(self._budget)

    @property
    def choice_metrics(self) -> list[str]:
        """Names of the metrics that the choice goes by."""
        return self._default_metrics() if self._metrics is None else self._metrics

    def choose(
        self,
        metrics: Sequence[str] | None = None,
        *,
        budget: int | None = None,
        strategy: Strategy = "mean",
        speed_threshold: float | None = None,
        token_threshold: float | None = None,
    ) -> Choice:
        """Choose the best system; `best`, the tables and the page go by these rules from then on.

        Within a budget, where all systems may use the same tokens, the best mark wins. Without a limit the
        cheapest of the systems that the questions cannot separate wins.

        Args:
            metrics: names of the metrics to go by; None for F1 of the answers if it was measured, else recall
                of evidence, answers or ids, whichever were measured.
            budget: tokens at which the systems are compared; None for no limit.
            strategy: how several metrics become one mark, see `mark`.
            speed_threshold: maximum seconds for a question; if no system is within, all stay.
            token_threshold: maximum tokens of a context; if no system is within, all stay.

        Raises:
            ConfigurationError: an unknown metric or budget, or no system has a score.
        """
        before = self._rules, self._metrics, self._budget, self._choices
        thresholds = {"speed_threshold": speed_threshold, "token_threshold": token_threshold}
        self._rules = {"strategy": strategy, **thresholds}
        self._metrics, self._budget = None if metrics is None else list(metrics), budget
        self._choices = {}
        try:
            return self.choice
        except ConfigurationError:
            self._rules, self._metrics, self._budget, self._choices = before
            raise

    def choice_within(self, budget: int | None) -> Choice:
        """Return the best system at a budget in tokens, by the rules of `choose`.

        Raises:
            ConfigurationError: an unknown metric or budget, or no system has a score.
        """
        if budget in self._choices:
            return self._choices[budget]
        names = self.choice_metrics
        known = {metric.name for metric in self.metrics}
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            raise ConfigurationError(
                f"choose: metrics {unknown or names!r} were not measured; measured were {sorted(known)!r}"
            )
        if budget not in self.budgets:
            raise ConfigurationError(f"choose: budget {budget!r} was not run; run were {self.budgets!r}")
        candidates = [self._candidate(system.name, budget, names) for system in self.systems]
        choice = choose(candidates, BASELINE, weigh_tokens=budget is None, **self._rules)
        return self._choices.setdefault(budget, choice)

    def summary(self) -> list[dict[str, object]]:
        """Return the mean of each metric over the questions that have it, for each system and budget."""
        winners = {budget: getattr(self._choice_or_error(budget), "winner", None) for budget in self.budgets}
        return [
            {
                "system": system.name,
                "budget": budget,
                "is_best": system.name == winners[budget],
                "questions": len(rows),
                "failed": sum(bool(row.errors) for row in rows),
                **{metric.name: _mean(row.scores[metric.name] for row in rows) for metric in self.metrics},
                "settings": system.settings,
            }
            for budget in self.budgets
            for system in self.systems
            for rows in [self._rows_of(system.name, budget)]
        ]

    def questions(self) -> list[dict[str, object]]:
        """Return a record for each question, system and budget.

        A metric's plain name is its score for the hits alone (the pass-through within the same budget),
        with `PREFIX` it is the score of the system's context.
        """
        before: dict[tuple[str, int | None], Mapping[str, object]] = {
            (row.question_id, row.budget): row.scores for row in self.rows if row.system == BASELINE
        }
        return [
            {
                "question_id": row.question_id,
                "question": row.question,
                "system": row.system,
                "budget": row.budget,
                **before[row.question_id, row.budget],
                **{PREFIX + name: value for name, value in row.scores.items()},
                "answer": row.answer,
                "errors": "; ".join(row.errors),
            }
            for row in self.rows
        ]

    def differences(self, system: str) -> dict[str, float]:
        """Return how much better than the baseline a system is at each question, by the choice's metrics."""
        budget, names = self._budget, self.choice_metrics
        return paired_differences(
            self._candidate(system, budget, names), self._candidate(BASELINE, budget, names)
        )

    def to_markdown(self) -> str:
        """Return tables, choices and problems as Markdown."""
        parts = [f"# {_TITLE}"]
        for section in self.sections():
            parts += [
                f"## {section.title}",
                _list(section.reasons),
                section.table.to_markdown(),
                section.note,
            ]
        parts.append(
            "## Systems\n\n" + _list([f"{s.name}: {s.settings}" for s in self.systems if s.settings])
        )
        if self.problems:
            parts.append("## Problems\n\n" + _list(self.problems))
        return "\n\n".join(part for part in parts if part) + "\n"

    def to_html(self) -> str:
        """Return one self-contained page: tables, charts, gains, and a context map for each question."""
        sections = self.sections()
        choice = next(section.choice for section in sections if section.budget == self._budget)
        gains = [gains_of(name, self.differences(name)) for name in choice.against_baseline] if choice else []
        return render(
            "report.html",
            title=_TITLE,
            sections=sections,
            systems=self.systems,
            gains=gains,
            gains_title=within(self._budget),
            problems=self.problems,
            **page_values(self.rows, self.summary(), self.choice_metrics, choice),
        )

    def sections(self) -> list[Section]:
        """Return a section for each budget: its choice and its table."""
        records, columns = self.summary(), self._columns()
        sections = []
        for budget in self.budgets:
            choice = self._choice_or_error(budget)
            reasons = choice.reasons if isinstance(choice, Choice) else [f"No choice: {choice}"]
            sections.append(
                Section(
                    budget,
                    choice if isinstance(choice, Choice) else None,
                    [for_terminal(reason, 400) for reason in reasons],
                    [record for record in records if record["budget"] == budget],
                    columns,
                )
            )
        return sections

    def save(self, folder: str | Path) -> Path:
        """Write report.html, report.md, and summary and questions as .csv and, with pyarrow, .parquet.

        Args:
            folder: where to write; it is made if absent.

        Returns:
            The path of the page.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        page = folder / "report.html"
        page.write_text(self.to_html(), encoding="utf-8")
        (folder / "report.md").write_text(self.to_markdown(), encoding="utf-8")
        for name, records in (("summary", self.summary()), ("questions", self.questions())):
            tables.write_csv(records, folder / f"{name}.csv")
            try:
                tables.write_parquet(records, folder / f"{name}.parquet")
            except ConfigurationError as error:
                logger.warning("%s.parquet is left out: %s", name, error)
        return page

    def __str__(self) -> str:
        lines = []
        for section in self.sections():
            lines += [section.title, section.table.to_terminal(), *section.reasons, ""]
        if self.problems:
            lines.append(f"Problems ({len(self.problems)}):")
            lines += [for_terminal(problem) for problem in self.problems[:_SHOWN_PROBLEMS]]
        if len(self.problems) > _SHOWN_PROBLEMS:
            lines.append(f"... and {len(self.problems) - _SHOWN_PROBLEMS} more")
        return "\n".join(lines).rstrip()

    def _repr_html_(self) -> str:
        return in_notebook(self.to_html())

    def _columns(self) -> list[Metric]:
        """Return the metrics for a reader: those of the choice, tokens and seconds first."""
        first = [*self.choice_metrics, "tokens", "seconds"]
        places = {name: place for place, name in enumerate(first)}
        known = [m for m in self.metrics if any(_is_informative(m, row) for row in self.rows)]
        return sorted(known, key=lambda metric: places.get(metric.name, len(places)))

    def _choice_or_error(self, budget: int | None) -> Choice | ConfigurationError:
        try:
            return self.choice_within(budget)
        except ConfigurationError as error:
            return error

    def _default_metrics(self) -> list[str]:
        scored = {name for row in self.rows for name, value in row.scores.items() if value is not None}
        quality = [m for m in self.metrics if m.quality and m.name in scored]
        # Evidence is the means, the answer the end: where answers are measured, they decide.
        best = [m.name for m in quality if m.needs_answer] or [m.name for m in quality]
        return best or [m.name for m in self.metrics if m.larger_is_better and m.name in scored]

    def _rows_of(self, system: str, budget: int | None) -> list[Row]:
        return [row for row in self.rows if row.system == system and row.budget == budget]

    def _candidate(self, system: str, budget: int | None, metrics: Sequence[str]) -> Candidate:
        rows = self._rows_of(system, budget)
        scores = {
            metric.name: {
                row.question_id: -value if metric.larger_is_better is False else value
                for row in rows
                if (value := row.scores[metric.name]) is not None
            }
            for metric in self.metrics
            if metric.name in metrics
        }
        tokens, seconds = _mean([row.tokens for row in rows]), _mean([row.seconds for row in rows])
        return Candidate(system, scores, tokens or 0.0, seconds or 0.0)


def _list(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {for_markdown(sentence)}" for sentence in sentences)


def _is_informative(metric: Metric, row: Row) -> bool:
    """Return True if a metric has a value, and a cost one above zero."""
    value = row.scores[metric.name]
    return bool(value) if metric.larger_is_better is False else value is not None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None

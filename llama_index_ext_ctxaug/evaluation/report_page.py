"""The values that the template of a report draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llama_index_ext_ctxaug.evaluation.charts import Point, Scatter, interval_axis, scatter
from llama_index_ext_ctxaug.evaluation.choice import Choice
from llama_index_ext_ctxaug.evaluation.context_map import map_documents
from llama_index_ext_ctxaug.evaluation.rows import Row
from llama_index_ext_ctxaug.evaluation.sections import within
from llama_index_ext_ctxaug.evaluation.systems import BASELINE
from llama_index_ext_ctxaug.evaluation.tables import Records, to_text

_MAX_LINKS = 12
"""Maximum links to questions with the largest differences, for each system."""


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

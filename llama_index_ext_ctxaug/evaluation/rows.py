"""The measurements of one system at one question, and a file that keeps them during a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation.context_blocks import Block
from llama_index_ext_ctxaug.evaluation.json_lines import append_lines, read_lines

_HEADER = "context_augmentation_run"


@dataclass(frozen=True, slots=True)
class Row:
    """The measurements of one system at one question.

    Attributes:
        question_id: the question.
        question: its text.
        system: the system's name.
        budget: maximum tokens of the context; None for no limit.
        scores: by metric name; None if there was nothing to measure.
        tokens: tokens of the context; None if the system failed.
        seconds: time of the postprocessors; None if the system failed.
        answer: the answer that a model gave from the context; None if none was asked.
        errors: a sentence for each thing that failed.
        blocks: the context, for the context map; empty within a budget.
    """

    question_id: str
    question: str
    system: str
    budget: int | None
    scores: dict[str, float | None]
    tokens: int | None = None
    seconds: float | None = field(default=None, compare=False)
    answer: str | None = None
    errors: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()


class Journal:
    """A JSONL file of rows, from which an interrupted run resumes.

    Args:
        path: the file; it is made if absent.
        fingerprint: a text that differs for other systems or settings.

    Attributes:
        rows: the saved rows, each with the key it was appended with.

    Raises:
        ConfigurationError: the file is of another run, or of something else.
    """

    def __init__(self, path: str | Path, fingerprint: str) -> None:
        self._path = Path(path)
        self.rows: list[tuple[str, Row]] = []
        if not self._path.is_file() or self._path.stat().st_size == 0:
            append_lines(self._path, [{_HEADER: fingerprint}])
            return
        header, *records = [*read_lines(self._path)] or [None]
        try:
            run = header[_HEADER]
            self.rows = [(record.pop("key"), row_from_dict(record)) for record in records]
        except (AttributeError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"{str(path)!r} is not a saved run ({error!r}); give another file"
            ) from error
        if run != fingerprint:
            raise ConfigurationError(
                f"{str(path)!r} has a run of other systems or settings; delete it, or give another"
            )

    def append(self, key: str, rows: Sequence[Row]) -> None:
        """Write the rows of a question at once, with a key that changes with its wording."""
        append_lines(self._path, ({"key": key, **asdict(row)} for row in rows))


def row_from_dict(data: dict[str, Any]) -> Row:
    """Build a row from the JSON form of its `dataclasses.asdict`."""
    blocks = tuple(Block(**block) for block in data["blocks"])
    return Row(**{**data, "errors": tuple(data["errors"]), "blocks": blocks})

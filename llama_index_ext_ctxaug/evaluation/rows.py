"""The measurements of one system at one question, and a file that keeps them during a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation.context_blocks import Block


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

    Raises:
        ConfigurationError: the file is of another run, or of something else.
    """

    def __init__(self, path: str | Path, fingerprint: str) -> None:
        self.path = Path(path)
        self.fingerprint = fingerprint
        self.rows: list[tuple[str, Row]] = []
        self._file: TextIO | None = None

    def __enter__(self) -> Journal:
        size = self._read() if self.path.is_file() else 0
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if size == 0:
            header = json.dumps({"context_augmentation_run": self.fingerprint})
            self.path.write_text(header + "\n", encoding="utf-8")
        else:
            with self.path.open("r+b") as file:
                file.truncate(size)
        self._file = self.path.open("a", encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file:
            self._file.close()

    def append(self, key: str, rows: Sequence[Row]) -> None:
        """Write the rows of a question at once, with a key that changes with its wording."""
        if self._file:
            self._file.write("".join(json.dumps({"key": key, **asdict(row)}) + "\n" for row in rows))
            self._file.flush()

    def _read(self) -> int:
        """Read the rows, and return how many bytes of the file are whole lines."""
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1  # an interruption may have cut the last line
        if whole == 0:
            return 0
        header, *lines = data[:whole].decode("utf-8", errors="replace").rstrip("\n").split("\n")
        try:
            run = json.loads(header)["context_augmentation_run"]
            records = [json.loads(line) for line in lines]
            rows = [(record.pop("key"), row_from_dict(record)) for record in records]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"{str(self.path)!r} is not a saved run ({error!r}); give another file"
            ) from error
        if run != self.fingerprint:
            raise ConfigurationError(
                f"{str(self.path)!r} has a run of other systems or settings; delete it, or give another"
            )
        self.rows = rows
        return whole


def row_from_dict(data: dict[str, Any]) -> Row:
    """Build a row from the JSON form of its `dataclasses.asdict`."""
    blocks = tuple(Block(**block) for block in data["blocks"])
    return Row(**{**data, "errors": tuple(data["errors"]), "blocks": blocks})

"""Questions with what a good context holds, read from JSONL, CSV or AutoRAG's qa.parquet."""

from __future__ import annotations

import ast
import csv
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation.extras import load_extra

_NAMES = {
    "id": ("id", "qid", "question_id"),
    "text": ("question", "query", "user_input", "text"),
    "expected_ids": ("expected_ids", "retrieval_gt", "reference_context_ids"),
    "evidence": ("evidence", "references", "reference_contexts"),
    "answers": ("answers", "answer", "generation_gt", "reference", "ground_truth", "ground_truths"),
    "document": ("document", "doc_id"),
}

Records = Iterator[tuple[int, Mapping[str, Any] | Exception]]
"""Records of a file by line; an error in place of one that cannot be read."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A span of a document that answers a question.

    Attributes:
        text: the text of the span.
        document: id, file name or path of its document; None if any document may hold it.
        start: first character in the document; None if unknown.
        end: end in the document, exclusive; None if unknown.
    """

    text: str
    document: str | None = None
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question with what a good context holds for it; all but id and text may be empty.

    Attributes:
        id: its id, unique among the questions.
        text: its wording.
        expected_ids: groups of node ids: one node of each group is wanted (AutoRAG's `retrieval_gt`).
        evidence: spans of documents that the context should hold.
        answers: accepted answers; any of them counts.
        line: line of the file it was read from.
    """

    id: str
    text: str
    expected_ids: tuple[tuple[str, ...], ...] = ()
    evidence: tuple[Evidence, ...] = ()
    answers: tuple[str, ...] = ()
    line: int | None = field(default=None, compare=False)


def load_questions(
    path: str | Path,
    *,
    documents: Mapping[str, str] | None = None,
    problems: list[str] | None = None,
) -> list[Question]:
    """Read a file of questions.

    JSONL and CSV have the field `question`, and optionally `id`, `expected_ids` (node ids, or groups of
    them), `evidence` (texts, or objects with `text` or `start` and `end`, and `document`) and `answers`.
    The names of AutoRAG (`qid`, `query`, `retrieval_gt`, `generation_gt`), ragas (`user_input`,
    `reference_contexts`, `reference`) and SQuAD (`answers` with `text`) are accepted too. In a CSV a field
    with several values is a JSON list.

    Args:
        path: a .jsonl, .csv or .parquet file (parquet needs the extra `eval`).
        documents: texts by document id or path. Names of documents in the file are resolved to these, and
            evidence that is given by `start` and `end` alone is cut from them.
        problems: receives a sentence for each line that is skipped; None to raise at the first.

    Raises:
        ConfigurationError: an invalid line, or no question is left; the message names file and line.
    """
    path = Path(path)
    questions: list[Question] = []
    seen: dict[str, int] = {}
    known = _Documents(documents or {})
    for line, record in _records(path):
        try:
            question = _question(record, line, known, seen)
        except (ConfigurationError, ValueError) as error:
            problem = f"{path.name}, line {line}: {error}"
            if problems is None:
                raise ConfigurationError(problem) from error
            problems.append(problem)
            continue
        seen[question.id] = line
        questions.append(question)
    if not questions:
        more = f" The first problem: {problems[0]}" if problems else ""
        raise ConfigurationError(f"{str(path)!r} has no valid question; it needs one a line.{more}")
    return questions


def check_questions(
    questions: Iterable[Question],
    *,
    documents: Collection[str] | None = None,
    node_ids: Collection[str] | None = None,
) -> list[str]:
    """Return a sentence for each question that expects a document or node that does not exist.

    Args:
        questions: the questions.
        documents: ids of all documents; None to leave documents unchecked.
        node_ids: ids of all nodes; None to leave node ids unchecked.
    """
    problems = []
    for question in questions:
        place = f"line {question.line}, " if question.line else ""
        if documents is not None:
            absent = {e.document for e in question.evidence if e.document and e.document not in documents}
            problems += [
                f"{place}question {question.id!r}: its document {name!r} is not among the documents; "
                "correct the name, or add the file"
                for name in sorted(absent)
            ]
        if node_ids is not None:
            unknown = [id_ for group in question.expected_ids for id_ in group if id_ not in node_ids]
            if unknown:
                problems.append(
                    f"{place}question {question.id!r}: {len(unknown)} of its expected ids exist nowhere, "
                    f"the first is {unknown[0]!r}; ids must be those of the nodes that the retriever returns"
                )
    return problems


class _Documents:
    """Texts of documents, found by id, or by any end of their path with or without the suffix."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self._ids: dict[str, list[str]] = {}
        for id_ in texts:
            path = PurePosixPath(id_)
            for parts in (path.parts, path.with_suffix("").parts if path.name else ()):
                for start in range(len(parts)):
                    self._ids.setdefault("/".join(parts[start:]), []).append(id_)

    def resolve(self, name: Any) -> str | None:
        """Return the id of a document, or the name itself if it is unknown."""
        if name is None or str(name) in self.texts:
            return None if name is None else str(name)
        ids = list(dict.fromkeys(self._ids.get(str(name), [str(name)])))
        if len(ids) > 1:
            raise ConfigurationError(f"document {name!r} may be {ids[0]!r} or {ids[1]!r}; give its path")
        return ids[0]


def _records(path: Path) -> Records:
    readers = {".jsonl": _jsonl, ".ndjson": _jsonl, ".csv": _csv, ".parquet": _parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ConfigurationError(f"{str(path)!r}: questions are read from .jsonl, .csv and .parquet files")
    if not path.is_file():
        raise ConfigurationError(f"{str(path)!r} is not a file; give one that holds questions")
    return reader(path)


def _jsonl(path: Path) -> Records:
    with path.open("rb") as file:
        for line, raw in enumerate(file, 1):
            if not raw.strip():
                continue
            try:
                record = json.loads(raw.decode("utf-8-sig"))
            except ValueError as error:
                record = ConfigurationError(f"is not JSON in UTF-8 ({error})")
            if not isinstance(record, dict | Exception):
                record = ConfigurationError('must be an object, such as {"question": "..."}')
            yield line, record


def _csv(path: Path) -> Records:
    with path.open(encoding="utf-8-sig", newline="", errors="replace") as file:
        reader = csv.DictReader(file)
        before = 1
        for row in reader:
            yield before + 1, row
            before = reader.line_num


def _parquet(path: Path) -> Records:
    parquet = load_extra("pyarrow.parquet", "eval")
    try:
        batches = parquet.ParquetFile(path).iter_batches(batch_size=256)
        yield from enumerate((record for batch in batches for record in batch.to_pylist()), 1)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{str(path)!r} is not a parquet file ({error})") from error


def _question(
    record: Mapping[str, Any] | Exception, line: int, documents: _Documents, seen: Mapping[str, int]
) -> Question:
    if isinstance(record, Exception):
        raise record
    values = {name: _first(record, keys) for name, keys in _NAMES.items()}
    text = values["text"]
    if not isinstance(text, str) or not text.strip():
        raise ConfigurationError(f"has no question: the field 'question' is {text!r}")
    id_ = str(line if values["id"] is None else values["id"])
    if id_ in seen:
        raise ConfigurationError(f"the id {id_!r} is that of line {seen[id_]} too; ids must differ")
    default = values["document"]
    return Question(
        id=id_,
        text=text.strip(),
        expected_ids=_groups(values["expected_ids"]),
        evidence=tuple(_evidence(item, default, documents) for item in _items(values["evidence"])),
        answers=_answers(values["answers"]),
        line=line,
    )


def _first(record: Mapping[str, Any], names: Sequence[str]) -> Any:
    for name in names:
        value = record.get(name)
        if value is not None and value != "" and not (isinstance(value, float) and math.isnan(value)):
            return value
    return None


def _items(value: Any) -> list[Any]:
    """Return the values of a field: a list, a JSON or Python list in a text, or one value."""
    if value is None:
        return []
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        value = _parsed(value)
    return list(value) if isinstance(value, list | tuple) else [value]


def _parsed(text: str) -> Any:
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError, TypeError, RecursionError):
            continue
    return text


def _answers(value: Any) -> tuple[str, ...]:
    """Return the answers: texts, or SQuAD's objects with a text or several."""
    answers = []
    for item in _items(value):
        answers += _items(item.get("text")) if isinstance(item, Mapping) else [item]
    if any(str(answer).startswith("{'text'") for answer in answers):
        raise ConfigurationError(f"answers {value!r} cannot be read; write them as a JSON list")
    return tuple(str(answer) for answer in answers if answer is not None and str(answer).strip())


def _groups(value: Any) -> tuple[tuple[str, ...], ...]:
    groups = (item if isinstance(item, list | tuple) else [item] for item in _items(value))
    known = (tuple(str(id_) for id_ in ids if id_ is not None and str(id_).strip()) for ids in groups)
    return tuple(filter(None, known))


def _evidence(item: Any, default: str | None, documents: _Documents) -> Evidence:
    if isinstance(item, str):
        item = {"text": item}
    if not isinstance(item, Mapping):
        raise ConfigurationError(f"evidence must be a text or an object with one, is {item!r}")
    document = documents.resolve(_first(item, _NAMES["document"]) or default)
    start, end = item.get("start"), item.get("end")
    if not all(place is None or (isinstance(place, int) and place >= 0) for place in (start, end)):
        raise ConfigurationError(f"evidence from {start!r} to {end!r}: these must be numbers of characters")
    return _with_text(Evidence(str(item.get("text") or ""), document, start, end), documents)


def _with_text(evidence: Evidence, documents: _Documents) -> Evidence:
    if evidence.text.strip():
        return evidence
    if evidence.start is None or evidence.end is None or evidence.document is None:
        raise ConfigurationError("evidence needs a text, or a document with start and end")
    if evidence.document not in documents.texts:
        raise ConfigurationError(
            f"evidence without a text, and its document {evidence.document!r} is not among the documents"
        )
    text = documents.texts[evidence.document][evidence.start : evidence.end]
    if not text.strip():
        raise ConfigurationError(
            f"evidence from {evidence.start} to {evidence.end} is empty in {evidence.document!r}"
        )
    return replace(evidence, text=text)

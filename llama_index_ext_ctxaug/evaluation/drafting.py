"""Draft questions with evidence and answers over documents, for those who have none."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from llama_index.core.llms import LLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.utils import get_tqdm_iterable

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation.page import render
from llama_index_ext_ctxaug.evaluation.questions import Evidence, Question

RUN_LENGTHS = (1, 2, 3)
"""Chunks of the passages that questions are drafted from, in turn."""

# LlamaIndex's generators draft questions and answers without saying which words of the text they rest on.
DRAFT_PROMPT = PromptTemplate(
    "Passage:\n{passage}\n\n"
    "Write one question that a reader without the passage could ask and that only the passage answers, in "
    "the language of the passage. Reply with a JSON object and nothing else: "
    '{{"question": the question, "answer": a short answer, "evidence": the sentences of the passage that '
    "give the answer, copied word for word}}"
)
"""The prompt of `draft_questions`."""


@dataclass(frozen=True)
class Draft:
    """A drafted question with the passage it was drafted from.

    Attributes:
        question: the question, with evidence that is part of its document.
        parts: the passage in pieces, each with True if it is evidence.
    """

    question: Question
    parts: Sequence[tuple[str, bool]]


@dataclass(frozen=True)
class Drafts:
    """The result of drafting.

    Attributes:
        kept: the questions.
        dropped: number of drafts by the reason why they were dropped.
    """

    kept: Sequence[Draft]
    dropped: Mapping[str, int]

    def save(self, path: str | Path) -> Path:
        """Write the questions to a JSONL file and a page to check them by beside it; return its path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = "".join(f"{_line(draft.question)}\n" for draft in self.kept)
        path.write_text(lines, encoding="utf-8", errors="replace")
        sheet = path.with_suffix(".html")
        page = render("sheet.html", title="Drafted questions", drafts=self.kept, dropped=self.dropped)
        sheet.write_text(page, encoding="utf-8")
        return sheet


def draft_questions(
    texts: Mapping[str, str],
    nodes: Sequence[BaseNode],
    llm: LLM,
    count: int,
    *,
    show_progress: bool = False,
) -> Drafts:
    """Draft questions over passages of one to three chunks that are spread over all documents.

    A question is kept only if its evidence is part of the passage, word for word; white space may differ.

    Args:
        texts: texts of the documents by id.
        nodes: their chunks, in reading order.
        llm: the model that drafts.
        count: number of passages; each gives one question at most.
        show_progress: show LlamaIndex's progress bar.

    Raises:
        ConfigurationError: no question was kept.
    """
    spans = list(_passages(texts, nodes, count))
    kept: list[Draft] = []
    dropped: Counter[str] = Counter()
    for document, start, end in get_tqdm_iterable(spans, show_progress, "Drafting questions"):
        try:
            reply = llm.predict(DRAFT_PROMPT, passage=texts[document][start:end])
        except Exception as error:  # a failing call costs one question
            dropped[f"the model failed: {error!r}"] += 1
            continue
        draft = _read(reply, f"q{len(kept) + 1}", document, texts[document], (start, end))
        if isinstance(draft, str):
            dropped[draft] += 1
        elif any(draft.question.text == other.question.text for other in kept):
            dropped["the question was drafted before"] += 1
        else:
            kept.append(draft)
    if not kept:
        raise ConfigurationError(f"no question of {len(spans)} drafts was kept: {dict(dropped)!r}")
    return Drafts(kept, dict(dropped))


def _passages(
    texts: Mapping[str, str], nodes: Sequence[BaseNode], count: int
) -> Iterator[tuple[str, int, int]]:
    """Yield document, start and end of passages that are evenly spread over the chunks."""
    spans = list(_spans(texts, nodes))
    count = min(count, len(spans))
    for number in range(count):
        first = number * len(spans) // count
        run = spans[first : first + RUN_LENGTHS[number % len(RUN_LENGTHS)]]
        document, start, _ = run[0]
        yield document, start, max(end for other, _, end in run if other == document)


def _spans(texts: Mapping[str, str], nodes: Sequence[BaseNode]) -> Iterator[tuple[str, int, int]]:
    """Yield the place of each chunk with text that is part of its document."""
    last: dict[str, int] = {}
    for node in nodes:
        document, text = node.ref_doc_id or "", node.get_content(metadata_mode=MetadataMode.NONE)
        start = texts.get(document, "").find(text, last.get(document, -1) + 1)
        if start >= 0:
            last[document] = start
            yield document, start, start + len(text)


def _read(reply: str, id_: str, document: str, text: str, passage: tuple[int, int]) -> Draft | str:
    """Return the draft in a reply, or the reason why there is none."""
    record = _json_object(reply)
    question, answer = (str(record.get(name) or "").strip() for name in ("question", "answer"))
    wanted = record.get("evidence")
    pieces = [str(piece) for piece in (wanted if isinstance(wanted, list) else [wanted]) if piece]
    if not question or not answer or not pieces:
        return "the reply lacks question, answer or evidence"
    places = [_find(piece, text, *passage) for piece in pieces]
    found = sorted({place for place in places if place is not None})
    if None in places:
        return "the evidence is not part of the passage"
    evidence = tuple(Evidence(text[start:end], document, start, end) for start, end in found)
    asked = Question(id_, question, evidence=evidence, answers=(answer,))
    return Draft(asked, list(_parts(text, found, *passage)))


def _json_object(reply: str) -> dict[str, Any]:
    match = re.search(r"\{.*\}", reply, re.DOTALL)
    try:
        record = json.loads(match.group(), strict=False) if match else None
    except ValueError:
        record = None
    return record if isinstance(record, dict) else {}


def _find(piece: str, text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the place of a piece in a passage, white space of any kind between its words."""
    words = piece.split()
    match = re.compile(r"\s+".join(map(re.escape, words))).search(text, start, end) if words else None
    return match.span() if match else None


def _parts(text: str, found: Sequence[tuple[int, int]], start: int, end: int) -> Iterator[tuple[str, bool]]:
    for first, last in found:
        if first > start:
            yield text[start:first], False
        if last > max(first, start):
            yield text[max(first, start) : last], True
        start = max(start, last)
    if end > start:
        yield text[start:end], False


def _line(question: Question) -> str:
    evidence = [asdict(piece) for piece in question.evidence]
    record = {"id": question.id, "question": question.text, "answers": question.answers, "evidence": evidence}
    return json.dumps(record, ensure_ascii=False)

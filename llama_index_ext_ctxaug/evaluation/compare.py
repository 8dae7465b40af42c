"""Run several augmenters on the same hits for the same questions."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
import math
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec

from llama_index.core.async_utils import asyncio_run
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import LLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.utils import get_tokenizer, get_tqdm_iterable

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation.cached_llm import CachedLLM
from llama_index_ext_ctxaug.evaluation.context_blocks import blocks_of
from llama_index_ext_ctxaug.evaluation.instrumentation import Counter
from llama_index_ext_ctxaug.evaluation.metrics import check_metrics, default_metrics
from llama_index_ext_ctxaug.evaluation.outcome import Metric, Outcome
from llama_index_ext_ctxaug.evaluation.questions import Question
from llama_index_ext_ctxaug.evaluation.report import Report
from llama_index_ext_ctxaug.evaluation.rows import Journal, Row
from llama_index_ext_ctxaug.evaluation.systems import BASELINE, Augmenters, System, fingerprint, make_systems

logger = logging.getLogger(__name__)

P = ParamSpec("P")


async def acompare(
    retriever: BaseRetriever,
    augmenters: Augmenters,
    questions: Sequence[Question],
    *,
    metrics: Sequence[Metric | Callable[[Outcome], float | None]] | None = None,
    budgets: Sequence[int] = (),
    top_k: int | Mapping[str, int] | None = None,
    llm: LLM | None = None,
    answer_prompt: BasePromptTemplate | None = None,
    max_concurrency: int = 1,
    show_progress: bool = False,
    save_to: str | Path | None = None,
    problems: Sequence[str] = (),
) -> Report:
    """Run every augmenter on the same hits and measure the context that each builds.

    Retrieval runs once a question. The system "pass-through", which adds nothing, always takes part. Every
    system runs once more within each budget, so that more text is not mistaken for better text; there the
    pass-through may fill its tokens with all hits of the retriever.

    Args:
        retriever: finds the hits.
        augmenters: a postprocessor, or a list of them, by name.
        questions: the questions, with what a good context holds.
        metrics: metrics, or functions of an `Outcome`; None for `default_metrics`.
        budgets: maximum tokens of a context.
        top_k: number of retrieved hits that the systems get; None for all. A mapping sets it by system;
            a system that it does not name gets all.
        llm: a model that answers each question from each context and judges the answers (Faithfulness and
            Relevancy). A prompt is sent once; `CachedLLM` keeps the replies for later runs.
        answer_prompt: prompt of the response synthesizer; None for LlamaIndex's.
        max_concurrency: maximum questions at a time. Timings are meaningful only at 1.
        show_progress: show LlamaIndex's progress bar.
        save_to: a file that keeps the rows, so that an interrupted run resumes where it ended.
        problems: sentences about the questions, for the report.

    Raises:
        ConfigurationError: no questions, or an invalid argument. A failing question, system or metric is a
            record in the report instead.
    """
    if not questions:
        raise ConfigurationError("questions: there are none; load_questions(path) reads them from a file")
    if len({question.id for question in questions}) < len(questions):
        raise ConfigurationError("questions: their ids must differ")
    counts = list(top_k.values()) if isinstance(top_k, Mapping) else [] if top_k is None else [top_k]
    for name, value in (
        ("max_concurrency", max_concurrency),
        *(("top_k", count) for count in counts),
        *(("budgets", budget) for budget in budgets),
    ):
        if value < 1:
            raise ConfigurationError(f"{name} must be at least 1, is {value!r}")
    systems = make_systems(augmenters)
    cached = llm if llm is None or isinstance(llm, CachedLLM) else CachedLLM(llm)
    measured = default_metrics(questions, cached) if metrics is None else check_metrics(metrics)
    answering = next((metric.name for metric in measured if metric.needs_answer), None)
    if answering and llm is None:
        raise ConfigurationError(f"metrics: {answering!r} measures the answer of a model; give compare llm=")
    with Counter.listening() as counter:
        bench = Bench(
            retriever, systems, measured, sorted(set(budgets)), top_k, counter, cached, answer_prompt
        )
        await bench.warm_up()
        journal = Journal(save_to, bench.fingerprint) if save_to else None
        rows = await _run_all(bench, questions, journal, max_concurrency, show_progress)
    return Report(rows, systems, measured, [*problems, *_failures(rows)])


def _from_sync(function: Callable[P, Coroutine[Any, Any, Report]], name: str) -> Callable[P, Report]:
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Report:
        report: Report = asyncio_run(function(*args, **kwargs))
        return report

    call.__name__ = call.__qualname__ = name
    return call


compare = _from_sync(acompare, "compare")
"""Synchronous form of `acompare`."""


def _failures(rows: Sequence[Row]) -> list[str]:
    return [
        f"question {row.question_id!r}, {row.system}"
        + (f" within {row.budget} tokens" if row.budget else "")
        + f": {error}"
        for row in rows
        for error in row.errors
    ]


async def _run_all(
    bench: Bench,
    questions: Sequence[Question],
    journal: Journal | None,
    max_concurrency: int,
    show_progress: bool,
) -> list[Row]:
    """Return the rows of all questions, in an order that does not depend on timing."""
    kept = _whole(journal.rows, questions, len(bench.runs)) if journal else {}
    semaphore = asyncio.Semaphore(max_concurrency)

    async def run(question: Question) -> list[Row]:
        async with semaphore:
            rows = await bench.run(question)
            if journal:
                await asyncio.to_thread(journal.append, _key(question), rows)
            return rows

    tasks = [asyncio.create_task(run(question)) for question in questions if question.id not in kept]
    done = dict(kept)
    try:
        for finished in get_tqdm_iterable(
            asyncio.as_completed(tasks), show_progress, "Comparing augmenters", total=len(tasks)
        ):
            rows = await finished
            done[rows[0].question_id] = rows
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [row for id_ in sorted(done) for row in done[id_]]


def _key(question: Question) -> str:
    """Return a short text that changes with the question and what it expects."""
    return hashlib.sha256(repr(replace(question, line=None)).encode(errors="replace")).hexdigest()[:16]


def _whole(rows: Sequence[tuple[str, Row]], questions: Sequence[Question], size: int) -> dict[str, list[Row]]:
    """Return the saved rows of unchanged questions at which each system was measured without an error."""
    keys = {question.id: _key(question) for question in questions}
    found: dict[str, dict[tuple[str, int | None], Row]] = {}
    for key, row in rows:
        if keys.get(row.question_id) == key:
            found.setdefault(row.question_id, {})[row.system, row.budget] = row
    return {
        id_: list(group.values())
        for id_, group in found.items()
        if len(group) == size and not any(row.errors for row in group.values())
    }


class Run(NamedTuple):
    """A system within a budget, and its postprocessors there."""

    system: System
    budget: int | None
    postprocessors: Sequence[BaseNodePostprocessor]


@dataclass
class Bench:
    """Everything that a question is run on; the attributes are the arguments of `acompare`."""

    retriever: BaseRetriever
    systems: Sequence[System]
    metrics: Sequence[Metric]
    budgets: Sequence[int]
    top_k: int | Mapping[str, int] | None
    counter: Counter
    llm: CachedLLM | None = None
    answer_prompt: BasePromptTemplate | None = None

    def __post_init__(self) -> None:
        self.runs = [
            Run(system, budget, system.within(budget))
            for budget in (None, *self.budgets)
            for system in self.systems
        ]
        names = [metric.name for metric in self.metrics]
        settings = {"metrics": names, "budgets": list(self.budgets), "top_k": repr(self.top_k)}
        if self.llm:
            settings |= {"llm": self.llm.fingerprint, "prompt": repr(self.answer_prompt)}
        self.fingerprint = fingerprint(self.systems, **settings)

    async def warm_up(self) -> None:
        """Load the tokenizer, so that the first system is not timed with it."""
        self._tokenizer = await asyncio.to_thread(get_tokenizer)

    async def run(self, question: Question) -> list[Row]:
        """Measure all systems on one question."""
        try:
            pool = await self.retriever.aretrieve(QueryBundle(question.text))
        except Exception as error:  # a failing question is a record
            failed = f"retrieval failed: {error!r}"
            return [self._row(question, run, {}, [failed]) for run in self.runs]
        return [await self._run_system(question, run, pool[: self._limit(run)]) for run in self.runs]

    def _limit(self, run: Run) -> int | None:
        """Return how many hits a system gets; the pass-through may fill a budget with all."""
        if run.budget is not None and run.system.name == BASELINE:
            return None
        return self.top_k.get(run.system.name) if isinstance(self.top_k, Mapping) else self.top_k

    async def _run_system(self, question: Question, run: Run, hits: Sequence[NodeWithScore]) -> Row:
        nodes, query = list(hits), QueryBundle(question.text)
        with self.counter.count() as tally:
            start = time.perf_counter()
            try:
                for postprocessor in run.postprocessors:
                    nodes = await postprocessor.apostprocess_nodes(nodes, query_bundle=query)
            except Exception as error:
                logger.warning("%s failed at question %r: %r", run.system.name, question.id, error)
                return self._row(question, run, {}, [f"failed: {error!r}"])
            seconds = time.perf_counter() - start
        outcome = Outcome(
            question,
            hits,
            nodes,
            tokens=self._count(nodes),
            seconds=seconds,
            reads=tally.reads if run.system.postprocessors else 0,
            llm_calls=tally.llm_calls,
        )
        failed = await self._answer(outcome)
        scores, errors = await self._measure(outcome)
        row = self._row(question, run, scores, [*failed, *errors])
        blocks = () if run.budget else tuple(blocks_of(nodes))
        return replace(row, tokens=outcome.tokens, seconds=seconds, answer=outcome.answer, blocks=blocks)

    async def _answer(self, outcome: Outcome) -> list[str]:
        """Set the answer of an outcome; return the errors."""
        if self.llm is None:
            return []
        try:
            synthesizer = get_response_synthesizer(llm=self.llm, text_qa_template=self.answer_prompt)
            response = await synthesizer.asynthesize(outcome.question.text, list(outcome.nodes))
        except Exception as error:  # a failing model is a record
            return [f"the model failed: {error!r}"]
        outcome.answer = str(response)
        return []

    async def _measure(self, outcome: Outcome) -> tuple[dict[str, float | None], list[str]]:
        scores: dict[str, float | None] = {}
        errors = []
        for metric in self.metrics:
            scores[metric.name] = None
            try:
                value = await metric.ascore(outcome)
                number = None if value is None else float(value)
            except ConfigurationError:
                raise
            except Exception as error:
                errors.append(f"metric {metric.name!r} failed: {error!r}")
                continue
            if number is not None and not math.isfinite(number):
                errors.append(f"metric {metric.name!r} gave {number!r}, which is left out of the mean")
                continue
            scores[metric.name] = number
        return scores, errors

    def _count(self, nodes: Sequence[NodeWithScore]) -> int:
        text = "\n\n".join(hit.node.get_content(metadata_mode=MetadataMode.LLM) for hit in nodes)
        return len(self._tokenizer(text))

    def _row(
        self, question: Question, run: Run, scores: dict[str, float | None], errors: Sequence[str]
    ) -> Row:
        full = {metric.name: scores.get(metric.name) for metric in self.metrics}
        return Row(question.id, question.text, run.system.name, run.budget, full, errors=tuple(errors))

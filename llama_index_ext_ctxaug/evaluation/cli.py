"""The subcommands of `ctxaug`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from llama_index_ext_ctxaug import ConfigurationError, EmbeddingRescorePostprocessor, __version__
from llama_index_ext_ctxaug.evaluation.compare import compare
from llama_index_ext_ctxaug.evaluation.context_blocks import blocks_of
from llama_index_ext_ctxaug.evaluation.context_map import ContextMap
from llama_index_ext_ctxaug.evaluation.corpus import Corpus, load_model, make_retriever, read_corpus
from llama_index_ext_ctxaug.evaluation.escaping import for_terminal
from llama_index_ext_ctxaug.evaluation.questions import check_questions, load_questions
from llama_index_ext_ctxaug.evaluation.report import Report
from llama_index_ext_ctxaug.evaluation.settings import (
    AUGMENTERS,
    DEFAULTS,
    WIDE_POOL,
    WIDE_POOL_AUGMENTERS,
    Settings,
    named_augmenters,
    read_settings,
)
from llama_index_ext_ctxaug.evaluation.systems import BASELINE

_TOP_K = 5
_POOL_FACTOR = 4
"""Factor by which more hits are retrieved than augmenters get, so that the pass-through can fill a budget."""

_docs = click.option(
    "--docs", required=True, type=click.Path(path_type=Path), help="Folder of .txt, .md and .rst files."
)
_model = click.option(
    "--model", type=click.Path(path_type=Path), help="Path of a sentence-transformers model; BM25 if absent."
)
_augmenters = click.option(
    "--augmenter", "augmenters", multiple=True, help="Name of an augmenter; see `ctxaug augmenters`."
)
_top_k = click.option(
    "--top-k", type=click.IntRange(min=1), help=f"Hits for each question  [default: {_TOP_K}]"
)
_chunk_size = click.option(
    "--chunk-size",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Maximum tokens of a chunk.",
)
_overlap = click.option(
    "--chunk-overlap",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Tokens that chunks share.",
)


class _InvalidInput(click.ClickException):
    exit_code = 2


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Report invalid input in one sentence with exit code 2, without a traceback."""
    try:
        yield
    except ConfigurationError as error:
        raise _InvalidInput(for_terminal(str(error), 1000)) from error


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def ctxaug() -> None:
    """Find the context augmenter that helps on your data."""


@ctxaug.command("augmenters")
def list_augmenters() -> None:
    """List the names that --augmenter accepts."""
    for name in AUGMENTERS:
        click.echo(f"{name}{'  (compared by default)' if name in DEFAULTS else ''}")


@ctxaug.command("compare")
@_docs
@click.option(
    "--questions", required=True, type=click.Path(path_type=Path), help="A .jsonl, .csv or .parquet file."
)
@click.option("--config", type=click.Path(path_type=Path), help="A YAML file in AutoRAG's format.")
@_augmenters
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    type=click.IntRange(min=1),
    help="Compare within this many tokens too.",
)
@_top_k
@_model
@_chunk_size
@_overlap
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder for the report.")
def compare_command(
    *,
    docs: Path,
    questions: Path,
    config: Path | None,
    augmenters: tuple[str, ...],
    budgets: tuple[int, ...],
    top_k: int | None,
    model: Path | None,
    chunk_size: int,
    chunk_overlap: int,
    out: Path,
) -> None:
    """Measure augmenters on your own texts and questions.

    An interrupted run resumes when it is started again with the same options. The exit code is 0 if a report
    was written, 1 if every question failed, and 2 if the input is invalid.
    """
    with _plain_errors():
        settings = read_settings(config) if config else Settings()
        made = {**settings.augmenters, **named_augmenters(augmenters)}
        if not made:
            made = named_augmenters(DEFAULTS)
        corpus = read_corpus(docs, chunk_size, chunk_overlap)
        problems = [*settings.notes, *corpus.problems]
        asked = load_questions(questions, documents=corpus.texts, problems=problems)
        if not any(question.evidence or question.answers or question.expected_ids for question in asked):
            raise ConfigurationError(
                f"{str(questions)!r}: no question has anything to measure by; "
                "give some of them evidence, answers or expected_ids"
            )
        node_ids = {node.node_id for node in corpus.nodes}
        problems += check_questions(asked, documents=corpus.texts, node_ids=node_ids)
        for problem in problems:
            click.echo(f"note: {for_terminal(problem, 300)}", err=True)
        hits = top_k or settings.top_k or _TOP_K
        wide = WIDE_POOL_AUGMENTERS & made.keys()
        pool = max(hits * _POOL_FACTOR if budgets else hits, WIDE_POOL if wide else 0)
        embedding = load_model(model) if model else None
        systems = {name: make(corpus.docstore) for name, make in made.items()}
        if embedding and settings.top_k:  # AutoRAG scores the added nodes and keeps the best
            for name in settings.augmenters:
                systems[name].append(
                    EmbeddingRescorePostprocessor(embed_model=embedding, top_k=settings.top_k)
                )
        report = compare(
            make_retriever(corpus, pool, embedding),
            systems,
            asked,
            budgets=budgets,
            top_k={name: hits for name in (BASELINE, *made) if name not in wide},
            show_progress=True,
            save_to=out / f"rows-{corpus.fingerprint}-{model.name if model else 'bm25'}.jsonl",
            problems=problems,
        )
        _finish(report, settings, out)


def _finish(report: Report, settings: Settings, out: Path) -> None:
    if all(row.errors and not row.blocks for row in report.rows if row.budget is None):
        click.echo(str(report))
        raise click.exceptions.Exit(1)
    for budget in reversed(report.budgets):  # the last choice, without a limit, is the report's
        choice = report.choose(settings.metrics, budget=budget, **settings.choice)
        if budget is not None:
            click.echo(f"Within {budget} tokens: {choice.winner}.")
    page = report.save(out)
    click.echo(f"\n{report}\n\nThe report: {page}")


@ctxaug.command("show")
@click.argument("question")
@_docs
@_augmenters
@_top_k
@_model
@_chunk_size
@_overlap
@click.option("--out", type=click.Path(path_type=Path), help="Write the context map to this HTML file.")
def show_command(
    *,
    question: str,
    docs: Path,
    augmenters: tuple[str, ...],
    top_k: int | None,
    model: Path | None,
    chunk_size: int,
    chunk_overlap: int,
    out: Path | None,
) -> None:
    """Show the context of one QUESTION, without augmentation and with it."""
    with _plain_errors():
        made = named_augmenters(augmenters or DEFAULTS[:2])
        corpus: Corpus = read_corpus(docs, chunk_size, chunk_overlap)
        hits = top_k or _TOP_K
        size = max(hits, WIDE_POOL if WIDE_POOL_AUGMENTERS & made.keys() else 0)
        pool = make_retriever(corpus, size, load_model(model) if model else None).retrieve(question)
        systems = {"retrieved": blocks_of(pool[:hits])}
        for name, make in made.items():
            nodes = pool if name in WIDE_POOL_AUGMENTERS else pool[:hits]
            for postprocessor in make(corpus.docstore):
                nodes = postprocessor.postprocess_nodes(nodes, query_str=question)
            systems[name] = blocks_of(nodes)
        context = ContextMap(systems)
        click.echo(str(context))
        if out:
            click.echo(f"\nThe context map: {context.save(out)}")

"""The subcommands of `ctxaug`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from llama_index.core import Document
from llama_index.core.llms import LLM

from llama_index_ext_ctxaug import (
    ConfigurationError,
    EmbeddingRescorePostprocessor,
    ReadAroundToolSpec,
    __version__,
)
from llama_index_ext_ctxaug.evaluation.answer_metrics import SHORT_ANSWER_PROMPT
from llama_index_ext_ctxaug.evaluation.cached_llm import CachedLLM
from llama_index_ext_ctxaug.evaluation.compare import compare
from llama_index_ext_ctxaug.evaluation.context_blocks import blocks_of
from llama_index_ext_ctxaug.evaluation.context_map import ContextMap
from llama_index_ext_ctxaug.evaluation.corpus import (
    Corpus,
    build_corpus,
    load_model,
    make_retriever,
    read_documents,
)
from llama_index_ext_ctxaug.evaluation.drafting import draft_questions
from llama_index_ext_ctxaug.evaluation.escaping import for_terminal
from llama_index_ext_ctxaug.evaluation.extras import load_extra
from llama_index_ext_ctxaug.evaluation.questions import Question, check_questions, load_questions
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

Function = TypeVar("Function", bound=Callable[..., Any])

_TOP_K = 5
_POOL_FACTOR = 4
"""Factor by which more hits are retrieved than augmenters get, for the pass-through within a budget."""

_PATH = click.Path(path_type=Path)
_augmenters = click.option(
    "--augmenter", "augmenters", multiple=True, help="Name of an augmenter; see `ctxaug augmenters`."
)
_top_k = click.option(
    "--top-k", type=click.IntRange(min=1), help=f"Hits for each question  [default: {_TOP_K}]"
)
_model = click.option("--model", type=_PATH, help="Path of a sentence-transformers model; BM25 if absent.")


def _corpus_options(command: Function) -> Function:
    for option in (
        click.option("--cache", type=_PATH, help="Folder that keeps the index and replies for later runs."),
        click.option(
            "--chunk-overlap",
            type=click.IntRange(min=0),
            default=20,
            show_default=True,
            help="Tokens that chunks share.",
        ),
        click.option(
            "--chunk-size",
            type=click.IntRange(min=1),
            default=256,
            show_default=True,
            help="Maximum tokens of a chunk.",
        ),
        click.option(
            "--docs",
            required=True,
            type=_PATH,
            help="Folder of .txt, .md, .rst, .pdf, .html and .docx files.",
        ),
    ):
        command = option(command)
    return command


def _llm_options(*, required: bool) -> Callable[[Function], Function]:
    purpose = "drafts the questions" if required else "answers the questions from each context"

    def add(command: Function) -> Function:
        url = click.option("--llm-url", help="URL of an OpenAI-compatible endpoint; OpenAI's if absent.")
        return click.option("--llm", "llm_name", required=required, help=f"Model that {purpose}.")(
            url(command)
        )

    return add


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
@_corpus_options
@click.option("--questions", required=True, type=_PATH, help="A .jsonl, .csv or .parquet file.")
@click.option("--config", type=_PATH, help="A YAML file in AutoRAG's format.")
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
@_llm_options(required=False)
@click.option("--out", required=True, type=_PATH, help="Folder for the report.")
def compare_command(
    *,
    docs: Path,
    questions: Path,
    config: Path | None,
    augmenters: tuple[str, ...],
    budgets: tuple[int, ...],
    top_k: int | None,
    model: Path | None,
    llm_name: str | None,
    llm_url: str | None,
    chunk_size: int,
    chunk_overlap: int,
    cache: Path | None,
    out: Path,
) -> None:
    """Measure augmenters on your own texts and questions.

    An interrupted run resumes when it is started again with the same options. The exit code is 0 if a report
    was written, 1 if every question failed, and 2 if the input is invalid.
    """
    with _plain_errors():
        settings = read_settings(config) if config else Settings()
        made = {**settings.augmenters, **named_augmenters(augmenters)} or named_augmenters(DEFAULTS)
        llm = _load_llm(llm_name, llm_url, cache) if llm_name else None
        embedding = load_model(model) if model else None
        problems = list(settings.notes)
        documents = _read_documents(docs, problems)
        asked = _read_questions(questions, documents, problems)
        corpus = build_corpus(documents, chunk_size, chunk_overlap, cache=cache, show_progress=True)
        _note(check_questions(asked, node_ids={node.node_id for node in corpus.nodes}), problems)
        hits = top_k or settings.top_k or _TOP_K
        wide = WIDE_POOL_AUGMENTERS & made.keys()
        pool = max(hits * _POOL_FACTOR if budgets else hits, WIDE_POOL if wide else 0)
        systems = {name: make(corpus.docstore) for name, make in made.items()}
        if embedding and settings.top_k:  # AutoRAG scores the added nodes and keeps the best
            for name in settings.augmenters:
                systems[name].append(
                    EmbeddingRescorePostprocessor(embed_model=embedding, top_k=settings.top_k)
                )
        click.echo(f"Indexing {len(corpus.nodes)} chunks", err=True)
        report = compare(
            make_retriever(corpus, pool, embedding),
            systems,
            asked,
            budgets=budgets,
            top_k={name: hits for name in (BASELINE, *made) if name not in wide},
            llm=llm,
            answer_prompt=SHORT_ANSWER_PROMPT,
            show_progress=True,
            save_to=out / f"rows-{corpus.fingerprint}-{model.name if model else 'bm25'}.jsonl",
            problems=problems,
        )
        _finish(report, settings, out)


def _note(sentences: Iterable[str], problems: list[str]) -> None:
    """Show sentences on stderr and keep them for the report."""
    for sentence in sentences:
        problems.append(sentence)
        click.echo(f"note: {for_terminal(sentence, 300)}", err=True)


def _read_documents(docs: Path, problems: list[str]) -> list[Document]:
    click.echo(f"Reading {for_terminal(str(docs))}", err=True)
    found: list[str] = []
    documents = read_documents(docs, problems=found, show_progress=True)
    _note(found, problems)
    return documents


def _build(docs: Path, chunk_size: int, chunk_overlap: int, cache: Path | None) -> Corpus:
    documents = _read_documents(docs, [])
    return build_corpus(documents, chunk_size, chunk_overlap, cache=cache, show_progress=True)


def _read_questions(path: Path, documents: Iterable[Document], problems: list[str]) -> list[Question]:
    """Read and check questions before anything is indexed, which may take long."""
    texts = {document.id_: document.text for document in documents}
    found: list[str] = []
    asked = load_questions(path, documents=texts, problems=found)
    if not any(question.evidence or question.answers or question.expected_ids for question in asked):
        raise ConfigurationError(
            f"{str(path)!r}: no question has anything to measure by; "
            "give some of them evidence, answers or expected_ids"
        )
    _note([*found, *check_questions(asked, documents=texts)], problems)
    return asked


def _load_llm(name: str, url: str | None, cache: Path | None) -> CachedLLM:
    model: LLM = load_extra("llama_index.llms.openai_like", "llm").OpenAILike(
        model=name,
        api_base=url or os.environ.get("OPENAI_API_BASE", "https://api.openai.com/v1"),
        api_key=os.environ.get("OPENAI_API_KEY", "none"),
        is_chat_model=True,
        temperature=0.0,
    )
    return CachedLLM(model, cache / "replies.jsonl" if cache else None)


def _finish(report: Report, settings: Settings, out: Path) -> None:
    if all(row.errors and not row.blocks for row in report.rows if row.budget is None):
        click.echo(str(report))
        raise click.exceptions.Exit(1)
    report.choose(settings.metrics, **settings.choice)
    for budget in report.budgets[1:]:
        click.echo(f"Within {budget} tokens: {report.choice_within(budget).winner}.")
    page = report.save(out)
    click.echo(f"\n{report}\n\nThe report: {page}")


@ctxaug.command("show")
@click.argument("question")
@_corpus_options
@_augmenters
@_top_k
@_model
@click.option("--out", type=_PATH, help="Write the context map to this HTML file.")
def show_command(
    *,
    question: str,
    docs: Path,
    augmenters: tuple[str, ...],
    top_k: int | None,
    model: Path | None,
    chunk_size: int,
    chunk_overlap: int,
    cache: Path | None,
    out: Path | None,
) -> None:
    """Show the context of one QUESTION, without augmentation and with it."""
    with _plain_errors():
        made = named_augmenters(augmenters or DEFAULTS[:2])
        corpus = _build(docs, chunk_size, chunk_overlap, cache)
        hits = top_k or _TOP_K
        size = max(hits, WIDE_POOL if WIDE_POOL_AUGMENTERS & made.keys() else 0)
        pool = make_retriever(corpus, size, load_model(model) if model else None).retrieve(question)
        systems = {"retrieved": blocks_of(pool[:hits])}
        for name, make in made.items():
            nodes = pool if name in WIDE_POOL_AUGMENTERS else pool[:hits]
            for postprocessor in make(corpus.docstore):
                nodes = postprocessor.postprocess_nodes(nodes, query_str=question)
            systems[name] = blocks_of(nodes)
        context = ContextMap(systems, question)
        click.echo(str(context))
        if out:
            click.echo(f"\nThe context map: {context.save(out)}")


@ctxaug.command("questions")
@_corpus_options
@_llm_options(required=True)
@click.option(
    "--count", type=click.IntRange(min=1), default=40, show_default=True, help="Passages to draft from."
)
@click.option("--out", required=True, type=_PATH, help="A .jsonl file for the questions.")
def questions_command(
    *,
    docs: Path,
    llm_name: str,
    llm_url: str | None,
    count: int,
    chunk_size: int,
    chunk_overlap: int,
    cache: Path | None,
    out: Path,
) -> None:
    """Draft questions with evidence and answers over your own texts.

    A question is kept only if its evidence is part of the text, word for word. Check the page beside the
    questions before you use them.
    """
    with _plain_errors():
        llm = _load_llm(llm_name, llm_url, cache)
        corpus = _build(docs, chunk_size, chunk_overlap, cache)
        texts = {document.id_: document.text for document in corpus.documents}
        drafts = draft_questions(texts, corpus.nodes, llm, count, show_progress=True)
        sheet = drafts.save(out)
        for reason, dropped in drafts.dropped.items():
            click.echo(f"dropped {dropped}: {for_terminal(reason)}", err=True)
        click.echo(f"{len(drafts.kept)} questions: {out}\nCheck them before use: {sheet}")


@ctxaug.command("mcp")
@_corpus_options
@_top_k
@_model
@click.option(
    "--max-tokens",
    type=click.IntRange(min=32),
    default=800,
    show_default=True,
    help="Maximum tokens of one answer.",
)
@click.option(
    "--http", "port", type=click.IntRange(1, 65535), help="Serve over HTTP on this port instead of stdio."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the HTTP server.")
def mcp_command(
    *,
    docs: Path,
    top_k: int | None,
    model: Path | None,
    chunk_size: int,
    chunk_overlap: int,
    cache: Path | None,
    max_tokens: int,
    port: int | None,
    host: str,
) -> None:
    """Serve a folder to agents over the Model Context Protocol: search it, then read on.

    The tools only read. Anybody who reaches the address can call them: the default is this machine alone.
    """
    with _plain_errors():
        module = load_extra("llama_index_ext_ctxaug.tools.mcp_server", "mcp")
        embedding = load_model(model) if model else None
        corpus = _build(docs, chunk_size, chunk_overlap, cache)
        spec = ReadAroundToolSpec(
            docstore=corpus.docstore,
            retriever=make_retriever(corpus, top_k or _TOP_K, embedding),
            max_tokens=max_tokens,
        )
        server = module.mcp_server(spec)
    if port is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host=host, port=port)

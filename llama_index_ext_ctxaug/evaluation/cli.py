"""The subcommands of `ctxaug`."""

from __future__ import annotations

from pathlib import Path

import click
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.storage.docstore.types import DEFAULT_PERSIST_FNAME as DOCSTORE_FILE

from llama_index_ext_ctxaug import (
    ConfigurationError,
    EmbeddingRescorePostprocessor,
    ReadAroundToolSpec,
    __version__,
    diagnose,
)
from llama_index_ext_ctxaug.evaluation.answer_metrics import SHORT_ANSWER_PROMPT
from llama_index_ext_ctxaug.evaluation.cli_inputs import (
    PATH,
    TOP_K,
    Source,
    augmenters_option,
    llm_options,
    model_option,
    note,
    plain_errors,
    read_questions,
    top_k_option,
    with_source,
)
from llama_index_ext_ctxaug.evaluation.compare import compare
from llama_index_ext_ctxaug.evaluation.context_blocks import blocks_of
from llama_index_ext_ctxaug.evaluation.context_map import ContextMap
from llama_index_ext_ctxaug.evaluation.corpus import load_model, make_retriever
from llama_index_ext_ctxaug.evaluation.drafting import draft_questions
from llama_index_ext_ctxaug.evaluation.escaping import for_terminal
from llama_index_ext_ctxaug.evaluation.extras import load_extra
from llama_index_ext_ctxaug.evaluation.questions import check_questions
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

_POOL_FACTOR = 4
"""Factor by which more hits are retrieved than augmenters get, for the pass-through within a budget."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__)
def ctxaug() -> None:
    """Find the context augmenter that helps on your data."""


@ctxaug.command("augmenters")
def list_augmenters() -> None:
    """List the names that --augmenter accepts."""
    for name in AUGMENTERS:
        click.echo(f"{name}{'  (compared by default)' if name in DEFAULTS else ''}")


@ctxaug.command("check")
@click.argument("folder", type=PATH)
def check_command(*, folder: Path) -> None:
    """Check the docstore of an index that was persisted to FOLDER, and print findings with their remedies."""
    with plain_errors():
        if not (folder / DOCSTORE_FILE).is_file():
            raise ConfigurationError(
                f"{str(folder)!r} holds no {DOCSTORE_FILE}: index.storage_context.persist(...) writes it"
            )
        click.echo(str(diagnose(SimpleDocumentStore.from_persist_dir(str(folder)))))


@ctxaug.command("compare")
@with_source
@click.option("--questions", required=True, type=PATH, help="A .jsonl, .csv or .parquet file.")
@click.option("--config", type=PATH, help="A YAML file in AutoRAG's format.")
@augmenters_option
@click.option(
    "--budget", "budgets", multiple=True, type=click.IntRange(min=1), help="Tokens to compare within."
)
@top_k_option
@model_option
@llm_options(required=False)
@click.option("--out", required=True, type=PATH, help="Folder for the report.")
def compare_command(
    *,
    source: Source,
    questions: Path,
    config: Path | None,
    augmenters: tuple[str, ...],
    budgets: tuple[int, ...],
    top_k: int | None,
    model: Path | None,
    llm_name: str | None,
    llm_url: str | None,
    out: Path,
) -> None:
    """Measure augmenters on your own texts and questions.

    An interrupted run resumes when it is started again with the same options. The exit code is 0 if a report
    was written, 1 if every question failed, and 2 if the input is invalid.
    """
    settings = read_settings(config) if config else Settings()
    made = {**settings.augmenters, **named_augmenters(augmenters)} or named_augmenters(DEFAULTS)
    llm = source.llm(llm_name, llm_url) if llm_name else None
    embedding = load_model(model) if model else None
    problems = list(settings.notes)
    documents = source.documents(problems)
    asked = read_questions(questions, documents, problems)
    corpus = source.corpus(documents)
    note(check_questions(asked, node_ids={node.node_id for node in corpus.nodes}), problems)
    hits = top_k or settings.top_k or TOP_K
    wide = WIDE_POOL_AUGMENTERS & made.keys()
    pool = max(hits * _POOL_FACTOR if budgets else hits, WIDE_POOL if wide else 0)
    systems = {name: make(corpus.docstore) for name, make in made.items()}
    if embedding and settings.top_k:  # AutoRAG scores the added nodes and keeps the best
        for name in settings.augmenters:
            systems[name].append(EmbeddingRescorePostprocessor(embed_model=embedding, top_k=settings.top_k))
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
@with_source
@augmenters_option
@top_k_option
@model_option
@click.option("--out", type=PATH, help="Write the context map to this HTML file.")
def show_command(
    *,
    source: Source,
    question: str,
    augmenters: tuple[str, ...],
    top_k: int | None,
    model: Path | None,
    out: Path | None,
) -> None:
    """Show the context of one QUESTION, without augmentation and with it."""
    made = named_augmenters(augmenters or DEFAULTS[:2])
    corpus = source.corpus()
    hits = top_k or TOP_K
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
@with_source
@llm_options(required=True)
@click.option("--count", type=click.IntRange(min=1), default=40, help="Passages to draft from.")
@click.option("--out", required=True, type=PATH, help="A .jsonl file for the questions.")
def questions_command(*, source: Source, llm_name: str, llm_url: str | None, count: int, out: Path) -> None:
    """Draft questions with evidence and answers over your own texts.

    A question is kept only if its evidence is part of the text, word for word. Check the page beside the
    questions before you use them.
    """
    llm = source.llm(llm_name, llm_url)
    corpus = source.corpus()
    texts = {document.id_: document.text for document in corpus.documents}
    drafts = draft_questions(texts, corpus.nodes, llm, count, show_progress=True)
    sheet = drafts.save(out)
    for reason, dropped in drafts.dropped.items():
        click.echo(f"dropped {dropped}: {for_terminal(reason)}", err=True)
    click.echo(f"{len(drafts.kept)} questions: {out}\nCheck them before use: {sheet}")


@ctxaug.command("mcp")
@with_source
@top_k_option
@model_option
@click.option("--max-tokens", type=click.IntRange(min=32), default=800, help="Maximum tokens of one answer.")
@click.option(
    "--http", "port", type=click.IntRange(1, 65535), help="Serve over HTTP on this port instead of stdio."
)
@click.option("--host", default="127.0.0.1", help="Address of the HTTP server.")
def mcp_command(
    *, source: Source, top_k: int | None, model: Path | None, max_tokens: int, port: int | None, host: str
) -> None:
    """Serve a folder to agents over the Model Context Protocol: search it, then read on.

    The tools only read. Anybody who reaches the address can call them: the default is this machine alone.
    """
    module = load_extra("llama_index_ext_ctxaug.tools.mcp_server", "mcp")
    embedding = load_model(model) if model else None
    corpus = source.corpus()
    retriever = make_retriever(corpus, top_k or TOP_K, embedding)
    spec = ReadAroundToolSpec(docstore=corpus.docstore, retriever=retriever, max_tokens=max_tokens)
    server = module.mcp_server(spec)
    if port is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host=host, port=port)

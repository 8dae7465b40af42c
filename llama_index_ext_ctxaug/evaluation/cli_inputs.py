"""Options and inputs that the subcommands of `ctxaug` share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from llama_index.core import Document

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation.cached_llm import CachedLLM
from llama_index_ext_ctxaug.evaluation.corpus import Corpus, build_corpus, read_documents
from llama_index_ext_ctxaug.evaluation.escaping import for_terminal
from llama_index_ext_ctxaug.evaluation.extras import load_extra
from llama_index_ext_ctxaug.evaluation.questions import Question, check_questions, load_questions

Command = Callable[..., None]

TOP_K = 5

PATH = click.Path(path_type=Path)
augmenters_option = click.option(
    "--augmenter", "augmenters", multiple=True, help="Name of an augmenter; see `ctxaug augmenters`."
)
top_k_option = click.option(
    "--top-k", type=click.IntRange(min=1), help=f"Hits for each question  [default: {TOP_K}]"
)
model_option = click.option(
    "--model", type=PATH, help="Path of a sentence-transformers model; BM25 if absent."
)
_source_options = (
    click.option(
        "--docs", required=True, type=PATH, help="Folder of .txt, .md, .rst, .pdf, .html and .docx files."
    ),
    click.option("--chunk-size", type=click.IntRange(min=1), default=256, help="Maximum tokens of a chunk."),
    click.option("--chunk-overlap", type=click.IntRange(min=0), default=20, help="Tokens that chunks share."),
    click.option("--cache", type=PATH, help="Folder that keeps the index and replies for later runs."),
)


@dataclass
class Source:
    """The options of a folder of documents, and its parts."""

    docs: Path
    chunk_size: int
    chunk_overlap: int
    cache: Path | None

    def documents(self, problems: list[str]) -> list[Document]:
        """Read the files; note those that cannot be read."""
        click.echo(f"Reading {for_terminal(str(self.docs))}", err=True)
        found: list[str] = []
        documents = read_documents(self.docs, problems=found, show_progress=True)
        note(found, problems)
        return documents

    def corpus(self, documents: list[Document] | None = None) -> Corpus:
        """Read the files if they were not, and split them."""
        documents = self.documents([]) if documents is None else documents
        return build_corpus(
            documents, self.chunk_size, self.chunk_overlap, cache=self.cache, show_progress=True
        )

    def llm(self, name: str, url: str | None) -> CachedLLM:
        """Return a model behind an OpenAI-compatible endpoint; the key is that of OPENAI_API_KEY."""
        model = load_extra("llama_index.llms.openai_like", "llm").OpenAILike(
            model=name,
            api_base=url or os.environ.get("OPENAI_API_BASE", "https://api.openai.com/v1"),
            api_key=os.environ.get("OPENAI_API_KEY", "none"),
            is_chat_model=True,
            temperature=0.0,
        )
        return CachedLLM(model, self.cache / "replies.jsonl" if self.cache else None)


def with_source(command: Command) -> Command:
    """Add the options of a folder to a command, which gets them as `source`."""

    @functools.wraps(command)
    def call(docs: Path, chunk_size: int, chunk_overlap: int, cache: Path | None, **options: Any) -> None:
        with plain_errors():
            command(source=Source(docs, chunk_size, chunk_overlap, cache), **options)

    for option in reversed(_source_options):
        call = option(call)
    return call


def llm_options(*, required: bool) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of a model."""
    purpose = "drafts the questions" if required else "answers the questions from each context"

    def add(command: Command) -> Command:
        url = click.option("--llm-url", help="URL of an OpenAI-compatible endpoint; OpenAI's if absent.")
        return click.option("--llm", "llm_name", required=required, help=f"Model that {purpose}.")(
            url(command)
        )

    return add


class _InvalidInput(click.ClickException):
    exit_code = 2


@contextmanager
def plain_errors() -> Iterator[None]:
    """Report invalid input in one sentence with exit code 2, without a traceback."""
    try:
        yield
    except ConfigurationError as error:
        raise _InvalidInput(for_terminal(str(error), 1000)) from error


def note(sentences: Iterable[str], problems: list[str]) -> None:
    """Show sentences on stderr and keep them for the report."""
    for sentence in sentences:
        problems.append(sentence)
        click.echo(f"note: {for_terminal(sentence, 300)}", err=True)


def read_questions(path: Path, documents: Iterable[Document], problems: list[str]) -> list[Question]:
    """Read and check questions before anything is indexed, which may take long."""
    texts = {document.id_: document.text for document in documents}
    found: list[str] = []
    asked = load_questions(path, documents=texts, problems=found)
    if not any(question.evidence or question.answers or question.expected_ids for question in asked):
        raise ConfigurationError(
            f"{str(path)!r}: no question has anything to measure by; "
            "give some of them evidence, answers or expected_ids"
        )
    note([*found, *check_questions(asked, documents=texts)], problems)
    return asked

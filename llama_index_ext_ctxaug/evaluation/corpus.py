"""Read a folder of files into chunks, a docstore and a retriever."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from llama_index.core import Document, StorageContext, VectorStoreIndex, load_index_from_storage
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.utils import get_tqdm_iterable

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation.extras import load_extra

_PARALLEL_CHARACTERS = 8_000_000
"""Shorter corpora are split in this process: starting others takes longer."""

_BATCH = 16
"""Documents that a process splits at a time."""

_BLOCKS = {
    *("address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "fieldset", "figcaption"),
    *("figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav"),
    *("ol", "p", "pre", "section", "table", "td", "th", "tr", "ul"),
}


@dataclass
class Corpus:
    """Documents and their chunks, with ids such as "notes/a.txt#3", and a store of both.

    The fingerprint is equal for equal documents and chunk sizes; `cache` is the folder of the index.
    """

    documents: Sequence[Document]
    nodes: Sequence[BaseNode]
    docstore: SimpleDocumentStore
    fingerprint: str
    cache: Path | None = None


def read_documents(
    folder: str | Path, *, problems: list[str] | None = None, show_progress: bool = False
) -> list[Document]:
    """Read the files of a folder and its subfolders: text, and with the extra `readers` PDF, HTML and DOCX.

    A file that cannot be read adds a sentence to `problems`.

    Raises:
        ConfigurationError: no folder, no text in it, or the extra is not installed.
    """
    folder, problems = Path(folder), [] if problems is None else problems
    if not folder.is_dir():
        raise ConfigurationError(f"{str(folder)!r} is not a folder; give one with {', '.join(READERS)} files")
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in READERS and path.is_file()]
    documents = []
    for path in get_tqdm_iterable(paths, show_progress, "Reading documents"):
        try:
            text = READERS[path.suffix.lower()](path)
        except ConfigurationError:
            raise
        except Exception as error:  # the readers of PDF and DOCX raise errors of many kinds
            problems.append(f"{str(path)!r} cannot be read and is left out: {error}")
            continue
        if text.strip():
            name = path.relative_to(folder).as_posix()
            document = Document(id_=name, text=text, metadata={"file_path": name})
            document.excluded_llm_metadata_keys.append("file_path")
            document.excluded_embed_metadata_keys.append("file_path")
            documents.append(document)
        else:
            problems.append(f"{str(path)!r} has no text and is left out")
    if not documents:
        more = f" {len(problems)} files cannot be read; the first: {problems[0]}" if problems else ""
        raise ConfigurationError(f"no text in {str(folder)!r}; it needs {', '.join(READERS)} files.{more}")
    return documents


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 ({error})") from error


def _pdf(path: Path) -> str:
    load_extra("pypdf", "readers")
    return _by_reader("PDFReader", path, return_full_document=True)


def _docx(path: Path) -> str:
    load_extra("docx2txt", "readers")
    return _by_reader("DocxReader", path)


def _by_reader(name: str, path: Path, **options: Any) -> str:
    reader = getattr(load_extra("llama_index.readers.file", "readers"), name)(**options)
    return "\n\n".join(document.text for document in reader.load_data(path))


def _html(path: Path) -> str:
    """Return the text of a page; LlamaIndex's HTMLTagReader joins words of neighboring blocks."""
    soup = load_extra("bs4", "readers").BeautifulSoup(path.read_bytes(), "html.parser")
    body = soup.body or soup
    for block in body.find_all(_BLOCKS):
        block.insert_before("\n")
        block.insert_after("\n")
    lines = [" ".join(line.split()) for line in body.get_text().splitlines()]
    return "\n".join(line for line in lines if line)


READERS = {
    ".txt": _text,
    ".md": _text,
    ".rst": _text,
    ".pdf": _pdf,
    ".html": _html,
    ".htm": _html,
    ".docx": _docx,
}
"""Readers by the suffix of the file."""


def build_corpus(
    documents: Sequence[Document],
    chunk_size: int = 256,
    chunk_overlap: int = 20,
    *,
    cache: Path | None = None,
    show_progress: bool = False,
) -> Corpus:
    """Split documents into chunks and put both into a docstore, which `cache` keeps for later runs.

    Raises:
        ConfigurationError: invalid sizes in tokens.
    """
    fingerprint = _fingerprint(documents, chunk_size, chunk_overlap)
    kept = cache / fingerprint if cache else None
    if kept and (kept / "docstore.json").is_file():
        docstore = SimpleDocumentStore.from_persist_path(str(kept / "docstore.json"))
        ids = {document.id_ for document in documents}
        nodes = [node for id_, node in docstore.docs.items() if id_ not in ids]
        return Corpus(documents, nodes, docstore, fingerprint, kept)
    try:
        nodes = list(_split_all(documents, chunk_size, chunk_overlap, show_progress))
    except ValueError as error:
        raise ConfigurationError(f"chunks of {chunk_size} tokens: {error}") from error
    docstore = SimpleDocumentStore()
    docstore.add_documents([*documents, *nodes])
    if kept:
        docstore.persist(str(kept / "docstore.json"))
    return Corpus(documents, nodes, docstore, fingerprint, kept)


def _fingerprint(documents: Iterable[Document], *sizes: int) -> str:
    digest = hashlib.sha256(json.dumps(sizes).encode())
    for document in documents:
        digest.update(json.dumps([document.id_, document.text]).encode())
    return digest.hexdigest()[:12]


def _split_all(
    documents: Sequence[Document], chunk_size: int, chunk_overlap: int, show_progress: bool
) -> Iterator[BaseNode]:
    """Yield the chunks of all documents, split in several processes if they are long."""
    batches = [documents[start : start + _BATCH] for start in range(0, len(documents), _BATCH)]
    arguments = (batches, repeat(chunk_size), repeat(chunk_overlap))
    long = sum(len(document.text) for document in documents) > _PARALLEL_CHARACTERS
    with ExitStack() as stack:
        run: Callable[..., Iterator[list[BaseNode]]] = map
        if long and len(batches) > 1:
            executor = ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=get_context("spawn"))
            run = stack.enter_context(executor).map
        yield from chain.from_iterable(
            get_tqdm_iterable(
                run(_split, *arguments), show_progress, "Splitting documents", total=len(batches)
            )
        )


def _split(documents: Sequence[Document], chunk_size: int, chunk_overlap: int) -> list[BaseNode]:
    splitter = SentenceSplitter(
        chunk_size=chunk_size,
        chunk_overlap=chunk_overlap,
        id_func=lambda number, document: f"{document.node_id}#{number}",
    )
    return splitter.get_nodes_from_documents(documents)


def make_retriever(corpus: Corpus, top_k: int, model: BaseEmbedding | None = None) -> BaseRetriever:
    """Return a retriever of `top_k` chunks, by an embedding model or else by BM25.

    Raises:
        ConfigurationError: the BM25 retriever is not installed.
    """
    top_k = min(top_k, len(corpus.nodes))
    return _bm25(corpus, top_k) if model is None else _by_embedding(corpus, top_k, model)


def _bm25(corpus: Corpus, top_k: int) -> BaseRetriever:
    retriever_class = load_extra("llama_index.retrievers.bm25", "cli").BM25Retriever
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    kept = corpus.cache / "bm25" if corpus.cache else None
    if kept and kept.is_dir():
        retriever: BaseRetriever = retriever_class.from_persist_dir(str(kept))
        retriever.similarity_top_k = top_k  # type: ignore[attr-defined]
        return retriever
    retriever = retriever_class.from_defaults(nodes=corpus.nodes, similarity_top_k=top_k)
    if kept:
        retriever.persist(str(kept))  # type: ignore[attr-defined]
    return retriever


def _by_embedding(corpus: Corpus, top_k: int, model: BaseEmbedding) -> BaseRetriever:
    kept = corpus.cache / Path(model.model_name).name if corpus.cache else None
    if kept and kept.is_dir():
        index = load_index_from_storage(
            StorageContext.from_defaults(persist_dir=str(kept)), embed_model=model
        )
    else:
        index = VectorStoreIndex(list(corpus.nodes), embed_model=model, show_progress=True)
        if kept:
            index.storage_context.persist(str(kept))
    retriever: BaseRetriever = index.as_retriever(similarity_top_k=top_k)
    return retriever


def load_model(path: str | Path) -> BaseEmbedding:
    """Load the sentence-transformers model in a folder; nothing is downloaded.

    Raises:
        ConfigurationError: no folder, or the embedding integration is not installed.
    """
    if not Path(path).is_dir():
        raise ConfigurationError(f"{str(path)!r} is not the folder of a sentence-transformers model")
    huggingface = load_extra("llama_index.embeddings.huggingface", "huggingface")
    model: BaseEmbedding = huggingface.HuggingFaceEmbedding(model_name=str(path))
    return model

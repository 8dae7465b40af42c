"""Read a folder of texts into chunks, a docstore and a retriever."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field
from pathlib import Path

from llama_index.core import Document, VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation.extras import load_extra

TEXT_FILES = frozenset({".txt", ".md", ".rst"})


@dataclass
class Corpus:
    """The texts of a folder.

    Attributes:
        documents: the documents; the id of each is its path in the folder.
        nodes: their chunks, with ids such as "notes/a.txt#3", counted from 0.
        docstore: a store of both.
        problems: a sentence for each file that could not be read.
    """

    documents: list[Document]
    nodes: list[BaseNode]
    docstore: SimpleDocumentStore
    problems: list[str] = field(default_factory=list)

    @property
    def fingerprint(self) -> str:
        """A short text that is equal for equal chunks of equal documents."""
        digest = hashlib.sha256()
        for node in self.nodes:
            digest.update(f"{node.node_id}\0{node.get_content()}\0".encode(errors="replace"))
        return digest.hexdigest()[:12]

    @property
    def texts(self) -> dict[str, str]:
        """Text by document name: path in the folder, and file name with and without its suffix."""
        result: dict[str, str] = {}
        for document in self.documents:
            path = Path(document.id_)
            for name in (document.id_, path.name, path.stem):
                result.setdefault(name, document.text)
        return result


def read_corpus(folder: str | Path, chunk_size: int = 256, chunk_overlap: int = 20) -> Corpus:
    """Read the .txt, .md and .rst files of a folder and its subfolders, and split them into chunks.

    Args:
        folder: the folder.
        chunk_size: maximum tokens of a chunk.
        chunk_overlap: tokens that neighboring chunks share.

    Raises:
        ConfigurationError: no folder, no text in it, or invalid sizes.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ConfigurationError(f"{str(folder)!r} is not a folder; give one with .txt, .md or .rst files")
    documents, problems = [], []
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in TEXT_FILES and path.is_file():
            try:
                text = path.read_bytes().decode("utf-8-sig")
            except (OSError, UnicodeDecodeError) as error:
                problems.append(f"{str(path)!r} cannot be read as UTF-8 and is left out: {error}")
                continue
            if text.strip():
                documents.append(_document(text, path.relative_to(folder)))
    if not documents:
        more = f" {len(problems)} files cannot be read; the first: {problems[0]}" if problems else ""
        raise ConfigurationError(f"no text in {str(folder)!r}; it needs .txt, .md or .rst files.{more}")
    try:
        splitter = SentenceSplitter(
            chunk_size=chunk_size,
            chunk_overlap=chunk_overlap,
            id_func=lambda number, document: f"{document.node_id}#{number}",
        )
        nodes = splitter.get_nodes_from_documents(documents)
    except ValueError as error:
        raise ConfigurationError(f"chunks of {chunk_size} tokens: {error}") from error
    docstore = SimpleDocumentStore()
    docstore.add_documents([*documents, *nodes])
    return Corpus(documents, nodes, docstore, problems)


def _document(text: str, path: Path) -> Document:
    """Return a document whose name is kept out of the text that models read."""
    metadata = {"file_path": path.as_posix(), "file_name": path.name, "doc_id": path.stem}
    keys = list(metadata)
    return Document(
        id_=path.as_posix(),
        text=text,
        metadata=metadata,
        excluded_llm_metadata_keys=keys,
        excluded_embed_metadata_keys=keys,
    )


def make_retriever(corpus: Corpus, top_k: int, model: BaseEmbedding | None = None) -> BaseRetriever:
    """Return a retriever over the chunks, by BM25 or an embedding model.

    Args:
        corpus: the corpus.
        top_k: hits to retrieve.
        model: the embedding model; None for BM25.

    Raises:
        ConfigurationError: the BM25 retriever is not installed.
    """
    top_k = min(top_k, len(corpus.nodes))
    if model is None:
        return _bm25(corpus, top_k)
    return VectorStoreIndex(corpus.nodes, embed_model=model).as_retriever(similarity_top_k=top_k)


def _bm25(corpus: Corpus, top_k: int) -> BaseRetriever:
    bm25 = load_extra("llama_index.retrievers.bm25", "cli")
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    retriever: BaseRetriever = bm25.BM25Retriever.from_defaults(nodes=corpus.nodes, similarity_top_k=top_k)
    return retriever


def load_model(path: str | Path) -> BaseEmbedding:
    """Load the sentence-transformers model in a folder; nothing is downloaded.

    Args:
        path: the folder.

    Raises:
        ConfigurationError: no folder, or the embedding integration is not installed.
    """
    if not Path(path).is_dir():
        raise ConfigurationError(f"{str(path)!r} is not the folder of a sentence-transformers model")
    huggingface = load_extra("llama_index.embeddings.huggingface", "huggingface")
    model: BaseEmbedding = huggingface.HuggingFaceEmbedding(model_name=str(path))
    return model

"""Show what context augmentation adds: the context for one question, without it and with it.

    python examples/quickstart.py
    python examples/quickstart.py --question "What does the with statement do?"
    python examples/quickstart.py --docs my_texts/ --question "..."

Without --docs it reads the Python language reference that every CPython carries. No key, server or
download is needed; with OPENAI_API_KEY set (and the extra `openai`) an LLM answers as well.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import sys
import textwrap
from pathlib import Path
from pydoc_data.topics import topics

from llama_index.core import Document, get_response_synthesizer
from llama_index.core.llms import LLM, MockLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.utils import get_tokenizer
from llama_index.retrievers.bm25 import BM25Retriever

from llama_index_ext_ctxaug import PrevNextNodePostprocessor, Provenance, read_provenance
from llama_index_ext_ctxaug.testing import ObservedDocstore

QUESTION = "What happens when a generator function is called?"
TEXT_FILES = {".txt", ".md", ".rst"}


def main() -> int:
    """Run the program; return the exit code."""
    options = parse_arguments()
    try:
        documents = read_folder(options.docs) if options.docs else language_reference()
    except ValueError as error:
        print(f"quickstart: {error}", file=sys.stderr)
        return 2
    logging.getLogger("bm25s").setLevel(logging.WARNING)

    nodes = SentenceSplitter(chunk_size=options.chunk_size, chunk_overlap=20).get_nodes_from_documents(
        documents
    )
    docstore = SimpleDocumentStore()
    docstore.add_documents([*documents, *nodes])  # the documents show what lies between the chunks
    observed = ObservedDocstore(docstore)  # counts the reads; use your docstore as it is
    retriever = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=min(options.top_k, len(nodes)))
    augmenter = PrevNextNodePostprocessor(docstore=observed, num_nodes=options.num_nodes, mode="both")
    as_passages = augmenter.model_copy(update={"output": "passages"})

    hits = [hit for hit in retriever.retrieve(options.question) if hit.score]
    print_title(f"{len(documents)} documents, {len(nodes)} chunks. {options.question}")
    if not hits:
        print("No chunk shares a word with this question: try another one.")
        return 0
    print_context("Without augmentation", hits)
    augmented = augmenter.postprocess_nodes(hits)
    print_context("With PrevNextNodePostprocessor", augmented, reads=len(observed.batches))
    observed.reset()
    passages = as_passages.postprocess_nodes(hits)
    saved = 1 - count_tokens(passages) / count_tokens(augmented)
    print_context('The same with output="passages"', passages, reads=len(observed.batches))
    print(
        f"\nThe passages hold the same text in {saved:.0%} fewer tokens: text that chunks share appears once,"
    )
    print("and so does the metadata of chunks that are one passage.")

    llm, answers = choose_llm()
    engine = RetrieverQueryEngine(
        retriever, get_response_synthesizer(llm=llm), node_postprocessors=[augmenter]
    )
    print_title("The same in a query engine")
    response = engine.query(options.question)
    print(f"engine.query          {len(response.source_nodes)} source nodes")
    response = asyncio.run(engine.aquery(options.question))
    print(f"await engine.aquery   {len(response.source_nodes)} source nodes")
    if answers:
        print(wrap(f"\n{response}"))
    else:
        print("(With OPENAI_API_KEY set, the engine also answers.)")
    return 0


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Shows what context augmentation adds for one question.")
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--docs", type=Path, metavar="FOLDER", help="your own .txt, .md and .rst files")
    parser.add_argument("--top-k", type=positive, default=3, help="hits to retrieve (default 3)")
    parser.add_argument("--num-nodes", type=positive, default=1, help="chunks on each side (default 1)")
    parser.add_argument("--chunk-size", type=positive, default=128, help="tokens of a chunk (default 128)")
    return parser.parse_args()


def positive(text: str) -> int:
    """Parse a whole number from 1 up, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, is {number}")
    return number


def language_reference() -> list[Document]:
    """Return the topics of Python's help(), which are chapters of the language reference."""
    return [Document(text=text, metadata={"topic": name}) for name, text in sorted(topics.items())]


def read_folder(folder: Path) -> list[Document]:
    """Return the text files of a folder and its subfolders.

    Raises:
        ValueError: the folder does not exist, or holds no text.
    """
    if not folder.is_dir():
        raise ValueError(f"{str(folder)!r} is not a folder; give one that holds .txt, .md or .rst files")
    paths = [
        path for path in sorted(folder.rglob("*")) if path.suffix.lower() in TEXT_FILES and path.is_file()
    ]
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in paths}
    documents = [
        Document(text=text, metadata={"file": str(path.relative_to(folder))})
        for path, text in texts.items()
        if text.strip()
    ]
    if not documents:
        raise ValueError(f"no text in {str(folder)!r}; it needs .txt, .md or .rst files that are not empty")
    return documents


def choose_llm() -> tuple[LLM, bool]:
    """Return OpenAI if it has a key, otherwise a mock, and whether it can answer."""
    if not os.environ.get("OPENAI_API_KEY"):
        return MockLLM(max_tokens=1), False
    from llama_index.llms.openai import OpenAI

    return OpenAI(model="gpt-4o-mini"), True


def print_context(title: str, nodes: list[NodeWithScore], reads: int = 0) -> None:
    """Print the nodes in the order in which a model reads them, with hits and neighbors marked."""
    print_title(f"{title}: {len(nodes)} nodes, {count_tokens(nodes)} tokens, batched reads: {reads}")
    for hit in nodes:
        provenance = read_provenance(hit.node)
        kind = "hit" if provenance is None else describe(provenance)
        score = "" if hit.score is None else f", score {hit.score:.2f}"
        print(f"[{kind}{score}] {origin(hit.node)}")
        mark = "  " if provenance and provenance.role == "neighbor" else "| "
        print(textwrap.indent(wrap(shorten(hit.node.get_content(MetadataMode.NONE))), mark, lambda _: True))


def count_tokens(nodes: list[NodeWithScore]) -> int:
    """Count the tokens that a model reads."""
    tokenizer = get_tokenizer()
    return sum(len(tokenizer(hit.node.get_content(metadata_mode=MetadataMode.LLM))) for hit in nodes)


def describe(provenance: Provenance) -> str:
    """Describe the origin of an added or made node."""
    if provenance.role == "passage":
        roles = [piece.role for piece in provenance.pieces]
        return f"passage of {roles.count('hit')} hits and {roles.count('neighbor')} neighbors"
    return f"{provenance.role}, {provenance.hops} away"


def origin(node: BaseNode) -> str:
    """Return the document that a node is from, as its metadata names it."""
    return ", ".join(str(value) for key, value in node.metadata.items() if key in ("topic", "file"))


def shorten(text: str, limit: int = 320) -> str:
    """Return the start and the end of a long text."""
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit // 2]} [...] {text[-limit // 2 :]}"


def wrap(text: str) -> str:
    """Wrap text to the terminal, at most 80 columns."""
    width = min(80, shutil.get_terminal_size().columns) - 4
    return "\n".join(textwrap.fill(line, width, break_long_words=True) for line in text.splitlines())


def print_title(title: str) -> None:
    """Print a title, with a line under it."""
    lines = wrap(title)
    print(f"\n{lines}\n{'-' * max(len(line) for line in lines.splitlines())}")


if __name__ == "__main__":
    sys.exit(main())

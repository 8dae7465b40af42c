"""Answer with page numbers and the highlighted source, by CitationQueryEngine over passages.

    python examples/citations.py
    python examples/citations.py --question "Which exceptions does the import statement raise?"

Needs the extra `examples`; no key, server or download. The text is the language reference that comes with
Python, in pages, as PDF readers return them. A script replaces the language model: it quotes the sentences of
the sources that share most words with the question. Pass any LLM of LlamaIndex instead.
"""

from __future__ import annotations

import argparse
import logging
import re
from pydoc_data.topics import topics

from llama_index.core import Document
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.query_engine import CitationQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import NodeWithScore
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.retrievers.bm25 import BM25Retriever

from llama_index_ext_ctxaug import Citation, PrevNextNodePostprocessor, cite
from llama_index_ext_ctxaug.testing import ScriptedLLM

QUESTIONS = [
    "When is the else clause of a try statement executed?",
    "What does an assert statement do when the optimization is requested?",
]
FILES = {
    "try": "compound_stmts.pdf",
    "assert": "simple_stmts.pdf",
    "import": "import.pdf",
    "with": "with.pdf",
}
LINES_A_PAGE = 30


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description="Answers with page numbers and the highlighted source.")
    parser.add_argument("--question", action="append", help="a question; may be given several times")
    options = parser.parse_args()
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    pages = read_pages()
    engine = citation_engine(pages)
    for question in options.question or QUESTIONS:
        response = engine.query(question)
        print(f"\n=== {question}\n\n{response}\n")
        show_citations(str(response), response.source_nodes, {page.doc_id: page.text for page in pages})


def read_pages() -> list[Document]:
    """Return the pages of each file, each a document with its page number, as PDF readers return them."""
    pages = []
    for topic, file_name in FILES.items():
        lines = topics[topic].splitlines()
        for number, start in enumerate(range(0, len(lines), LINES_A_PAGE), start=1):
            pages.append(
                Document(
                    text="\n".join(lines[start : start + LINES_A_PAGE]),
                    id_=f"{file_name}#{number}",
                    metadata={"file_name": file_name, "page_label": str(number)},
                )
            )
    return pages


def citation_engine(pages: list[Document]) -> CitationQueryEngine:
    """Return LlamaIndex's engine over passages: each hit with a chunk before and after, over page breaks."""
    chunks = SentenceSplitter(chunk_size=128, chunk_overlap=20).get_nodes_from_documents(pages)
    docstore = SimpleDocumentStore()
    docstore.add_documents([*chunks, *pages])  # with the pages, character offsets are certain
    augmenter = PrevNextNodePostprocessor(
        docstore=docstore, mode="both", num_nodes=1, output="passages", document_key="file_name"
    )
    llm = ScriptedLLM(answers=quote_the_sources)
    return CitationQueryEngine(
        retriever=BM25Retriever.from_defaults(nodes=chunks, similarity_top_k=3),
        llm=llm,
        response_synthesizer=get_response_synthesizer(llm=llm),
        node_postprocessors=[augmenter],
    )


def quote_the_sources(prompt: str) -> str:
    """Answer with the two sentences that share most words with the question, each from a different source."""
    sources = re.findall(r"Source (\d+):\n(.*?)(?=\n+Source \d+:|\n+-{5}|\Z)", prompt, re.DOTALL)
    asked = words(re.findall(r"Query: (.*)", prompt)[-1])
    found = []
    for number, text in sources:
        sentences = re.split(r"(?<=[.:])\s+|\n\n+", text)
        best = max(sentences, key=lambda sentence: len(words(sentence) & asked))
        found.append((len(words(best) & asked), number, " ".join(best.split())))
    found.sort(reverse=True)
    return " ".join(f"“{sentence}” [{number}]" for _, number, sentence in found[:2])


def words(text: str) -> set[str]:
    """Return the longer words of a text."""
    return {word for word in re.findall(r"[a-z]+", text.lower()) if len(word) > 2}


def show_citations(answer: str, sources: list[NodeWithScore], texts: dict[str, str]) -> None:
    """Print the file and page of each quote in an answer, and the quote in the text of the page."""
    for quote, number in re.findall(r"“(.+?)” \[(\d+)\]", answer):
        for citation in cite(sources[int(number) - 1], quote):
            file, page = (citation.metadata.get(key) for key in ("file_name", "page_label"))
            print(f"[{number}] {file}, page {page}:")
            print(f"    {highlighted(citation, texts)}\n")


def highlighted(citation: Citation, texts: dict[str, str]) -> str:
    """Return the quoted text between marks, with some text around it."""
    if citation.document_id is None or citation.start is None or citation.end is None:
        return "(its place in the document is not certain)"
    text, start, end = texts[citation.document_id], citation.start, citation.end
    marked = f"{text[max(0, start - 60) : start]}>>>{text[start:end]}<<<{text[end : end + 60]}"
    return " ".join(marked.split())


if __name__ == "__main__":
    main()

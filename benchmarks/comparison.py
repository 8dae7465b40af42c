"""Measure time and memory of a comparison of many questions over many chunks.

python benchmarks/comparison.py --questions 200 --chunks 20000
"""

from __future__ import annotations

import argparse
import logging
import random
import resource
import tempfile
import time
from pathlib import Path

from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.retrievers.bm25 import BM25Retriever

from llama_index_ext_ctxaug import PrevNextNodePostprocessor
from llama_index_ext_ctxaug.evaluation import Evidence, Question, compare
from llama_index_ext_ctxaug.testing import linked_document

DOCUMENT = 200
"""Chunks of a document."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Time and memory of a comparison.")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--chunks", type=int, default=20_000)
    options = parser.parse_args()
    logging.getLogger("bm25s").setLevel(logging.WARNING)

    source = random.Random(0)
    words = [f"word{number}" for number in range(20_000)]
    texts = [" ".join(source.choices(words, k=120)) + ". " for _ in range(options.chunks)]
    documents = [
        linked_document(texts[start : start + DOCUMENT], source_id=f"doc{start}", offsets=True)
        for start in range(0, len(texts), DOCUMENT)
    ]
    nodes = [node for document in documents for node in document]
    docstore = SimpleDocumentStore()
    docstore.add_documents(nodes)
    retriever = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=10)
    questions = [
        Question(str(place), " ".join(texts[place].split()[:8]), evidence=(Evidence(texts[place]),))
        for place in source.sample(range(len(texts)), options.questions)
    ]
    print(f"before the comparison: {memory():.0f} MB")

    start = time.perf_counter()
    report = compare(
        retriever,
        {
            f"{count} around": PrevNextNodePostprocessor(
                docstore=docstore, num_nodes=count, mode="both", output="passages"
            )
            for count in (1, 2, 3)
        },
        questions,
        budgets=[1000, 2000],
        top_k=5,
    )
    print(f"comparison: {time.perf_counter() - start:.1f} s, {len(report.rows)} rows; {memory():.0f} MB")
    start = time.perf_counter()
    page = report.save(Path(tempfile.mkdtemp()))
    seconds, size = time.perf_counter() - start, page.stat().st_size / 1e6
    print(f"report: {seconds:.1f} s, page {size:.1f} MB; {memory():.0f} MB")
    print(report)


def memory() -> float:
    """Return the peak memory of the process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()

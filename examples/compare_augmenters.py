"""Compare augmenters on questions, without a limit and at equal tokens.

    python examples/compare_augmenters.py
    python examples/compare_augmenters.py --docs my_texts/ --questions my_questions.jsonl --out report/

Without --docs it uses three short texts and eighteen questions from examples/data. A question of your own
is a line such as

    {"question": "...", "document": "notes.md", "evidence": ["the words that answer it"]}

No key, server or download is needed.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

from llama_index.core import Document
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.retrievers.bm25 import BM25Retriever

from llama_index_ext_ctxaug import ContextAugmentationError, PrevNextNodePostprocessor
from llama_index_ext_ctxaug.evaluation import check_questions, compare, load_questions

DATA = Path(__file__).parent / "data"
TOP_K = 2
POOL = 8
BUDGET = 150


def main() -> int:
    """Run the program; return the exit code."""
    options = parse_arguments()
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    try:
        run(options.docs, options.questions, options.out or Path(tempfile.mkdtemp()))
    except ContextAugmentationError as error:
        print(f"compare_augmenters: {error}", file=sys.stderr)
        return 2
    return 0


def run(docs: Path, questions_file: Path, out: Path) -> None:
    """Compare, print the table and the choice, write the report."""
    documents = [
        Document(id_=path.name, text=path.read_text(encoding="utf-8", errors="replace"))
        for path in sorted(docs.glob("*.*"))
        if path.suffix in {".md", ".txt", ".rst"}
    ]
    nodes = SentenceSplitter(chunk_size=50, chunk_overlap=0).get_nodes_from_documents(documents)
    docstore = SimpleDocumentStore()
    docstore.add_documents([*documents, *nodes])

    questions = load_questions(questions_file)
    problems = check_questions(questions, documents={document.id_ for document in documents})

    def around(num_nodes: int) -> PrevNextNodePostprocessor:
        return PrevNextNodePostprocessor(
            docstore=docstore, num_nodes=num_nodes, mode="both", output="passages"
        )

    report = compare(
        BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=min(POOL, len(nodes))),
        {
            "the next": PrevNextNodePostprocessor(docstore=docstore),
            "one around": around(1),
            "two around": around(2),
        },
        questions,
        budgets=[BUDGET],  # the pass-through may fill it with all hits, others with neighbors of the best
        top_k=TOP_K,
        problems=problems,
    )
    print(f"{len(nodes)} chunks of {len(documents)} documents, {len(questions)} questions\n")
    within = report.choose(budget=BUDGET)
    print(f"Within {BUDGET} tokens:\n{within}\n")
    report.choose(token_threshold=250)
    print(f"{report}\n")
    print(f"node_postprocessors={[type(postprocessor).__name__ for postprocessor in report.best]}")
    print(f"The report, with a context map for each question: {report.save(out)}")


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Compares augmenters on texts and questions.")
    parser.add_argument("--docs", type=Path, default=DATA / "harbor", help="folder of .md, .txt, .rst files")
    parser.add_argument("--questions", type=Path, default=DATA / "harbor_questions.jsonl")
    parser.add_argument("--out", type=Path, help="folder for the report (a new temporary one)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

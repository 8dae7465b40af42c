"""Let a language model decide for each hit whether the text before or after it is needed.

    python examples/auto_prev_next.py
    OPENAI_API_KEY=... python examples/auto_prev_next.py --question "..."
    python examples/auto_prev_next.py --api-base http://127.0.0.1:8089/v1 --model my-model

With OPENAI_API_KEY set (and the extra `openai`) OpenAI decides; with --api-base any server that speaks its
protocol (llama.cpp, vLLM, Ollama ...). Without both, a script decides by the position of the question's
words in the excerpt. The texts are some chapters of the Python language reference that every CPython
carries.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import textwrap
from pydoc_data.topics import topics
from typing import Any

from llama_index.core import Document
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.llms import LLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.retrievers.bm25 import BM25Retriever

from llama_index_ext_ctxaug import AutoPrevNextNodePostprocessor, DirectionsChosenEvent, read_provenance
from llama_index_ext_ctxaug.testing import ScriptedLLM

QUESTION = "What happens when a generator function is called?"
CHAPTERS = ("types", "calls", "compound", "import", "naming", "typesseq")


def main() -> int:
    """Run the program; return the exit code."""
    options = parse_arguments()
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    documents = [Document(text=topics[name], metadata={"topic": name}) for name in CHAPTERS]
    nodes = SentenceSplitter(chunk_size=128, chunk_overlap=0).get_nodes_from_documents(documents)
    docstore = SimpleDocumentStore()
    docstore.add_documents(nodes)
    hits = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=options.top_k).retrieve(options.question)

    llm, who = choose_llm(options)
    augmenter = AutoPrevNextNodePostprocessor(
        docstore=docstore, llm=llm, num_nodes=options.num_nodes, decide=options.decide
    )
    get_dispatcher().add_event_handler(PrintDecisions())
    print(f"{options.question}\nThe directions are chosen by {who}.\n")
    for hit in augmenter.postprocess_nodes(hits, query_str=options.question):
        provenance = read_provenance(hit.node)
        kind = "hit" if provenance is None else f"added, {provenance.hops} away"
        print(f"[{kind}] {hit.node.metadata['topic']}")
        print(textwrap.indent(textwrap.shorten(hit.node.text, 240), "    "))
    return 0


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Lets a language model choose the direction of expansion.")
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--top-k", type=int, default=4, help="hits to retrieve (default 4)")
    parser.add_argument("--num-nodes", type=int, default=1, help="chunks to add on a side (default 1)")
    parser.add_argument(
        "--decide", choices=["each", "together"], default="each", help="one call per hit, or one for all"
    )
    parser.add_argument("--api-base", help="an OpenAI-compatible endpoint")
    parser.add_argument("--model", default="gpt-4o-mini", help="name of the model (default gpt-4o-mini)")
    return parser.parse_args()


def choose_llm(options: argparse.Namespace) -> tuple[LLM, str]:
    """Return the model that decides, and its name for the output."""
    key = os.environ.get("OPENAI_API_KEY")
    if not key and not options.api_base:
        return (
            ScriptedLLM(answers=judge_by_place),
            "a script, not by a language model (set OPENAI_API_KEY or give --api-base for one)",
        )
    from llama_index.llms.openai import OpenAI

    where = {"api_base": options.api_base} if options.api_base else {}
    llm = OpenAI(model=options.model, api_key=key or "none", temperature=0, **where)
    return llm, f"{options.model} at {options.api_base or 'OpenAI'}"


def judge_by_place(prompt: str) -> str:
    """Return the script's answer: the side of the excerpt whose edge holds the question's words."""
    excerpt, question = prompt.rsplit("Excerpt: ", 1)[-1].rsplit("\nQuestion: ", 1)
    words = {word.strip("?.,").lower() for word in question.split() if len(word) > 5}
    places = [place for word in words if (place := excerpt.lower().rfind(word)) >= 0]
    if places and max(places) > len(excerpt) * 0.8:
        return "NEXT"
    return "PREVIOUS" if places and max(places) < len(excerpt) * 0.2 else "NONE"


class PrintDecisions(BaseEventHandler):
    """Prints each decision, and the cost."""

    def handle(self, event: Any, **kwargs: Any) -> None:
        """Print an event about directions."""
        if isinstance(event, DirectionsChosenEvent):
            for decision in event.decisions:
                said = f", answer {decision['answer']!r}" if "answer" in decision else ""
                print(f"{decision['direction'].upper():9}{decision['reason']}{said}")
            print(f"{event.calls} calls, {event.prompt_tokens} tokens sent\n")


if __name__ == "__main__":
    sys.exit(main())

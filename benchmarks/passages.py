"""Passages: their cost, its growth, and the tokens they save compared with separate nodes.

    python benchmarks/passages.py [--out benchmarks/results/passages.md]

The text is that of `pydoc_data.topics` (the Python language reference). Times are CPU time of the thread,
the best of several runs. Tokens are counted with LlamaIndex's tokenizer on the text that a response
synthesizer would show to the model.
"""

from __future__ import annotations

import argparse
import platform
import random
import time
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from llama_index.core import Document
from llama_index.core import __version__ as core_version
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.postprocessor import PrevNextNodePostprocessor as UpstreamPostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode
from llama_index.core.utils import get_tokenizer

from llama_index_ext_ctxaug import PrevNextNodePostprocessor
from llama_index_ext_ctxaug.testing import docstore_of, hits

RUNS = 5


def main() -> None:
    """Run all measurements and print the tables."""
    parser = argparse.ArgumentParser(description="Passages: cost, growth, tokens saved.")
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    out: Path | None = parser.parse_args().out
    report = "\n".join([*heading(), "", *pipeline(), "", *tokens(), "", *slices(), ""])
    print(report)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(report, encoding="utf-8")


def heading() -> list[str]:
    """Return the heading, with the versions measured."""
    return [
        "# Passages",
        "",
        f"Text of pydoc_data.topics; llama-index-core {core_version}, Python {platform.python_version()}. "
        f"Times are CPU, best of {RUNS} runs.",
    ]


def pipeline() -> list[str]:
    """Compare the cost of a call with passages and one with separate nodes."""
    lines = [
        "## A whole call",
        "",
        "PrevNext, both sides 2, hits scattered over 4,000 chunks in a SimpleDocumentStore without the "
        "document. The fifth column is what passages add to nodes; the budget is half of what all need, "
        "and the last column what counting all tokens once takes.",
        "",
        "| hits | chunks | ms, nodes | ms, passages | for 1,000 chunks | ms, with budget | ms, count |",
        "|---|---|---|---|---|---|---|",
    ]
    nodes = long_document()
    store = docstore_of(nodes)
    for count in (10, 20, 40, 80, 160):
        found = hits(nodes, random.Random(count).sample(range(len(nodes)), count))
        separate = augmenter(store)
        result = separate.postprocess_nodes(found)
        text = final_text(result)
        budget = len(get_tokenizer()(text)) // 2
        counting = best(lambda text=text: get_tokenizer()(text))
        one, many, fitted = (
            best(lambda a=a, found=found: a.postprocess_nodes(found))
            for a in (
                separate,
                augmenter(store, output="passages"),
                augmenter(store, output="passages", token_budget=budget),
            )
        )
        added = 1e6 * (many - one) / len(result)
        lines.append(
            f"| {count} | {len(result)} | {1e3 * one:.1f} | {1e3 * many:.1f} | {added:.0f} "
            f"| {1e3 * fitted:.1f} | {1e3 * counting:.1f} |"
        )
    return lines


def tokens() -> list[str]:
    """Count the tokens of the same hits and neighbors, in three forms."""
    lines = [
        "## Tokens",
        "",
        "Five hits in each of 40 draws, two neighbors on each side; LlamaIndex's own postprocessor sends "
        'the same chunks as `output="nodes"`.',
        "",
        "| chunk size/overlap | LlamaIndex | nodes | passages | saved |",
        "|---|---|---|---|---|",
    ]
    count = get_tokenizer()
    for size, overlap in ((128, 25), (256, 50), (512, 100), (1024, 200), (1024, 20)):
        nodes, documents = all_topics(size, overlap)
        store = docstore_of(nodes, documents)
        totals = [0, 0, 0]
        for seed in range(40):
            found = hits(nodes, random.Random(seed).sample(range(len(nodes)), 5))
            for place, one in enumerate(
                (
                    UpstreamPostprocessor(docstore=store, num_nodes=2, mode="both"),
                    augmenter(store),
                    augmenter(store, output="passages"),
                )
            ):
                totals[place] += len(count(final_text(one.postprocess_nodes(found))))
        saved = 1 - totals[2] / totals[1]
        lines.append(f"| {size}/{overlap} | {totals[0]} | {totals[1]} | {totals[2]} | {saved:.1%} |")
    return lines


def slices() -> list[str]:
    """Count the passages that equal the slice of their document."""
    lines = [
        "## Equal to the source",
        "",
        "Every chunk of the topics as a hit, 128/25, two neighbors on each side.",
        "",
        "| docstore | passages | equal to the slice | equal but for white space between chunks |",
        "|---|---|---|---|",
    ]
    nodes, documents = all_topics(128, 25)
    sources = {document.node_id: document.text for document in documents}
    by_document: dict[str, list[TextNode]] = {}
    for node in nodes:
        by_document.setdefault(node.ref_doc_id or "", []).append(node)
    for name, store in (
        ("chunks and documents", docstore_of(nodes, documents)),
        ("chunks alone", docstore_of(nodes)),
    ):
        one = augmenter(store, output="passages")
        equal = spaced = 0
        for chunks in by_document.values():
            for place, node in enumerate(chunks):
                (passage,) = one.postprocess_nodes([NodeWithScore(node=node, score=1.0)])
                around = chunks[max(0, place - 2) : place + 3]
                text = sources[node.ref_doc_id or ""][around[0].start_char_idx : around[-1].end_char_idx]
                equal += passage.node.text == text
                spaced += passage.node.text.split() == text.split() and len(passage.node.text) == len(text)
        lines.append(f"| {name} | {len(nodes)} | {equal} | {spaced} |")
    return lines


def augmenter(store: Any, **parameters: Any) -> PrevNextNodePostprocessor:
    """Return an augmenter with two chunks on each side."""
    return PrevNextNodePostprocessor(docstore=store, num_nodes=2, mode="both", **parameters)


def all_topics(size: int, overlap: int) -> tuple[list[TextNode], list[Document]]:
    """Return the chunks of all topics, and the topics."""
    documents = [Document(text=text, id_=name) for name, text in topics.items()]
    splitter = SentenceSplitter(chunk_size=size, chunk_overlap=overlap)
    return splitter.get_nodes_from_documents(documents), documents


def long_document() -> list[TextNode]:
    """Return the first 4,000 chunks of one document, without repetition."""
    parts = [f"Part {n}.\n\n{text}" for n in range(5) for text in topics.values()]
    text = "\n\n".join(parts)
    splitter = SentenceSplitter(chunk_size=128, chunk_overlap=25)
    return splitter.get_nodes_from_documents([Document(text=text, id_="d")])[:4000]


def final_text(result: list[NodeWithScore]) -> str:
    """Return the nodes' texts as a response synthesizer joins them."""
    return "\n\n".join(hit.node.get_content(metadata_mode=MetadataMode.LLM) for hit in result)


def best(call: Callable[[], object]) -> float:
    """Return the CPU seconds of the fastest of several runs."""
    times = []
    for _ in range(RUNS):
        began = time.thread_time()
        call()
        times.append(time.thread_time() - began)
    return min(times)


if __name__ == "__main__":
    main()

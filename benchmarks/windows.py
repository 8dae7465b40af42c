"""Windows compared with LlamaIndex's: time of a replacement, bytes stored, words sent, in one run.

    python benchmarks/windows.py TEXT.txt [MORE.txt ...] [--out benchmarks/results/windows.md]

Times are CPU time of the thread, the best of alternating runs. Bytes are those of the nodes as JSON, as
docstores keep them, with text as UTF-8. Words sent are counted over the hits of BM25 for
questions that are sentences of the texts.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from llama_index.core import __version__ as core_version
from llama_index.core.node_parser import SentenceSplitter, SentenceWindowNodeParser
from llama_index.core.postprocessor import MetadataReplacementPostProcessor as UpstreamReplacement
from llama_index.core.schema import BaseNode, Document, NodeWithScore
from llama_index.retrievers.bm25 import BM25Retriever

from llama_index_ext_ctxaug import (
    MetadataReplacementPostProcessor,
    NeighborLinker,
    SentenceWindowParser,
    SentencexSplitter,
    WindowExtractor,
)

WINDOW = 3


def main() -> None:
    """Run all measurements and print the tables."""
    parser = argparse.ArgumentParser(description="Windows against LlamaIndex's own.")
    parser.add_argument("texts", nargs="+", type=Path, help="text files in UTF-8")
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    options = parser.parse_args()
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    documents = [
        Document(text=path.read_bytes().decode(), id_=path.stem, metadata={"file_name": path.name})
        for path in options.texts
    ]
    prose = sum(len(document.text.encode()) for document in documents)
    lines = [
        "# Windows",
        "",
        f"{len(documents)} documents, {prose} bytes of prose, windows of {WINDOW} on each side; "
        f"llama-index-core {core_version}, Python {platform.python_version()}.",
        *("", "## Stored bytes", "", *stored(documents, prose)),
        *("", "## Time of a replacement", "", *replacement(documents)),
        *("", "## Words sent", "", *sent(documents)),
        *("", "## Time at ingestion", "", *ingestion(documents)),
    ]
    report = "\n".join([*lines, ""])
    print(report)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(report, encoding="utf-8")


def stored(documents: list[Document], prose: int) -> list[str]:
    """Return bytes per byte of prose for each parser, and the share that is neither text nor window."""
    upstream = SentenceWindowNodeParser(window_size=WINDOW)(documents)
    chunks = SentenceSplitter(chunk_size=128, chunk_overlap=0)(documents)
    rows: dict[str, Sequence[BaseNode]] = {
        "LlamaIndex's SentenceWindowNodeParser": upstream,
        "SentenceWindowParser": SentenceWindowParser(window_size=WINDOW)(documents),
        "its nodes through WindowExtractor": WindowExtractor(window_size=WINDOW)(upstream),
        "the same sentences, no window": [without_windows(node) for node in upstream],
        "SentenceSplitter(128) and WindowExtractor(3)": WindowExtractor(window_size=WINDOW)(chunks),
        "SentenceSplitter(128), no window": chunks,
    }
    whole, bare = size(upstream), size(rows["the same sentences, no window"])
    lines = ["| | nodes | bytes a byte of prose | of LlamaIndex's |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {len(nodes)} | {size(nodes) / prose:.1f} | {size(nodes) / whole:.2f} |"
        for name, nodes in rows.items()
    ]
    return [
        *lines,
        "",
        f"A window of {WINDOW} sentences on each side is {2 * WINDOW + 1} bytes a byte of prose, "
        f"and without it the nodes take {bare / prose:.1f} (ids, relationships, templates, hashes): "
        f"together {(bare / prose + 2 * WINDOW + 1) / (whole / prose):.2f} of LlamaIndex's, "
        "which is the least for windows of single sentences in metadata as long as the nodes' other fields "
        "stay as they are.",
    ]


def without_windows(node: BaseNode) -> BaseNode:
    """Return a node as a parser without windows makes it."""
    keys = ("window", "original_text")
    bare = node.model_copy(deep=True)
    for metadata in (bare.metadata, *(info.metadata for info in bare.relationships.values())):
        for key in keys:
            metadata.pop(key, None)
    return bare


def size(nodes: Sequence[BaseNode]) -> int:
    """Return the bytes of nodes as JSON."""
    return sum(len(json.dumps(node.to_dict(), ensure_ascii=False).encode()) for node in nodes)


def replacement(documents: list[Document]) -> list[str]:
    """Measure CPU time per hit: in place, on copies, and merged."""
    nodes = SentenceWindowNodeParser(window_size=WINDOW)(documents)
    lines = [
        "| hits | µs a call (LlamaIndex, in place) | µs a call | µs a hit (LlamaIndex) | µs a hit | times "
        "| µs a hit, merged |",
        "|---|---|---|---|---|---|---|",
    ]
    bases: list[float] = []
    for count in (1, 20, 200):
        chance = random.Random(count)
        hits = [NodeWithScore(node=node, score=0.5) for node in chance.sample(nodes, min(count, len(nodes)))]
        changed = [NodeWithScore(node=hit.node.model_copy(), score=0.5) for hit in hits]
        times = race(
            partial(UpstreamReplacement("window").postprocess_nodes, changed),
            partial(MetadataReplacementPostProcessor("window").postprocess_nodes, hits),
            partial(MetadataReplacementPostProcessor("window", merge_overlaps=True).postprocess_nodes, hits),
        )
        theirs, ours, merged = (taken * 1e6 for taken in times)
        if count == 1:
            bases = [theirs, ours, merged]
            lines.append(f"| {count} | {theirs:.0f} | {ours:.0f} | | | | |")
            continue
        a, b, c = (
            (taken - base) / (count - 1) for taken, base in zip((theirs, ours, merged), bases, strict=True)
        )
        lines.append(f"| {count} | {theirs:.0f} | {ours:.0f} | {a:.1f} | {b:.1f} | {b / a:.1f} | {c:.1f} |")
    return lines


def sent(documents: list[Document]) -> list[str]:
    """Compare the words sent to the model with those of the distinct sentences."""
    nodes = SentenceWindowNodeParser(window_size=WINDOW)(documents)
    retriever = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=10)
    questions = random.Random(0).sample([node.get_content() for node in nodes], 50)
    totals = [0, 0, 0]
    for question in questions:
        hits = retriever.retrieve(question)
        plain = MetadataReplacementPostProcessor("window").postprocess_nodes(hits)
        merged = MetadataReplacementPostProcessor("window", merge_overlaps=True).postprocess_nodes(hits)
        places = {node.node_id: place for place, node in enumerate(nodes)}
        distinct = {
            place
            for hit in hits
            for place in range(places[hit.node.node_id] - WINDOW, places[hit.node.node_id] + WINDOW + 1)
            if 0 <= place < len(nodes) and nodes[place].ref_doc_id == hit.node.ref_doc_id
        }
        for number, count in enumerate(
            (words(plain), words(merged), sum(len(nodes[place].get_content().split()) for place in distinct))
        ):
            totals[number] += count
    least = totals[2]
    return [
        "| 50 questions, 10 hits each | words | times the distinct sentences |",
        "|---|---|---|",
        f"| replaced | {totals[0]} | {totals[0] / least:.2f} |",
        f"| replaced, merge_overlaps=True | {totals[1]} | {totals[1] / least:.2f} |",
    ]


def words(hits: list[NodeWithScore]) -> int:
    """Count the words of the texts of hits."""
    return sum(len(hit.node.get_content().split()) for hit in hits)


def ingestion(documents: list[Document]) -> list[str]:
    """Measure CPU time per node of the work done once."""
    splitter = SentencexSplitter()
    nodes = SentenceWindowNodeParser(window_size=WINDOW)(documents)
    rows: dict[str, Callable[[], object]] = {
        "LlamaIndex's SentenceWindowNodeParser": lambda: SentenceWindowNodeParser(window_size=WINDOW)(
            documents
        ),
        "SentenceWindowParser": lambda: SentenceWindowParser(window_size=WINDOW)(documents),
        "WindowExtractor": lambda: WindowExtractor(window_size=WINDOW)(nodes),
        "NeighborLinker, links right": lambda: NeighborLinker()(nodes),
        "SentencexSplitter": lambda: [splitter(document.text) for document in documents],
    }
    lines = ["| | µs a sentence |", "|---|---|"]
    return lines + [f"| {name} | {race(call)[0] / len(nodes) * 1e6:.0f} |" for name, call in rows.items()]


def race(*calls: Callable[[], object]) -> list[float]:
    """Return the best times of callables that take turns, in seconds."""
    times: list[list[float]] = [[] for _ in calls]
    started = time.perf_counter()
    while time.perf_counter() - started < 2 or len(times[0]) < 3:
        for call, taken in zip(calls, times, strict=True):
            begin = time.thread_time()
            call()
            taken.append(time.thread_time() - begin)
    return [min(taken) for taken in times]


if __name__ == "__main__":
    main()

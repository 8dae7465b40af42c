"""Fixed neighbors, compared with LlamaIndex's own postprocessor, over the same hits, in one run.

    python benchmarks/prev_next.py [--out benchmarks/results/prev_next.md]

A wrapper around the docstore counts reads and rounds; a round is a read that has to wait for
the one before it. Times are CPU time of the thread, the best of alternating runs over a
`SimpleDocumentStore` in memory. Both sides get the same nodes and the same hits. The store is kept
out of garbage collection, since a pass over it would slow one side or the other at random.
"""

from __future__ import annotations

import argparse
import gc
import platform
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from llama_index.core import __version__ as core_version
from llama_index.core.postprocessor import PrevNextNodePostprocessor as UpstreamPostprocessor
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index_ext_ctxaug import PrevNextNodePostprocessor
from llama_index_ext_ctxaug.testing import ObservedDocstore, docstore_of, linked_document

CHUNKS = 3000
SIZES = [(hits, hops) for hits in (5, 20, 100) for hops in (1, 3, 10)]
SCENARIOS = [(*size, spread) for size in SIZES for spread in (True, False)]


def main() -> None:
    """Run all scenarios and print the tables."""
    parser = argparse.ArgumentParser(description="Fixed neighbors against LlamaIndex's own postprocessor.")
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    out: Path | None = parser.parse_args().out
    report = "\n".join([*heading(), "", *against_upstream(), "", *growth(), ""])
    print(report)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(report, encoding="utf-8")


def heading() -> list[str]:
    """Return the heading, with the versions measured."""
    return [
        "# Fixed neighbors",
        "",
        f"Both sides, in memory, {CHUNKS} chunks of one document; llama-index-core {core_version}, "
        f"Python {platform.python_version()}. Times are CPU, best of alternating runs.",
    ]


def against_upstream() -> list[str]:
    """Return the table of ratios."""
    lines = [
        "| hits | hops | hits are | reads (LlamaIndex) | reads | rounds (LlamaIndex) | rounds "
        "| ms (LlamaIndex) | ms | faster |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    nodes = linked_document(CHUNKS)
    store = docstore_of(nodes)
    for count, hops, spread in SCENARIOS:
        hits = choose_hits(nodes, count, spread)
        upstream_reads, _ = count_reads(UpstreamPostprocessor, store, hits, hops)
        reads, rounds = count_reads(PrevNextNodePostprocessor, store, hits, hops)
        theirs, ours = race(
            *(
                partial(kind(docstore=store, num_nodes=hops, mode="both").postprocess_nodes, hits)
                for kind in (UpstreamPostprocessor, PrevNextNodePostprocessor)
            )
        )
        lines.append(
            f"| {count} | {hops} | {'scattered' if spread else 'clustered'} | {upstream_reads} | {reads} "
            f"| {upstream_reads} | {rounds} | {theirs * 1e3:.2f} | {ours * 1e3:.2f} | {theirs / ours:.1f} × |"
        )
    return lines


def growth() -> list[str]:
    """Measure time against the number of output nodes: all chunks of a document are hits."""
    lines = ["| nodes | µs a node (LlamaIndex) | µs a node |", "|---|---|---|"]
    for count in (100, 300, 1000, 3000):
        nodes = linked_document(count)
        store = docstore_of(nodes)
        hits = choose_hits(nodes, count, spread=False)
        taken = [
            best(partial(kind(docstore=store, mode="both").postprocess_nodes, hits), repeat)
            for kind, repeat in ((UpstreamPostprocessor, 1), (PrevNextNodePostprocessor, 5))
        ]
        lines.append(f"| {count} | {taken[0] / count * 1e6:.1f} | {taken[1] / count * 1e6:.1f} |")
    return lines


def choose_hits(nodes: list[TextNode], count: int, spread: bool) -> list[NodeWithScore]:
    """Return hits in random order: scattered over the document, or in a few bunches."""
    chance = random.Random(count)
    if spread:
        places = chance.sample(range(len(nodes)), count)
    else:
        bunch = min(len(nodes), max(count * 2, 10))
        start = chance.randrange(len(nodes) - bunch + 1)
        places = chance.sample(range(start, start + bunch), count)
    return [NodeWithScore(node=nodes[place], score=chance.random()) for place in places]


def count_reads(kind: type, store: object, hits: list[NodeWithScore], hops: int) -> tuple[int, int]:
    """Return the keys read, and the reads that wait for one another."""
    observed = ObservedDocstore(store)  # type: ignore[arg-type]
    kind(docstore=observed, num_nodes=hops, mode="both").postprocess_nodes(hits)
    # A document's list and the nodes of the first hop are requested in one round.
    return len(observed.node_reads) + len(observed.document_reads), len(observed.batches)


def race(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float]:
    """Return the best times of two callables that take turns."""
    gc.freeze()
    times: tuple[list[float], list[float]] = ([], [])
    started = time.perf_counter()
    while time.perf_counter() - started < 1.5 or len(times[0]) < 3:
        for call, taken in zip((first, second), times, strict=True):
            begin = time.thread_time()
            call()
            taken.append(time.thread_time() - begin)
    return min(times[0]), min(times[1])


def best(call: Callable[[], object], repeat: int = 5) -> float:
    """Return the shortest time of several runs, in seconds."""
    gc.freeze()
    times = []
    for _ in range(repeat):
        begin = time.thread_time()
        call()
        times.append(time.thread_time() - begin)
    return min(times)


if __name__ == "__main__":
    main()

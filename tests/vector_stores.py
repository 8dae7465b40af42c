"""Vector stores of real libraries, and a docstore over each that tests can fill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid4, uuid5

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_index_ext_ctxaug import VectorStoreDocstore
from llama_index_ext_ctxaug.testing import linked_document

DIMENSIONS = 8


def make_uuid(name: str) -> str:
    """Return an id that every store accepts; Qdrant accepts no other."""
    return str(uuid5(NAMESPACE_OID, name))


class FilledVectorStore(VectorStoreDocstore):
    """A docstore over a vector store, with methods to fill it, which the docstore itself lacks."""

    def add_documents(self, docs: Sequence[BaseNode], *args: Any, **kwargs: Any) -> None:
        """Add nodes with embeddings to the vector store."""
        embedded = [
            node.model_copy(update={"embedding": [float(place), *[0.5] * (DIMENSIONS - 1)]})
            for place, node in enumerate(docs, start=1)
        ]
        self.vector_store.add(embedded)

    def delete_document(self, doc_id: str, raise_error: bool = True) -> None:
        """Delete a node from the vector store."""
        delete(self.vector_store, doc_id)


def chroma(_: Path) -> BasePydanticVectorStore:
    """Return an empty Chroma collection in memory."""
    import chromadb
    from chromadb.config import Settings
    from llama_index.vector_stores.chroma import ChromaVectorStore

    client = chromadb.EphemeralClient(Settings(anonymized_telemetry=False))
    return ChromaVectorStore(chroma_collection=client.create_collection(uuid4().hex))


def qdrant(_: Path) -> BasePydanticVectorStore:
    """Return an empty Qdrant collection in memory."""
    from llama_index.vector_stores.qdrant import QdrantVectorStore
    from qdrant_client import QdrantClient

    return emptied(QdrantVectorStore(uuid4().hex, client=QdrantClient(":memory:")))


def lancedb(directory: Path) -> BasePydanticVectorStore:
    """Return an empty LanceDB table in a directory."""
    from llama_index.vector_stores.lancedb import LanceDBVectorStore

    return LanceDBVectorStore(uri=str(directory / uuid4().hex), mode="overwrite")


def milvus(directory: Path) -> BasePydanticVectorStore:
    """Return an empty Milvus Lite collection in a directory."""
    from llama_index.vector_stores.milvus import MilvusVectorStore

    return MilvusVectorStore(
        uri=str(directory / f"{uuid4().hex}.db"), dim=DIMENSIONS, consistency_level="Strong"
    )


def emptied(store: BasePydanticVectorStore) -> BasePydanticVectorStore:
    """Return a store with an existing collection; the first node creates it."""
    [first] = linked_document(1, make_id=make_uuid)
    first.embedding = [0.5] * DIMENSIONS
    store.add([first])
    delete(store, first.node_id)
    return store


def delete(store: Any, node_id: str) -> None:
    """Delete a node; LanceDB's own method quotes ids as column names, and two stores have none."""
    kind = type(store).__name__
    if kind == "LanceDBVectorStore":
        store.table.delete(f"id = '{node_id}'")
    elif kind == "SupabaseVectorStore":
        store._collection.delete([node_id])
    elif kind == "MongoDBAtlasVectorSearch":
        store.collection.delete_one({"_id": node_id})
    else:
        store.delete_nodes([node_id])


MAKERS: dict[str, Callable[[Path], BasePydanticVectorStore]] = {
    "chroma": chroma,
    "qdrant": qdrant,
    "lancedb": lancedb,
    "milvus": milvus,
}
"""Functions that return an empty store, given a directory to keep it in, by name."""

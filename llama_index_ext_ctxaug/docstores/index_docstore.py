"""The docstore that holds the nodes of an index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from llama_index.core.indices.base import BaseIndex
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_index_ext_ctxaug.docstores.read_only import ReadOnlyDocstore
from llama_index_ext_ctxaug.docstores.read_step import ReadStep
from llama_index_ext_ctxaug.docstores.strategies import Fields, Records
from llama_index_ext_ctxaug.docstores.vector_store import VectorStoreDocstore
from llama_index_ext_ctxaug.errors import ConfigurationError
from llama_index_ext_ctxaug.flow import Flow, ask


def docstore_of_index(index: BaseIndex[Any]) -> BaseDocumentStore:
    """Return the docstore that holds an index's nodes: its own, its vector store as one, or both.

    A vector store that keeps text leaves the docstore empty, unless nodes are added to it too. Where it is
    not empty, nodes are read from it first and from the vector store if it lacks them.

    Raises:
        ConfigurationError: `index` is not an index, or neither of its stores can be read.
    """
    if not isinstance(index, BaseIndex):
        raise ConfigurationError(
            f"from_index: index must be a LlamaIndex index, got {type(index).__name__}: "
            "with a docstore, pass docstore=... to the class itself"
        )
    docstore = index.docstore
    vector_store = getattr(index, "vector_store", None)
    if not isinstance(vector_store, BasePydanticVectorStore) or not vector_store.stores_text:
        return docstore
    if getattr(index.index_struct, "nodes_dict", None):
        return docstore  # the index adds its nodes to both, with store_nodes_override=True
    empty = isinstance(docstore, SimpleDocumentStore) and not ids_in_memory(docstore)
    try:
        in_vector_store = VectorStoreDocstore(vector_store)
    except ConfigurationError as error:
        if empty:
            raise ConfigurationError(
                f"from_index: the docstore of this index is empty, and {error}"
            ) from error
        return docstore
    return in_vector_store if empty else DocstoreThenVectorStore(docstore, in_vector_store)


def ids_in_memory(docstore: SimpleDocumentStore) -> list[str]:
    """Return the ids of all nodes, without decoding the nodes."""
    return list(docstore._kvstore.get_all(docstore._node_collection))


class DocstoreThenVectorStore(ReadOnlyDocstore):
    """A docstore, and a vector store for what it lacks."""

    def __init__(self, docstore: BaseDocumentStore, vector_store: VectorStoreDocstore) -> None:
        self.docstore = docstore
        self.vector_store = vector_store

    def read(
        self, node_ids: Sequence[str], document_ids: Sequence[str] = (), fields: Sequence[Fields] = ()
    ) -> Flow[Records]:
        """Read the docstore, then the vector store for what it lacks and for metadata."""
        first = yield from ask(ReadStep(self.docstore, list(node_ids), list(document_ids)))
        lacking = _without(node_ids, first.nodes), _without(document_ids, first.documents)
        if not any((*lacking, fields)):
            return first
        then = yield from self.vector_store.read(*lacking, fields)
        nodes, documents = {**first.nodes, **then.nodes}, {**first.documents, **then.documents}
        return then._replace(nodes=nodes, documents=documents)


def _without(ids: Iterable[str], found: Iterable[str]) -> list[str]:
    known = set(found)
    return [id_ for id_ in ids if id_ not in known]

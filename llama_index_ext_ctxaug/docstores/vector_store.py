"""A vector store that keeps the text of its nodes, read as a docstore."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore.types import RefDocInfo
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_index_ext_ctxaug.docstores.event_loops import own_loop
from llama_index_ext_ctxaug.docstores.read_only import ReadOnlyDocstore
from llama_index_ext_ctxaug.docstores.store_call import Call, OrInThread
from llama_index_ext_ctxaug.docstores.strategies import Fields, Records, has_fields
from llama_index_ext_ctxaug.docstores.vector_reads.registry import DOCUMENT_ID, Wanted, vector_read_of
from llama_index_ext_ctxaug.errors import ConfigurationError
from llama_index_ext_ctxaug.flow import Flow, ask

KEEP_NODES_TOO = (
    "keep the nodes in a docstore too: docstore.add_documents([*documents, *nodes]), or "
    "VectorStoreIndex.from_documents(documents, storage_context=..., store_nodes_override=True)"
)


class VectorStoreDocstore(ReadOnlyDocstore):
    """The nodes of a vector store, as a read-only docstore.

    For an index whose docstore is empty because its vector store keeps the text: Chroma, Qdrant, pgvector,
    LanceDB, Milvus and others.

    **Requires** a vector store with `stores_text` that reads nodes by id, filled by LlamaIndex, so that
    nodes keep their relationships. Parents and source documents are found only if they were added to it.

    **Guarantees**: nodes are returned in the order of their ids, without embeddings. Listing a document's
    nodes reads the document; it is done from three hops on, or where links are missing. The pages of a
    file (`document_key`) are found by their metadata. Without links, offsets or numbers the order of nodes
    is unknown, so they get no neighbors.

    **On failure**: an error of the vector store is raised unchanged.

    Args:
        vector_store: the vector store.

    Raises:
        ConfigurationError: the vector store keeps no text, or cannot read nodes by id.

    Example:
        ```python
        docstore = VectorStoreDocstore(index.vector_store)
        augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=2, mode="both")
        ```
    """

    def __init__(self, vector_store: BasePydanticVectorStore) -> None:
        kind = type(vector_store).__name__
        if not isinstance(vector_store, BasePydanticVectorStore):
            raise ConfigurationError(
                f"VectorStoreDocstore: vector_store must be a LlamaIndex vector store, got {kind}: "
                "pass index.vector_store"
            )
        if not vector_store.stores_text:
            raise ConfigurationError(
                f"VectorStoreDocstore: {kind} keeps no text: "
                "pass docstore=index.docstore, which holds the nodes"
            )
        read = vector_read_of(vector_store)
        if read is None:
            raise _unreadable(vector_store)
        self.vector_store = vector_store
        self._reader = read

    def read(
        self, node_ids: Sequence[str], document_ids: Sequence[str] = (), fields: Sequence[Fields] = ()
    ) -> Flow[Records]:
        """Read in batches; an empty one is not sent, because many stores then return all that they hold."""
        nodes: list[BaseNode] = []
        for ids in self._batches(node_ids):
            nodes += yield from self._ask(ids)
        of_documents: list[BaseNode] = []
        for ids in self._batches(document_ids):
            of_documents += yield from self._ask({DOCUMENT_ID: ids})
        with_fields: list[BaseNode] = []
        if fields:
            values: dict[str, dict[Any, None]] = {}
            for key, value in chain.from_iterable(fields):
                values.setdefault(key, {})[value] = None
            with_fields = yield from self._ask({key: list(distinct) for key, distinct in values.items()})
        return Records(
            {node.node_id: node for node in nodes},
            _documents(document_ids, of_documents),
            with_fields=[node for node in with_fields if any(has_fields(node, one) for one in fields)],
        )

    def _batches(self, ids: Sequence[str]) -> list[list[str]]:
        distinct, size = list(dict.fromkeys(map(str, ids))), self._reader.batch
        return [distinct[start : start + size] for start in range(0, len(distinct), size)]

    def _ask(self, wanted: Wanted) -> Flow[list[BaseNode]]:
        call = Call(partial(self._reader.read, self.vector_store, wanted), partial(self._aread, wanted))
        try:
            nodes = yield from ask(OrInThread(call, self, sync_only=self._reader.aread is None))
        except NotImplementedError as error:
            raise _unreadable(self.vector_store, f" ({error})") from error
        return [
            node if node.embedding is None else node.model_copy(update={"embedding": None})
            for node in nodes
            if node is not None  # Tablestore returns None for an id that it lacks
        ]

    async def _aread(self, wanted: Wanted) -> Sequence[BaseNode]:
        if self._reader.aread is None:
            raise NotImplementedError(f"{type(self.vector_store).__name__} has no async reads")
        with own_loop(self.vector_store):
            return await self._reader.aread(self.vector_store, wanted)


def _unreadable(vector_store: BasePydanticVectorStore, why: str = "") -> ConfigurationError:
    kind = type(vector_store).__name__
    return ConfigurationError(f"VectorStoreDocstore: {kind} cannot read nodes by id{why}: {KEEP_NODES_TOO}")


def _documents(ids: Sequence[str], nodes: Sequence[BaseNode]) -> dict[str, RefDocInfo]:
    documents: dict[str, dict[str, BaseNode]] = {id_: {} for id_ in ids}
    for node in nodes:
        if node.ref_doc_id in documents:
            documents[node.ref_doc_id][node.node_id] = node
    return {id_: RefDocInfo(node_ids=_in_order(found)) for id_, found in documents.items() if found}


def _in_order(nodes: dict[str, BaseNode]) -> list[str]:
    """Return node ids chain by chain along the links, chains by their first character offset."""
    after: dict[str, str] = {}
    for id_, node in nodes.items():
        if node.prev_node is not None:
            after[node.prev_node.node_id] = id_
    for id_, node in nodes.items():
        if node.next_node is not None:
            after[id_] = node.next_node.node_id
    inner = set(after.values())
    heads = sorted((id_ for id_ in nodes if id_ not in inner), key=lambda id_: _offset(nodes[id_]))
    ordered: dict[str, None] = {}
    for head in [*heads, *nodes]:  # a ring has no head
        current: str | None = head
        while current is not None and current in nodes and current not in ordered:
            ordered[current] = None
            current = after.get(current)
    return list(ordered)


def _offset(node: BaseNode) -> int:
    return getattr(node, "start_char_idx", None) or 0

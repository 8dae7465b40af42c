"""A vector store that keeps the text of its nodes, read as a docstore."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore.types import RefDocInfo
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_index_ext_ctxaug.docstores.event_loops import own_loop
from llama_index_ext_ctxaug.docstores.read_only import ReadOnlyDocstore
from llama_index_ext_ctxaug.docstores.store_call import Call, OrInThread
from llama_index_ext_ctxaug.docstores.vector_reads.registry import By, vector_read_of
from llama_index_ext_ctxaug.errors import ConfigurationError
from llama_index_ext_ctxaug.flow import Flow, arun, ask, run

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
    nodes reads the document; it is done from three hops on, or where links are missing.

    **On failure**: an error of the vector store is raised as it is.

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
            raise ConfigurationError(f"VectorStoreDocstore: {kind} cannot read nodes by id: {KEEP_NODES_TOO}")
        self.vector_store = vector_store
        self._reader = read

    def get_nodes(self, node_ids: list[str], raise_error: bool = True) -> list[BaseNode]:
        """Return the nodes of these ids, in their order.

        Raises:
            ValueError: a node is not in the vector store, and `raise_error`.
        """
        return run(self._nodes(node_ids, raise_error))

    async def aget_nodes(self, node_ids: list[str], raise_error: bool = True) -> list[BaseNode]:
        """Return the nodes of these ids, as `get_nodes` does."""
        return await arun(self._nodes(node_ids, raise_error))

    def get_ref_doc_infos(self, ref_doc_ids: list[str]) -> dict[str, RefDocInfo]:
        """Return the node ids of source documents, in reading order as far as links and offsets show it."""
        return run(self._documents(ref_doc_ids))

    async def aget_ref_doc_infos(self, ref_doc_ids: list[str]) -> dict[str, RefDocInfo]:
        """Return the node ids of source documents, as `get_ref_doc_infos` does."""
        return await arun(self._documents(ref_doc_ids))

    def _nodes(self, node_ids: Sequence[str], raise_error: bool) -> Flow[list[BaseNode]]:
        nodes = yield from self._read("node", node_ids)
        found = {node.node_id: node for node in nodes}
        if raise_error and (missing := [id_ for id_ in node_ids if id_ not in found]):
            raise ValueError(f"{len(missing)} nodes not found, the first is {missing[0]!r}")
        return [_without_embedding(found[id_]) for id_ in node_ids if id_ in found]

    def _documents(self, ref_doc_ids: Sequence[str]) -> Flow[dict[str, RefDocInfo]]:
        nodes = yield from self._read("document", ref_doc_ids)
        documents: dict[str, dict[str, BaseNode]] = {id_: {} for id_ in ref_doc_ids}
        for node in nodes:
            if node.ref_doc_id in documents:
                documents[node.ref_doc_id][node.node_id] = node
        return {id_: RefDocInfo(node_ids=_in_order(found)) for id_, found in documents.items() if found}

    def _read(self, by: By, ids: Sequence[str]) -> Flow[list[BaseNode]]:
        """Read in batches; an empty one is not sent, because many stores then return all that they hold."""
        ids, size = list(dict.fromkeys(ids)), self._reader.batch
        nodes: list[BaseNode] = []
        for start in range(0, len(ids), size):
            batch = ids[start : start + size]
            call = Call(
                partial(self._reader.read, self.vector_store, by, batch), partial(self._aread, by, batch)
            )
            nodes += yield from ask(OrInThread(call, self, sync_only=self._reader.aread is None))
        return nodes

    async def _aread(self, by: By, ids: Sequence[str]) -> Sequence[BaseNode]:
        if self._reader.aread is None:
            raise NotImplementedError(f"{type(self.vector_store).__name__} has no async reads")
        with own_loop(self):
            return await self._reader.aread(self.vector_store, by, ids)


def _without_embedding(node: BaseNode) -> BaseNode:
    return node if node.embedding is None else node.model_copy(update={"embedding": None})


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

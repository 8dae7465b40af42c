"""A document store that can only be read, in batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn

from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore.types import BaseDocumentStore, RefDocInfo

from llama_index_ext_ctxaug.docstores.strategies import Fields, Records
from llama_index_ext_ctxaug.flow import Flow, arun, run


class ReadOnlyDocstore(BaseDocumentStore):
    """A `BaseDocumentStore` that reads nodes and document lists in batches, and refuses to write.

    Listing a document may cost as much as reading it, so augmenters do it only to save round trips. Lists
    are not in the order in which nodes were added.
    """

    @abstractmethod
    def read(
        self, node_ids: Sequence[str], document_ids: Sequence[str] = (), fields: Sequence[Fields] = ()
    ) -> Flow[Records]:
        """Read nodes, document lists, and all nodes whose metadata have certain fields."""

    def get_nodes(self, node_ids: list[str], raise_error: bool = True) -> list[BaseNode]:
        """Return the nodes of these ids, in their order.

        Raises:
            ValueError: a node is not in the store, and `raise_error`.
        """
        return _present(node_ids, run(self.read(node_ids)), raise_error)

    async def aget_nodes(self, node_ids: list[str], raise_error: bool = True) -> list[BaseNode]:
        """Return the nodes of these ids, as `get_nodes` does."""
        return _present(node_ids, await arun(self.read(node_ids)), raise_error)

    def get_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
        """Return a node.

        Raises:
            ValueError: the node is not in the store, and `raise_error`.
        """
        return next(iter(self.get_nodes([doc_id], raise_error)), None)

    async def aget_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
        """Return a node, as `get_document` does."""
        return next(iter(await self.aget_nodes([doc_id], raise_error)), None)

    def document_exists(self, doc_id: str) -> bool:
        """True if a node is in the store."""
        return self.get_document(doc_id, raise_error=False) is not None

    async def adocument_exists(self, doc_id: str) -> bool:
        """True if a node is in the store."""
        return await self.aget_document(doc_id, raise_error=False) is not None

    def get_ref_doc_info(self, ref_doc_id: str) -> RefDocInfo | None:
        """Return the node list of a source document."""
        return run(self.read([], [ref_doc_id])).documents.get(ref_doc_id)

    async def aget_ref_doc_info(self, ref_doc_id: str) -> RefDocInfo | None:
        """Return the node list of a source document."""
        return (await arun(self.read([], [ref_doc_id]))).documents.get(ref_doc_id)

    def get_document_hash(self, doc_id: str) -> str | None:
        """Return None: no hashes are kept."""
        return None

    async def aget_document_hash(self, doc_id: str) -> str | None:
        """Return None: no hashes are kept."""
        return None

    def get_all_document_hashes(self) -> dict[str, str]:
        """Return an empty dict: no hashes are kept."""
        return {}

    async def aget_all_document_hashes(self) -> dict[str, str]:
        """Return an empty dict: no hashes are kept."""
        return {}

    @property
    def docs(self) -> dict[str, BaseNode]:
        """Not available: it would read the whole store."""
        self._refuse()

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not available: the store is read-only, and is never read as a whole."""
        raise NotImplementedError(
            f"{type(self).__name__} is read-only, and reads neither all nodes nor all documents: "
            "use the store that it reads"
        )

    async def _arefuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not available: the store is read-only, and is never read as a whole."""
        self._refuse()

    get_all_ref_doc_info = add_documents = delete_document = delete_ref_doc = _refuse
    set_document_hash = set_document_hashes = _refuse
    aget_all_ref_doc_info = async_add_documents = adelete_document = adelete_ref_doc = _arefuse
    aset_document_hash = aset_document_hashes = _arefuse


def _present(node_ids: Sequence[str], records: Records, raise_error: bool) -> list[BaseNode]:
    node_ids = list(map(str, node_ids))
    if raise_error and (missing := [id_ for id_ in node_ids if id_ not in records.nodes]):
        raise ValueError(f"{len(missing)} nodes not found, the first is {missing[0]!r}")
    return [records.nodes[id_] for id_ in node_ids if id_ in records.nodes]

"""A document store that can only be read, in batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn

from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore.types import BaseDocumentStore, RefDocInfo


class ReadOnlyDocstore(BaseDocumentStore):
    """A `BaseDocumentStore` that reads nodes and document lists in batches, and refuses to write.

    Listing a document may cost as much as reading it, so augmenters do it only to save round trips.
    """

    @abstractmethod
    def get_nodes(self, node_ids: list[str], raise_error: bool = True) -> list[BaseNode]:
        """Return the nodes of these ids, in their order."""

    @abstractmethod
    async def aget_nodes(self, node_ids: list[str], raise_error: bool = True) -> list[BaseNode]:
        """Return the nodes of these ids, in their order."""

    @abstractmethod
    def get_ref_doc_infos(self, ref_doc_ids: list[str]) -> dict[str, RefDocInfo]:
        """Return the node lists of several source documents; those not found are absent."""

    @abstractmethod
    async def aget_ref_doc_infos(self, ref_doc_ids: list[str]) -> dict[str, RefDocInfo]:
        """Return the node lists of several source documents; those not found are absent."""

    @property
    def docs(self) -> dict[str, BaseNode]:
        """Not available: it would read the whole store."""
        raise NotImplementedError(f"{type(self).__name__} does not list all of its nodes")

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

    def get_ref_doc_info(self, ref_doc_id: str) -> RefDocInfo | None:
        """Return the node list of a source document."""
        return self.get_ref_doc_infos([ref_doc_id]).get(ref_doc_id)

    async def aget_ref_doc_info(self, ref_doc_id: str) -> RefDocInfo | None:
        """Return the node list of a source document."""
        return (await self.aget_ref_doc_infos([ref_doc_id])).get(ref_doc_id)

    def get_all_ref_doc_info(self) -> dict[str, RefDocInfo] | None:
        """Not available: it would read the whole store."""
        raise NotImplementedError(f"{type(self).__name__} does not list all of its documents")

    async def aget_all_ref_doc_info(self) -> dict[str, RefDocInfo] | None:
        """Not available: it would read the whole store."""
        return self.get_all_ref_doc_info()

    def _refuse(self) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} is read-only: write to the store that it reads")

    def add_documents(self, docs: Sequence[BaseNode], *args: Any, **kwargs: Any) -> None:
        """Not available: the store is read-only."""
        self._refuse()

    async def async_add_documents(self, docs: Sequence[BaseNode], *args: Any, **kwargs: Any) -> None:
        """Not available: the store is read-only."""
        self._refuse()

    def delete_document(self, doc_id: str, raise_error: bool = True) -> None:
        """Not available: the store is read-only."""
        self._refuse()

    async def adelete_document(self, doc_id: str, raise_error: bool = True) -> None:
        """Not available: the store is read-only."""
        self._refuse()

    def delete_ref_doc(self, ref_doc_id: str, raise_error: bool = True) -> None:
        """Not available: the store is read-only."""
        self._refuse()

    async def adelete_ref_doc(self, ref_doc_id: str, raise_error: bool = True) -> None:
        """Not available: the store is read-only."""
        self._refuse()

    def set_document_hash(self, doc_id: str, doc_hash: str) -> None:
        """Not available: the store is read-only."""
        self._refuse()

    async def aset_document_hash(self, doc_id: str, doc_hash: str) -> None:
        """Not available: the store is read-only."""
        self._refuse()

    def set_document_hashes(self, doc_hashes: dict[str, str]) -> None:
        """Not available: the store is read-only."""
        self._refuse()

    async def aset_document_hashes(self, doc_hashes: dict[str, str]) -> None:
        """Not available: the store is read-only."""
        self._refuse()

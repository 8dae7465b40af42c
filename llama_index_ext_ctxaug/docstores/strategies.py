"""The three ways to read many records: in bulk, by the store's own `get_nodes`, one by one side by side."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any, Generic, NamedTuple, TypeVar

from llama_index.core.bridge.pydantic import ValidationError
from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore.types import BaseDocumentStore, RefDocInfo

from llama_index_ext_ctxaug.docstores.bulk.registry import BulkRead, Values, private
from llama_index_ext_ctxaug.docstores.concurrency import in_tasks, in_threads
from llama_index_ext_ctxaug.docstores.decoding import decode, decode_document, decode_node, warn_unreadable
from llama_index_ext_ctxaug.docstores.store_call import log_once

T = TypeVar("T")

SLOW_READ = 0.0005
"""Seconds from which a single read is worth a thread or task of its own; one in memory takes 0.00001."""

_UNREADABLE = (JSONDecodeError, UnicodeDecodeError, ValidationError, KeyError)
"""Errors of decoding a broken record, none of which a store out of reach raises."""


class Records(NamedTuple):
    """The records that a read found, by id; `all_documents` is None where it was not read."""

    nodes: Mapping[str, BaseNode]
    documents: Mapping[str, RefDocInfo]
    all_documents: Mapping[str, RefDocInfo] | None = None


@dataclass(frozen=True)
class InBulk:
    """Read nodes and document lists in one call of the key-value store."""

    docstore: BaseDocumentStore
    bulk: BulkRead
    node_ids: Sequence[str]
    document_ids: Sequence[str]

    def read(self) -> Records:
        """Read in the calling thread.

        Raises:
            NotImplementedError: this store cannot be read in bulk.
        """
        return self._records(self.bulk.read(*self._arguments()))

    async def aread(self) -> Records:
        """Read with the store's async side, which the bulk read must have.

        Raises:
            NotImplementedError: this store cannot be read in bulk, or has no async client.
        """
        assert self.bulk.aread is not None
        return self._records(await self.bulk.aread(*self._arguments()))

    def _arguments(self) -> tuple[Any, dict[str, Sequence[str]]]:
        nodes, documents = self._collections()
        keys = {nodes: self.node_ids, documents: self.document_ids}
        return private(self.docstore, "_kvstore"), {name: ids for name, ids in keys.items() if ids}

    def _collections(self) -> tuple[str, str]:
        return private(self.docstore, "_node_collection"), private(self.docstore, "_ref_doc_collection")

    def _records(self, values: Values) -> Records:
        nodes, documents = self._collections()
        decoded = (decode(decode_node, id_, value) for id_, value in values.get(nodes, {}).items())
        lists = ((id_, decode(decode_document, id_, v)) for id_, v in values.get(documents, {}).items())
        return Records(
            {node.node_id: node for node in decoded if node is not None},
            {id_: info for id_, info in lists if info is not None},
        )


@dataclass(frozen=True)
class ManyAtOnce:
    """Read nodes with the store's own `get_nodes`."""

    docstore: BaseDocumentStore

    def read(self, ids: list[str]) -> Sequence[BaseNode | None]:
        """Read in the calling thread."""
        return self.docstore.get_nodes(ids, raise_error=False) if ids else ()

    async def aread(self, ids: list[str]) -> Sequence[BaseNode | None]:
        """Read with the store's async side."""
        return await self.docstore.aget_nodes(ids, raise_error=False) if ids else ()


@dataclass(frozen=True)
class OneByOne(Generic[T]):
    """Read one record after another; side by side where the first shows that a read is slow.

    Attributes:
        docstore: the store, for log messages.
        one: read the record of an id.
        aone: the same as a coroutine.
        limit: maximum reads at a time.
    """

    docstore: BaseDocumentStore
    one: Callable[[str], T | None]
    aone: Callable[[str], Awaitable[T | None]]
    limit: int

    def read(self, ids: list[str]) -> list[T | None]:
        """Read in the calling thread, or in several."""
        start = time.perf_counter()
        first = [self._one(id_) for id_ in ids[:1]]
        rest = ids[1:]
        if self.limit > 1 and _pays(start, rest):
            try:
                return first + in_threads(self._one, rest, self.limit)
            except Exception as error:
                # A client may serve one thread only. A store that is out of reach fails here once more.
                results = first + [self._one(id_) for id_ in rest]
                log_once(self.docstore, "it is read in one thread (as max_concurrency=1 does)", error)
                return results
        return first + [self._one(id_) for id_ in rest]

    async def aread(self, ids: list[str]) -> list[T | None]:
        """Read with the store's async side, in several tasks where it is slow."""
        start = time.perf_counter()
        first = [await self._aone(id_) for id_ in ids[:1]]
        rest = ids[1:]
        if _pays(start, rest):
            return first + await in_tasks(self._aone, rest, self.limit)
        return first + [await self._aone(id_) for id_ in rest]

    def _one(self, id_: str) -> T | None:
        try:
            return self.one(id_)
        except _UNREADABLE as error:
            warn_unreadable(id_, error)
            return None

    async def _aone(self, id_: str) -> T | None:
        try:
            return await self.aone(id_)
        except _UNREADABLE as error:
            warn_unreadable(id_, error)
            return None


def _pays(start: float, rest: Sequence[str]) -> bool:
    return len(rest) > 1 and time.perf_counter() - start >= SLOW_READ

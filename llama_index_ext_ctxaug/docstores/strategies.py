"""Three ways to read many records: in bulk, with the store's own `get_nodes`, one by one side by side.

Each is a step, with its result for sync and async.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from json import JSONDecodeError
from typing import Any, Generic, NamedTuple, TypeVar

from llama_index.core.bridge.pydantic import ValidationError
from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore.types import BaseDocumentStore, RefDocInfo

from llama_index_ext_ctxaug.docstores.bulk.registry import BulkRead, Values, private
from llama_index_ext_ctxaug.docstores.decoding import decode_document, decode_node, decoded, warn_unreadable
from llama_index_ext_ctxaug.docstores.store_call import Call, log_once
from llama_index_ext_ctxaug.flow import Flow, SideBySide, Step, arun, ask, run

T = TypeVar("T")

SLOW_READ = 0.0005
"""Seconds from which a single read is worth a thread or task of its own; one in memory takes 0.00001."""

_UNREADABLE = (JSONDecodeError, UnicodeDecodeError, ValidationError, KeyError)
"""Errors of decoding a broken record, none of which a store out of reach raises."""


Fields = tuple[tuple[str, Any], ...]
"""Metadata keys, each with a value."""


def has_fields(node: BaseNode, fields: Fields) -> bool:
    """True if a node's metadata have these values."""
    return all(node.metadata.get(key) == value for key, value in fields)


class Records(NamedTuple):
    """The records that a read found.

    Attributes:
        nodes: nodes by id.
        documents: the node lists of source documents, by id.
        with_fields: nodes whose metadata have the fields that were requested.
        all_documents: the node lists of all documents; None where not read.
        all_nodes: all nodes; None where not read.
    """

    nodes: Mapping[str, BaseNode]
    documents: Mapping[str, RefDocInfo]
    with_fields: Sequence[BaseNode] = ()
    all_documents: Mapping[str, RefDocInfo] | None = None
    all_nodes: Mapping[str, BaseNode] | None = None


@dataclass(frozen=True)
class InBulk:
    """Read nodes and document lists in one call of the key-value store."""

    docstore: BaseDocumentStore
    bulk: BulkRead
    node_ids: Sequence[str]
    document_ids: Sequence[str]

    def run(self) -> Records:
        """Read in the calling thread.

        Raises:
            NotImplementedError: this store cannot be read in bulk.
        """
        return self._records(self.bulk.read(*self._arguments()))

    async def arun(self) -> Records:
        """Read with the store's async side.

        Raises:
            NotImplementedError: this store cannot be read in bulk, or has no async side.
        """
        if self.bulk.aread is None:
            raise NotImplementedError("its bulk read is sync only")
        with self.bulk.own_loop(self.docstore):
            return self._records(await self.bulk.aread(*self._arguments()))

    def _arguments(self) -> tuple[Any, dict[str, Sequence[str]]]:
        nodes, documents = self._collections()
        keys = {nodes: self.node_ids, documents: self.document_ids}
        return private(self.docstore, "_kvstore"), {name: ids for name, ids in keys.items() if ids}

    def _collections(self) -> tuple[str, str]:
        return private(self.docstore, "_node_collection"), private(self.docstore, "_ref_doc_collection")

    def _records(self, values: Values) -> Records:
        nodes, documents = self._collections()
        return Records(
            decoded(decode_node, values.get(nodes, {})), decoded(decode_document, values.get(documents, {}))
        )


@dataclass(frozen=True)
class ManyAtOnce:
    """Read nodes with the store's own `get_nodes`; the sync or the async form may be missing."""

    docstore: BaseDocumentStore
    ids: list[str]
    otherwise: Step[Sequence[BaseNode | None]]

    def run(self) -> Sequence[BaseNode | None]:
        """Read in the calling thread."""
        if not overrides(self.docstore.get_nodes, BaseDocumentStore.get_nodes):
            return self.otherwise.run()
        return self.docstore.get_nodes(self.ids, raise_error=False) if self.ids else ()

    async def arun(self) -> Sequence[BaseNode | None]:
        """Read with the store's async side."""
        if not overrides(self.docstore.aget_nodes, BaseDocumentStore.aget_nodes):
            return await self.otherwise.arun()
        return await self.docstore.aget_nodes(self.ids, raise_error=False) if self.ids else ()


def overrides(method: Any, core: Any) -> bool:
    """True if a method reads many nodes in its own way, not in core's loop of single reads."""
    return getattr(method, "__func__", None) is not core


@dataclass(frozen=True)
class OneByOne(Generic[T]):
    """Read one record after another; side by side where the first shows that a read is slow.

    Attributes:
        docstore: the store, for log messages.
        ids: keys of the records.
        one: read the record of a key.
        aone: the same as a coroutine.
        limit: maximum reads at a time.
    """

    docstore: BaseDocumentStore
    ids: list[str]
    one: Callable[[str], T | None]
    aone: Callable[[str], Awaitable[T | None]]
    limit: int

    def run(self) -> list[T | None]:
        """Read in the calling thread, or in several."""
        return run(self._flow(retry=True))

    async def arun(self) -> list[T | None]:
        """Read with the store's async side, in one task or in several."""
        return await arun(self._flow(retry=False))

    def _flow(self, *, retry: bool) -> Flow[list[T | None]]:
        results: list[T | None] = []
        failed = None
        start = time.perf_counter()
        for place, id_ in enumerate(self.ids):
            if place == 1 and self.limit > 1 and time.perf_counter() - start >= SLOW_READ:
                rest = [self._read(id_) for id_ in self.ids[1:]]
                try:
                    return results + (yield from ask(SideBySide(rest, self.limit)))
                except Exception as error:
                    if not retry:
                        raise
                    # A client may serve one thread only. A store that is out of reach fails below again.
                    failed = error
            results.append((yield from self._read(id_)))
        if failed:
            log_once(self.docstore, "it is read in one thread (as max_concurrency=1 does)", failed)
        return results

    def _read(self, id_: str) -> Flow[T | None]:
        try:
            return (yield from ask(Call(partial(self.one, id_), partial(self.aone, id_))))
        except _UNREADABLE as error:
            warn_unreadable(id_, error)
            return None

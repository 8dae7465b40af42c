"""The step that reads a document store: in one round trip where the store can, sync and async.

The first strategy that the store offers is used: a bulk read of its key-value store, its own
`get_nodes`, single reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore.types import BaseDocumentStore, RefDocInfo

from llama_index_ext_ctxaug.docstores.bulk.registry import BulkRead, bulk_read_of, private
from llama_index_ext_ctxaug.docstores.decoding import decode_node, decoded
from llama_index_ext_ctxaug.docstores.read_only import ReadOnlyDocstore
from llama_index_ext_ctxaug.docstores.store_call import Call, OrInThread, log_once
from llama_index_ext_ctxaug.docstores.strategies import (
    Fields,
    InBulk,
    ManyAtOnce,
    OneByOne,
    Records,
    overrides,
)
from llama_index_ext_ctxaug.docstores.threads import wait_in_thread
from llama_index_ext_ctxaug.flow import Flow, Step, arun, ask, run

T = TypeVar("T")


@dataclass(frozen=True)
class ReadStep:
    """The step that reads all nodes and document lists of a batch.

    Where records are read in bulk or one by one, a record that cannot be decoded counts as missing, with
    a warning, so that it does not cost the others.

    Attributes:
        docstore: the store to read.
        node_ids: distinct node ids.
        document_ids: distinct source document ids.
        fields: metadata whose nodes are all read, from a store that can only be read.
        all_documents: whether to read the lists of all documents too.
        all_nodes: whether to read all nodes too.
        max_concurrency: maximum single reads at a time, for a slow store without a multi-key read.
        timeout: maximum seconds for the read; None for no limit.
    """

    docstore: BaseDocumentStore
    node_ids: list[str]
    document_ids: list[str]
    fields: Sequence[Fields] = ()
    all_documents: bool = False
    all_nodes: bool = False
    max_concurrency: int = 8
    timeout: float | None = None

    def run(self) -> Records:
        """Read in the calling thread; with a timeout, in a thread that can be abandoned.

        Raises:
            TimeoutError: the store did not answer in time.
        """
        if self.timeout is None:
            return run(self._read())
        return wait_in_thread(lambda: run(self._read()), self.timeout, self._too_late)

    async def arun(self) -> Records:
        """Read with the store's async side, or in a thread where it does not work.

        Raises:
            TimeoutError: the store did not answer in time; the read is cancelled.
        """
        if self.timeout is None:
            return await arun(self._read())
        reading = asyncio.ensure_future(arun(self._read()))
        try:
            return await asyncio.wait_for(reading, self.timeout)
        except asyncio.TimeoutError as error:
            if not reading.cancelled():
                raise  # the store's own error
            raise TimeoutError(self._too_late) from error

    @property
    def _too_late(self) -> str:
        return f"{type(self.docstore).__name__} did not answer within timeout={self.timeout} seconds"

    def _read(self) -> Flow[Records]:
        if isinstance(self.docstore, ReadOnlyDocstore):
            return (yield from self.docstore.read(self.node_ids, self.document_ids, self.fields))
        bulk = bulk_read_of(self.docstore)
        # Without an async bulk read, the store's other async methods may block the event loop too.
        sync_only = bulk is not None and bulk.aread is None
        records = None
        if bulk is not None and (self.node_ids or self.document_ids):
            in_bulk = InBulk(self.docstore, bulk, self.node_ids, self.document_ids)
            records = yield from self._if_implemented("it is read without bulk reads", in_bulk, sync_only)
        if records is None:
            nodes = yield from self._nodes()
            records = Records(nodes, (yield from self._documents()))
        if self.all_documents:
            everything = Call(self.docstore.get_all_ref_doc_info, partial(self._aget_all_documents, bulk))
            found = yield from self._if_implemented("its documents are unknown", everything, sync_only)
            records = records._replace(all_documents=found or {})
        if self.all_nodes:
            every = Call(lambda: self.docstore.docs, partial(self._aget_all_nodes, bulk))
            all_nodes = yield from self._if_implemented("its nodes are unknown", every, sync_only)
            records = records._replace(all_nodes=all_nodes or {})
        return records

    async def _aget_all_documents(self, bulk: BulkRead | None) -> Mapping[str, RefDocInfo] | None:
        with nullcontext() if bulk is None else bulk.own_loop(self.docstore):
            return await self.docstore.aget_all_ref_doc_info()

    async def _aget_all_nodes(self, bulk: BulkRead | None) -> Mapping[str, BaseNode]:
        """Read all nodes from the key-value store, since docstores have no async method for it."""
        if bulk is None:
            raise NotImplementedError("it has no async method that reads all nodes")
        with bulk.own_loop(self.docstore):
            values = await private(self.docstore, "_kvstore").aget_all(
                private(self.docstore, "_node_collection")
            )
        return decoded(decode_node, values)

    def _nodes(self) -> Flow[Mapping[str, BaseNode]]:
        store, ids = self.docstore, self.node_ids
        get, aget = partial(store.get_node, raise_error=False), partial(store.aget_node, raise_error=False)
        step = ManyAtOnce(store, ids, OneByOne(store, ids, get, aget, self.max_concurrency))
        nodes = yield from self._ask(step)
        return {node.node_id: node for node in nodes if node is not None}

    def _documents(self) -> Flow[Mapping[str, RefDocInfo]]:
        store, ids = self.docstore, self.document_ids
        if not ids:
            return {}
        step = OneByOne(store, ids, store.get_ref_doc_info, store.aget_ref_doc_info, self.max_concurrency)
        found = yield from self._if_implemented("the order of its documents is unknown", step)
        return {id_: info for id_, info in zip(ids, found or [None] * len(ids), strict=True) if info}

    def _if_implemented(self, what: str, step: Step[T], sync_only: bool = False) -> Flow[T | None]:
        """Run a step; log it and return None where the store does not implement what it calls."""
        try:
            return (yield from self._ask(step, sync_only))
        except NotImplementedError as error:
            log_once(self.docstore, what, error)
            return None

    def _ask(self, step: Step[T], sync_only: bool = False) -> Flow[T]:
        return ask(OrInThread(step, self.docstore, sync_only, may_hang=self.timeout is not None))


def reads_one_by_one(docstore: BaseDocumentStore) -> bool:
    """True if a docstore has neither a bulk read nor a `get_nodes` of its own."""
    return bulk_read_of(docstore) is None and not overrides(docstore.get_nodes, BaseDocumentStore.get_nodes)

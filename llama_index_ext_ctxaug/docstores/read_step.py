"""The step that reads a document store: in one round trip where the store can, sync and async.

The ways to read, of which the first that this very store offers is taken: a bulk read of its
key-value store, its own `get_nodes`, single reads. In async calls each of them uses the store's async
side, and a thread where that side is missing or belongs to another event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from json import JSONDecodeError, loads
from typing import Any, NamedTuple, TypeVar

from llama_index.core.bridge.pydantic import ValidationError
from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore.types import BaseDocumentStore, RefDocInfo
from pydantic_core import from_json

from llama_index_ext_ctxaug.docstores.bulk import (
    BulkRead,
    Values,
    bulk_read_of,
    of_another_loop,
    private,
)
from llama_index_ext_ctxaug.docstores.concurrency import in_tasks, in_thread, in_threads, wait_in_thread
from llama_index_ext_ctxaug.docstores.decoding import decode_node

logger = logging.getLogger(__name__)

T = TypeVar("T")

SLOW_READ = 0.0005
"""Seconds from which on single reads are worth a thread or a task each; one from memory takes 0.00001."""

_UNREADABLE = (JSONDecodeError, UnicodeDecodeError, ValidationError, KeyError)
"""What decoding a broken record raises, and a store that is out of reach does not."""


class StoreAnswer(NamedTuple):
    """What one round of reading brought: whatever is not in here is not in the store."""

    nodes: Mapping[str, BaseNode]
    documents: Mapping[str, RefDocInfo]
    all_documents: Mapping[str, RefDocInfo] | None = None


@dataclass(frozen=True)
class ReadStep:
    """The step that reads nodes and document lists, all that one round asks for at once.

    A record that cannot be decoded counts as missing, with a warning, where records are read one by
    one or in bulk: it must not cost the others.

    Attributes:
        docstore: where to read.
        node_ids: distinct ids of nodes.
        document_ids: distinct ids of source documents.
        all_documents: whether to read the list of all documents too.
        max_concurrency: most single reads at a time, for a slow store that has no other.
        timeout: most seconds that the read may take; None for no limit.
    """

    docstore: BaseDocumentStore
    node_ids: list[str]
    document_ids: list[str]
    all_documents: bool = False
    max_concurrency: int = 8
    timeout: float | None = None

    def run(self) -> StoreAnswer:
        """Read in the calling thread; with a timeout, in one that can be left behind.

        Raises:
            TimeoutError: the store did not answer in time.
        """
        if self.timeout is None:
            return self._read()
        return wait_in_thread(self._read, self.timeout, self._too_late)

    async def arun(self) -> StoreAnswer:
        """Read with the store's async side; where it has none that works here, in a thread.

        Raises:
            TimeoutError: the store did not answer in time; the read is cancelled.
        """
        if self.timeout is None:
            return await self._aread()
        reading = asyncio.ensure_future(self._aread())
        try:
            return await asyncio.wait_for(reading, self.timeout)
        except asyncio.TimeoutError as error:
            if not reading.cancelled():
                raise  # the store's own error
            raise TimeoutError(self._too_late) from error

    @property
    def _too_late(self) -> str:
        return f"{type(self.docstore).__name__} did not answer within timeout={self.timeout} seconds"

    def _read(self) -> StoreAnswer:
        answer = self._bulk_answer()
        if answer is None:
            answer = _answer(self._nodes(), self._documents())
        return answer._replace(all_documents=self._everything()) if self.all_documents else answer

    async def _aread(self) -> StoreAnswer:
        answer = await self._abulk_answer()
        if answer is None:
            nodes = await self._or_in_thread(self._anodes, self._nodes)
            answer = _answer(nodes, await self._or_in_thread(self._adocuments, self._documents))
        if self.all_documents:
            everything = await self._or_in_thread(self._aeverything, self._everything)
            answer = answer._replace(all_documents=everything)
        return answer

    async def _or_in_thread(self, call: Callable[[], Awaitable[T]], instead: Callable[[], T]) -> T:
        """Await the store's async side; do the same in a thread where the store has no such side."""
        try:
            return await call()
        except Exception as error:
            if not _lacks_async_side(error):
                raise
            _say_once(self.docstore, "its async reads run in a thread", error)
        return await in_thread(instead, may_hang=self.timeout is not None)

    def _bulk_answer(self) -> StoreAnswer | None:
        bulk = bulk_read_of(self.docstore)
        if bulk is None:
            return None
        try:
            return self._decoded(self._bulk_values(bulk))
        except NotImplementedError as error:
            _say_once(self.docstore, "it is read without bulk reads", error)
            return None

    async def _abulk_answer(self) -> StoreAnswer | None:
        bulk = bulk_read_of(self.docstore)
        if bulk is None:
            return None
        read = partial(self._bulk_values, bulk)
        try:
            if bulk.aread is None:
                return self._decoded(await in_thread(read, may_hang=self.timeout is not None))
            return self._decoded(await self._or_in_thread(partial(self._abulk_values, bulk), read))
        except NotImplementedError as error:
            _say_once(self.docstore, "it is read without bulk reads", error)
            return None

    def _bulk_values(self, bulk: BulkRead) -> Values:
        keys = self._keys()
        return bulk.read(private(self.docstore, "_kvstore"), keys) if keys else {}

    async def _abulk_values(self, bulk: BulkRead) -> Values:
        keys = self._keys()
        if not keys or bulk.aread is None:
            return {}
        return await bulk.aread(private(self.docstore, "_kvstore"), keys)

    def _keys(self) -> dict[str, list[str]]:
        keys = {}
        if self.node_ids:
            keys[private(self.docstore, "_node_collection")] = self.node_ids
        if self.document_ids:
            keys[private(self.docstore, "_ref_doc_collection")] = self.document_ids
        return keys

    def _decoded(self, values: Values) -> StoreAnswer:
        nodes = values.get(private(self.docstore, "_node_collection"), {})
        documents = values.get(private(self.docstore, "_ref_doc_collection"), {})
        return _answer(
            (_decode(decode_node, id_, value) for id_, value in nodes.items()),
            ((id_, _decode(_ref_doc_info, id_, value)) for id_, value in documents.items()),
        )

    def _nodes(self) -> Sequence[BaseNode | None]:
        store = self.docstore
        if _reads_many(store.get_nodes, BaseDocumentStore.get_nodes):
            return store.get_nodes(self.node_ids, raise_error=False) if self.node_ids else ()
        return self._singly(partial(store.get_node, raise_error=False), self.node_ids)

    async def _anodes(self) -> Sequence[BaseNode | None]:
        store = self.docstore
        if _reads_many(store.aget_nodes, BaseDocumentStore.aget_nodes):
            return await store.aget_nodes(self.node_ids, raise_error=False) if self.node_ids else ()
        return await self._asingly(partial(store.aget_node, raise_error=False), self.node_ids)

    def _documents(self) -> Iterable[tuple[str, RefDocInfo | None]]:
        ids = self.document_ids
        try:
            return list(zip(ids, self._singly(self.docstore.get_ref_doc_info, ids), strict=True))
        except NotImplementedError as error:
            _say_once(self.docstore, "the order of its documents is unknown", error)
            return []

    async def _adocuments(self) -> Iterable[tuple[str, RefDocInfo | None]]:
        ids = self.document_ids
        return list(zip(ids, await self._asingly(self.docstore.aget_ref_doc_info, ids), strict=True))

    def _everything(self) -> Mapping[str, RefDocInfo]:
        try:
            return self.docstore.get_all_ref_doc_info() or {}
        except NotImplementedError as error:
            _say_once(self.docstore, "its documents are unknown", error)
            return {}

    async def _aeverything(self) -> Mapping[str, RefDocInfo]:
        bulk = bulk_read_of(self.docstore)
        if bulk is not None and bulk.aread is None:
            raise NotImplementedError("its client has no async side")
        return await self.docstore.aget_all_ref_doc_info() or {}

    def _singly(self, read: Callable[[str], T | None], ids: Sequence[str]) -> list[T | None]:
        """One read after another; side by side where the first of them shows that it pays."""

        def one(id_: str) -> T | None:
            try:
                return read(id_)
            except _UNREADABLE as error:
                _warn_unreadable(id_, error)
                return None

        start = time.perf_counter()
        first = [one(id_) for id_ in ids[:1]]
        rest = ids[1:]
        if len(rest) < 2 or self.max_concurrency == 1 or time.perf_counter() - start < SLOW_READ:
            return first + [one(id_) for id_ in rest]
        try:
            return first + in_threads(one, rest, self.max_concurrency)
        except Exception as error:
            # A client may serve one thread only; a store that is out of reach fails here once more.
            results = first + [one(id_) for id_ in rest]
            _say_once(self.docstore, "it is read in one thread (as max_concurrency=1 does)", error)
            return results

    async def _asingly(
        self, read: Callable[[str], Awaitable[T | None]], ids: Sequence[str]
    ) -> list[T | None]:
        """As `_singly`, in tasks."""

        async def one(id_: str) -> T | None:
            try:
                return await read(id_)
            except _UNREADABLE as error:
                _warn_unreadable(id_, error)
                return None

        start = time.perf_counter()
        first = [await one(id_) for id_ in ids[:1]]
        rest = ids[1:]
        if len(rest) < 2 or time.perf_counter() - start < SLOW_READ:
            return first + [await one(id_) for id_ in rest]
        return first + await in_tasks(one, rest, self.max_concurrency)


def _answer(
    nodes: Iterable[BaseNode | None], documents: Iterable[tuple[str, RefDocInfo | None]]
) -> StoreAnswer:
    return StoreAnswer(
        nodes={node.node_id: node for node in nodes if node is not None},
        documents={id_: info for id_, info in documents if info is not None},
    )


def _reads_many(method: Any, core: Any) -> bool:
    """Whether this method reads many nodes in a way of its own, not in core's loop of single reads."""
    return getattr(method, "__func__", None) is not core


def _decode(decode: Callable[[Any], T], id_: str, value: Any) -> T | None:
    try:
        return decode(_parsed(value) if isinstance(value, (str, bytes, bytearray)) else value)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _warn_unreadable(id_, error)
        return None


def _parsed(text: str | bytes | bytearray) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return loads(text)  # it is slower, and takes the lone surrogates that Python's JSON may hold


def _ref_doc_info(value: Mapping[str, Any]) -> RefDocInfo:
    node_ids = value.get("node_ids", value.get("doc_ids"))  # the latter in stores of old versions
    return RefDocInfo(node_ids=list(node_ids or ()), metadata=value.get("metadata") or {})


def _warn_unreadable(id_: str, error: Exception) -> None:
    logger.warning("The docstore's record %r cannot be decoded and counts as missing: %r", id_, error)


def _lacks_async_side(error: Exception) -> bool:
    """Whether an async read failed for want of a client, or of one that belongs to this event loop."""
    if isinstance(error, AttributeError):
        return error.obj is None
    return isinstance(error, NotImplementedError) or (
        isinstance(error, RuntimeError) and of_another_loop(error)
    )


_said: set[str] = set()


def _say_once(docstore: BaseDocumentStore, what: str, why: Exception) -> None:
    """Log how a kind of store is read, once in a process: it holds for each of its reads."""
    message = f"{type(docstore).__name__}: {what}, since {str(why) or type(why).__name__}"
    if message not in _said:
        _said.add(message)
        logger.warning("%s", message)

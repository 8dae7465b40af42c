"""Batched reads from any `BaseDocumentStore`: each id at most once per call, sync and async."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore.types import BaseDocumentStore, RefDocInfo
from llama_index.core.storage.kvstore import SimpleKVStore

from llama_index_ext_ctxaug.docstores.read_only import ReadOnlyDocstore
from llama_index_ext_ctxaug.docstores.read_step import ReadStep
from llama_index_ext_ctxaug.docstores.strategies import Fields, has_fields
from llama_index_ext_ctxaug.flow import Flow, ask

T = TypeVar("T")


class ReadRequest(NamedTuple):
    """A request of a search for what it needs loaded before it can continue.

    Attributes:
        nodes: node ids; hits among them are not read.
        copies: ids of hits that lack a link, so that their stored copy is needed.
        documents: ids of source documents that need their list of node ids.
        fields: metadata of which all nodes are needed, from a store that finds them.
        all_documents: whether the list of all documents is needed; this read grows with the store.
        all_roots: whether all nodes without a source document are needed; this reads the whole store.
    """

    nodes: Sequence[str] = ()
    copies: Sequence[str] = ()
    documents: Sequence[str] = ()
    fields: Sequence[Fields] = ()
    all_documents: bool = False
    all_roots: bool = False


Search = Generator[ReadRequest, None, T]
"""The search for one hit's neighbors: yields what it needs, resumes once its reads are loaded."""


class DocumentOrder(NamedTuple):
    """The node ids of a source document in the order of its store, and the position of each."""

    ids: tuple[str, ...]
    places: Mapping[str, int]


def document_order(info: RefDocInfo) -> DocumentOrder:
    """Return the order of a document as its store lists it."""
    ids = tuple(info.node_ids)
    return DocumentOrder(ids, dict(zip(ids, range(len(ids)), strict=True)))


@dataclass(slots=True)
class _Batch:
    """The keys of one read, as keys of dicts: distinct and in order."""

    nodes: dict[str, None] = field(default_factory=dict)
    documents: dict[str, None] = field(default_factory=dict)
    fields: dict[Fields, None] = field(default_factory=dict)
    all_documents: bool = False
    all_roots: bool = False


@dataclass
class BatchReader:
    """Nodes loaded during one call, and the reader that loads more.

    Attributes:
        docstore: the store to read.
        hits: the hits' own nodes by id; they are never read for their text.
        max_concurrency: maximum single reads at a time, for a store without a multi-key read.
        timeout: maximum seconds for one batched read; None for no limit.
        stored: nodes read from the store, by id; None where the store has no such node.
        documents: node lists read, by source document id; None where the store has no such list.
        with_fields: nodes with metadata that was requested, for each request.
        all_documents: all documents of the store, once read.
        all_roots: all nodes without a source document, as documents of one node, once read.
        round_trips: number of batched reads so far.
        reads: number of keys read so far (nodes and document lists).
        error: the error that the store raised, if any.
    """

    docstore: BaseDocumentStore
    hits: Mapping[str, BaseNode]
    max_concurrency: int = 8
    timeout: float | None = None
    stored: dict[str, BaseNode | None] = field(default_factory=dict)
    documents: dict[str, DocumentOrder | None] = field(default_factory=dict)
    with_fields: dict[Fields, list[BaseNode]] = field(default_factory=dict)
    all_documents: Mapping[str, RefDocInfo] | None = None
    all_roots: Mapping[str, RefDocInfo] | None = None
    round_trips: int = 0
    reads: int = 0
    error: Exception | None = None

    @property
    def lists_are_costly(self) -> bool:
        """True if listing a document costs more than reading a few nodes, and gives no order of insertion."""
        return isinstance(self.docstore, ReadOnlyDocstore)

    @property
    def documents_have_order(self) -> bool:
        """True if all documents are listed in the order in which they were added; only memory keeps it."""
        return isinstance(getattr(self.docstore, "_kvstore", None), SimpleKVStore)

    def node(self, node_id: str) -> BaseNode | None:
        """Return the hit of this id, else the stored node; None if not loaded."""
        return self.hits.get(node_id) or self.stored.get(node_id)

    def copy(self, node_id: str) -> BaseNode | None:
        """Return the store's copy of this node; None if it was not read or not found."""
        return self.stored.get(node_id)

    def lacks(self, request: ReadRequest) -> bool:
        """True if something in this request has not been read yet."""
        return self._collect(request, _Batch())

    def fetch(self, requests: Iterable[ReadRequest]) -> Flow[None]:
        """Load what these requests lack, in at most one read."""
        batch = _Batch()
        for request in requests:
            self._collect(request, batch)
        yield from self._read(batch)

    def advance(self, searches: Iterable[Search[T]]) -> Flow[list[T]]:
        """Run searches side by side, so that what they need at one time is one read.

        Args:
            searches: the searches, which share no state that they change.

        Returns:
            The results, in the order of the searches.
        """
        running = list(enumerate(searches))
        results: dict[int, T] = {}
        while running:
            batch = _Batch()
            waiting: list[tuple[int, Search[T]]] = []
            for place, search in running:
                try:
                    while not self._collect(next(search), batch):
                        pass
                except StopIteration as stop:
                    results[place] = stop.value
                else:
                    waiting.append((place, search))
            yield from self._read(batch)
            running = waiting
        return [results[place] for place in sorted(results)]

    def _collect(self, request: ReadRequest, batch: _Batch) -> bool:
        """Add what a request lacks to the batch; return True if it lacks anything."""
        stored, hits = self.stored, self.hits
        lacking = False
        for id_ in request.nodes:
            if id_ not in stored and id_ not in hits:
                batch.nodes[id_] = None
                lacking = True
        for id_ in request.copies:
            if id_ not in stored:
                batch.nodes[id_] = None
                lacking = True
        for id_ in request.documents:
            if id_ not in self.documents:
                batch.documents[id_] = None
                lacking = True
        for fields in request.fields:
            if fields not in self.with_fields:
                batch.fields[fields] = None
                lacking = True
        if request.all_documents and self.all_documents is None:
            batch.all_documents = lacking = True
        if request.all_roots and self.all_roots is None:
            batch.all_roots = lacking = True
        return lacking

    def _read(self, batch: _Batch) -> Flow[None]:
        nodes, documents, fields = list(batch.nodes), list(batch.documents), list(batch.fields)
        keys = len(nodes) + len(documents) + len(fields) + batch.all_documents + batch.all_roots
        if not keys:
            return
        self.round_trips += 1
        self.reads += keys
        step = ReadStep(
            self.docstore,
            nodes,
            documents,
            fields,
            batch.all_documents,
            batch.all_roots,
            self.max_concurrency,
            self.timeout,
        )
        try:
            answer = yield from ask(step)
        except Exception as error:
            self.error = error
            raise
        for id_ in nodes:
            self.stored[id_] = answer.nodes.get(id_)
        for id_ in documents:
            info = answer.documents.get(id_)
            self.documents[id_] = document_order(info) if info else None
        for one in fields:
            self.with_fields[one] = [node for node in answer.with_fields if has_fields(node, one)]
        for node in answer.with_fields:
            self.stored.setdefault(node.node_id, node)
        if batch.all_documents:
            self.all_documents = answer.all_documents
        if batch.all_roots:
            self._add_roots(answer.all_nodes or {})

    def _add_roots(self, nodes: Mapping[str, BaseNode]) -> None:
        roots = {id_: node for id_, node in nodes.items() if node.source_node is None}
        for id_, node in roots.items():
            self.stored.setdefault(id_, node)
        self.all_roots = {id_: RefDocInfo([id_], node.metadata) for id_, node in roots.items()}

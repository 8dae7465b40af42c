"""Batched reads from any `BaseDocumentStore`: each id at most once a call, sync and async."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore.types import BaseDocumentStore, RefDocInfo

from llama_index_ext_ctxaug.docstores.read_step import ReadStep
from llama_index_ext_ctxaug.flow import Flow, ask

T = TypeVar("T")


class ReadRequest(NamedTuple):
    """What a task needs in hand before it can go on.

    Attributes:
        nodes: ids of nodes; one that is in hand as a hit is not read.
        copies: ids of hits whose stored copy is needed, since the hit itself lacks a link.
        documents: ids of source documents whose list of node ids is needed.
        all_documents: whether the list of all documents is needed (reads grow with the store).
    """

    nodes: Sequence[str] = ()
    copies: Sequence[str] = ()
    documents: Sequence[str] = ()
    all_documents: bool = False


Search = Generator[ReadRequest, None, T]
"""The search of one hit for its neighbors: yields what it wants, goes on when that was looked for."""


class DocumentOrder(NamedTuple):
    """The node ids of a source document as its store lists them, and the place of each in that list."""

    ids: tuple[str, ...]
    places: Mapping[str, int]


def _order(info: RefDocInfo) -> DocumentOrder:
    ids = tuple(info.node_ids)
    return DocumentOrder(ids, dict(zip(ids, range(len(ids)), strict=True)))


@dataclass(slots=True)
class _Batch:
    """What one round of reading asks for: keys of dicts, so that each is asked for once and in order."""

    nodes: dict[str, None] = field(default_factory=dict)
    documents: dict[str, None] = field(default_factory=dict)
    all_documents: bool = False


@dataclass
class BatchReader:
    """The nodes that one call has in hand, and the only way to get more.

    Attributes:
        docstore: where nodes are read.
        hits: the hits' own nodes by id; they are never read for their text.
        max_concurrency: most single reads at a time, for a store that has no other.
        timeout: most seconds that one round may take; None for no limit.
        stored: what was read from the store, by id; None where the store has no such node.
        documents: the list of nodes of each source document that was asked for, by document id; None
            where the store has no such list.
        all_documents: all documents of the store, once they were read.
        round_trips: number of batched reads so far.
        reads: number of keys asked for so far (nodes and document lists).
        error: what the store raised, if it did.
    """

    docstore: BaseDocumentStore
    hits: Mapping[str, BaseNode]
    max_concurrency: int = 8
    timeout: float | None = None
    stored: dict[str, BaseNode | None] = field(default_factory=dict)
    documents: dict[str, DocumentOrder | None] = field(default_factory=dict)
    all_documents: Mapping[str, RefDocInfo] | None = None
    round_trips: int = 0
    reads: int = 0
    error: Exception | None = None

    def node(self, node_id: str) -> BaseNode | None:
        """The node of this id: the hit where it is one, else what the store gave; None if not in hand."""
        return self.hits.get(node_id) or self.stored.get(node_id)

    def copy(self, node_id: str) -> BaseNode | None:
        """The store's copy of this node, if it was read and found."""
        return self.stored.get(node_id)

    def lacks(self, want: ReadRequest) -> bool:
        """Whether anything in this want has not been looked for yet."""
        return self._collect(want, _Batch())

    def fetch(self, requests: Iterable[ReadRequest]) -> Flow[None]:
        """Read what these wants lack, in one round; nothing lacking costs no round."""
        batch = _Batch()
        for request in requests:
            self._collect(request, batch)
        yield from self._read(batch)

    def advance(self, tasks: Iterable[Search[T]]) -> Flow[list[T]]:
        """Run many tasks side by side, so that all that they want at one moment is one read.

        Args:
            tasks: the searches; what they return stands at the same place in the result.

        Returns:
            The tasks' results, in the order of the tasks.
        """
        running = list(enumerate(tasks))
        results: dict[int, T] = {}
        while running:
            batch = _Batch()
            waiting: list[tuple[int, Search[T]]] = []
            for place, task in running:
                try:
                    while not self._collect(next(task), batch):
                        pass
                except StopIteration as stop:
                    results[place] = stop.value
                else:
                    waiting.append((place, task))
            yield from self._read(batch)
            running = waiting
        return [results[place] for place in sorted(results)]

    def _collect(self, want: ReadRequest, batch: _Batch) -> bool:
        """Put what a want lacks into the batch; whether it lacks anything."""
        stored, hits = self.stored, self.hits
        lacking = False
        for id_ in want.nodes:
            if id_ not in stored and id_ not in hits:
                batch.nodes[id_] = None
                lacking = True
        for id_ in want.copies:
            if id_ not in stored:
                batch.nodes[id_] = None
                lacking = True
        for id_ in want.documents:
            if id_ not in self.documents:
                batch.documents[id_] = None
                lacking = True
        if want.all_documents and self.all_documents is None:
            batch.all_documents = lacking = True
        return lacking

    def _read(self, batch: _Batch) -> Flow[None]:
        nodes, documents = list(batch.nodes), list(batch.documents)
        if not (nodes or documents or batch.all_documents):
            return
        self.round_trips += 1
        self.reads += len(nodes) + len(documents) + batch.all_documents
        step = ReadStep(
            self.docstore, nodes, documents, batch.all_documents, self.max_concurrency, self.timeout
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
            self.documents[id_] = _order(info) if info else None
        if answer.all_documents is not None:
            self.all_documents = answer.all_documents

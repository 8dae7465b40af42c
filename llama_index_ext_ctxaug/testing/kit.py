"""Linked documents, a docstore that counts and misbehaves, an embedding model and an LLM for tests."""

from __future__ import annotations

import asyncio
import re
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MethodType
from typing import Any, Literal

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.llms import CompletionResponse, CompletionResponseGen, CustomLLM, LLMMetadata
from llama_index.core.schema import BaseNode, NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
from llama_index.core.storage.docstore.types import BaseDocumentStore, RefDocInfo

_WORDS = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]|[^\W_\u3040-\u30ff\u4e00-\u9fff]+")


def linked_document(
    texts: int | Sequence[str],
    *,
    source_id: str = "doc",
    links: Literal["both", "previous", "next", "none"] = "both",
    offsets: bool = False,
    metadata: Mapping[str, Any] | None = None,
    make_id: Callable[[str], str] = str,
) -> list[TextNode]:
    """Return the linked chunks of one document, with ids that do not sort in reading order.

    Args:
        texts: texts of the chunks, or the number of chunks to make up.
        source_id: id of the document, under SOURCE.
        links: the relationships to set, of PREVIOUS and NEXT.
        offsets: set character offsets, as if the document were the texts joined without a separator.
        metadata: metadata of every chunk.
        make_id: turns a chunk's name into its id, for stores that accept certain ids only.

    Returns:
        The chunks in reading order.
    """
    if isinstance(texts, int):
        texts = [f"This is chunk {number} of {source_id}." for number in range(texts)]
    nodes = [
        TextNode(id_=make_id(f"{source_id}-{_scrambled(number)}"), text=text, metadata=dict(metadata or {}))
        for number, text in enumerate(texts)
    ]
    start = 0
    for number, node in enumerate(nodes):
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=source_id)
        if number > 0 and links in ("both", "previous"):
            node.relationships[NodeRelationship.PREVIOUS] = RelatedNodeInfo(node_id=nodes[number - 1].id_)
        if number < len(nodes) - 1 and links in ("both", "next"):
            node.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id=nodes[number + 1].id_)
        if offsets:
            node.start_char_idx, node.end_char_idx = start, start + len(node.text)
        start += len(node.text)
    return nodes


def _scrambled(number: int) -> str:
    """Return a name for a number, such that the names of consecutive numbers do not sort in order."""
    return f"{(number * 7919 + 5) % 9973:04d}-{number}"


def hits(
    nodes: Sequence[BaseNode], places: Iterable[int], scores: Iterable[float | None] | None = None
) -> list[NodeWithScore]:
    """Return the hits that a retriever would find: the nodes at these places, in this order.

    Args:
        nodes: the chunks of a document.
        places: positions of the retrieved chunks, best first.
        scores: their scores; by default 0.9, 0.8, 0.7 and so on.
    """
    places = list(places)
    scores = [0.9 - 0.1 * rank for rank in range(len(places))] if scores is None else list(scores)
    return [NodeWithScore(node=nodes[p], score=score) for p, score in zip(places, scores, strict=True)]


def docstore_of(*documents: Sequence[BaseNode]) -> SimpleDocumentStore:
    """Return a `SimpleDocumentStore` that holds these nodes, added in this order."""
    store = SimpleDocumentStore()
    for nodes in documents:
        store.add_documents(list(nodes))
    return store


class ObservedDocstore(KVDocumentStore):
    """A docstore in front of another one that counts reads, adds latency, loses nodes and fails.

    Args:
        inner: the store that holds the nodes; it must be a `KVDocumentStore`.
        latency: seconds of each read (one read of many nodes is one read).
        missing: ids of nodes that reads do not find.
        fail_after: number of reads that work; later ones raise `error`. None for no failure.
        error: exception of a failing read.
        single_reads: read many nodes one after another, as core's `get_nodes` does.
    """

    def __init__(
        self,
        inner: KVDocumentStore,
        *,
        latency: float = 0.0,
        missing: Collection[str] = (),
        fail_after: int | None = None,
        error: Exception | None = None,
        single_reads: bool = False,
    ) -> None:
        super().__init__(inner._kvstore, namespace=inner._namespace)
        self._node_collection = inner._node_collection
        self._ref_doc_collection = inner._ref_doc_collection
        self._metadata_collection = inner._metadata_collection
        self.latency = latency
        self.missing = frozenset(missing)
        self.fail_after = fail_after
        self.error = error or ConnectionError("the docstore is gone")
        if single_reads:
            self.get_nodes = MethodType(BaseDocumentStore.get_nodes, self)  # type: ignore[method-assign]
            self.aget_nodes = MethodType(BaseDocumentStore.aget_nodes, self)  # type: ignore[method-assign]
        self.batches: list[list[str]] = []
        """Ids of the nodes of each read, in the order of the reads."""
        self.document_reads: list[str] = []
        """Ids of the documents whose list of nodes was read."""
        self._lock = threading.Lock()

    @property
    def node_reads(self) -> list[str]:
        """Ids of all nodes that were requested, in order, repetitions included."""
        return [id_ for batch in self.batches for id_ in batch]

    def reset(self) -> None:
        """Forget the counted reads."""
        self.batches.clear()
        self.document_reads.clear()

    def get_nodes(self, node_ids: list[str], raise_error: bool = True) -> list[BaseNode]:
        """Read many nodes, counted as one read."""
        self._count(self.batches, list(node_ids))
        time.sleep(self.latency)
        return self._found(node_ids, raise_error)

    async def aget_nodes(self, node_ids: list[str], raise_error: bool = True) -> list[BaseNode]:
        """Read many nodes, counted as one read."""
        self._count(self.batches, list(node_ids))
        await asyncio.sleep(self.latency)
        return self._found(node_ids, raise_error)

    def get_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
        """Read one node, counted."""
        return next(iter(ObservedDocstore.get_nodes(self, [doc_id], raise_error)), None)

    async def aget_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
        """Read one node, counted."""
        return next(iter(await ObservedDocstore.aget_nodes(self, [doc_id], raise_error)), None)

    def get_ref_doc_info(self, ref_doc_id: str) -> RefDocInfo | None:
        """Read a document's list of nodes, counted."""
        self._count(self.document_reads, ref_doc_id)
        time.sleep(self.latency)
        return super().get_ref_doc_info(ref_doc_id)

    async def aget_ref_doc_info(self, ref_doc_id: str) -> RefDocInfo | None:
        """Read a document's list of nodes, counted."""
        self._count(self.document_reads, ref_doc_id)
        await asyncio.sleep(self.latency)
        return await super().aget_ref_doc_info(ref_doc_id)

    def _count(self, reads: list[Any], read: object) -> None:
        with self._lock:
            reads.append(read)
            done = len(self.batches) + len(self.document_reads)
        if self.fail_after is not None and done > self.fail_after:
            raise self.error

    def _found(self, node_ids: Sequence[str], raise_error: bool) -> list[BaseNode]:
        nodes = []
        for id_ in node_ids:
            node = None if id_ in self.missing else super().get_document(id_, raise_error=False)
            if node is not None:
                nodes.append(node)
            elif raise_error:
                raise ValueError(f"doc_id {id_} not found.")
        return nodes


class WordEmbedding(BaseEmbedding):
    """An embedding without a model: texts are similar when they share words, or Chinese characters.

    Deterministic in every process; for tests and for examples that must run offline.

    Attributes:
        dimensions: length of the vectors; words that fall into one dimension are the same to it.
    """

    dimensions: int = Field(default=1024, description="Length of the vectors.")
    _calls: list[list[str]] = PrivateAttr(default_factory=list)

    @property
    def calls(self) -> list[list[str]]:
        """Texts of each batch so far."""
        return self._calls

    def _vector(self, text: str) -> list[float]:
        vector = [0.0] * self.dimensions
        for word in _WORDS.findall(text.lower()):
            vector[zlib.crc32(word.encode()) % self.dimensions] += 1.0
        return vector

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._vector(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._vector(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self._calls.append(list(texts))
        return [self._vector(text) for text in texts]

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._get_text_embeddings(texts)


class ScriptedLLM(CustomLLM):
    """An LLM that replies from a script and records its prompts.

    Attributes:
        answers: replies in turn (the last one is repeated), or a function of the prompt.
        latency: seconds of each reply; the async call does not block.
        context_window: tokens that it claims to read.
    """

    answers: list[str] | Callable[[str], str] = Field(description="Replies in turn, or a function.")
    latency: float = 0.0
    context_window: int = 4096
    _prompts: list[str] = PrivateAttr(default_factory=list)
    _async_calls: int = PrivateAttr(default=0)

    @property
    def prompts(self) -> list[str]:
        """Prompts so far, in the order of the calls."""
        return self._prompts

    @property
    def async_calls(self) -> int:
        """Number of calls through the async method."""
        return self._async_calls

    @property
    def metadata(self) -> LLMMetadata:
        """Metadata of the LLM: the claimed context window."""
        return LLMMetadata(context_window=self.context_window, num_output=16, model_name="scripted")

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Return the next reply."""
        reply = self._reply(prompt)
        time.sleep(self.latency)
        return CompletionResponse(text=reply)

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Return the next reply, after a wait that lets others run."""
        self._async_calls += 1
        reply = self._reply(prompt)
        await asyncio.sleep(self.latency)
        return CompletionResponse(text=reply)

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """Yield the next reply as one piece."""
        reply = self.complete(prompt, formatted, **kwargs).text
        yield CompletionResponse(text=reply, delta=reply)

    def _reply(self, prompt: str) -> str:
        self._prompts.append(prompt)
        if callable(self.answers):
            return self.answers(prompt)
        return self.answers[min(len(self._prompts), len(self.answers)) - 1]

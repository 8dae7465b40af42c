"""The registry of vector store reads, and the read that uses public methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, NamedTuple

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.types import BasePydanticVectorStore

By = Literal["node", "document"]
"""The kind of ids: those of nodes, or of source documents whose nodes are all read."""


class VectorRead(NamedTuple):
    """A read of one kind of vector store.

    Attributes:
        read: `read(vector_store, by, ids) -> nodes`, for at least one id; order and repetitions are free.
        aread: the same without blocking the event loop; None to run `read` in a thread.
        batch: maximum ids in one read.
    """

    read: Callable[[Any, By, Sequence[str]], Sequence[BaseNode]]
    aread: Callable[[Any, By, Sequence[str]], Awaitable[Sequence[BaseNode]]] | None = None
    batch: int = 1000


_registered: dict[str, VectorRead | None] = {}


def register_vector_read(vector_store: str, read: VectorRead | None) -> None:
    """Register how `VectorStoreDocstore` reads a vector store class.

    Classes whose `get_nodes(node_ids=..., filters=...)` works need no registration.

    Args:
        vector_store: the qualified name of the class, which need not be importable.
        read: the read; None for a class whose `get_nodes` refuses node ids.
    """
    _registered[vector_store] = read


def vector_read_of(vector_store: BasePydanticVectorStore) -> VectorRead | None:
    """Return the read of a vector store; None if it cannot read nodes by id."""
    kind = type(vector_store)
    for base in kind.__mro__:
        name = f"{base.__module__}.{base.__qualname__}"
        if name in _registered:
            return _registered[name]
    if kind.get_nodes is BasePydanticVectorStore.get_nodes:
        return None
    has_async = kind.aget_nodes is not BasePydanticVectorStore.aget_nodes  # core's blocks the event loop
    return VectorRead(read_publicly, aread_publicly if has_async else None)


def read_publicly(store: Any, by: By, ids: Sequence[str], **options: Any) -> Sequence[BaseNode]:
    """Read with `get_nodes`, with further arguments of the store's own."""
    nodes: Sequence[BaseNode] = store.get_nodes(*_arguments(by, ids), **options)
    return nodes


async def aread_publicly(store: Any, by: By, ids: Sequence[str]) -> Sequence[BaseNode]:
    """Read with `aget_nodes`."""
    nodes: Sequence[BaseNode] = await store.aget_nodes(*_arguments(by, ids))
    return nodes


def _arguments(by: By, ids: Sequence[str]) -> tuple[list[str] | None, MetadataFilters | None]:
    if by == "node":
        return list(ids), None
    documents = MetadataFilter(key="ref_doc_id", value=list(ids), operator=FilterOperator.IN)
    return None, MetadataFilters(filters=[documents])

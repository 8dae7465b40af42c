"""The registry of vector store reads, and the read that uses public methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.types import BasePydanticVectorStore

DOCUMENT_ID = "ref_doc_id"
"""The metadata key of the source document, which LlamaIndex writes into every vector store."""

Wanted = Sequence[str] | Mapping[str, Sequence[Any]]
"""Node ids; or metadata keys, each with values of which a node must have one."""


class VectorRead(NamedTuple):
    """A read of one kind of vector store.

    Attributes:
        read: `read(vector_store, wanted) -> nodes`, for at least one id or key; order and repetitions are
            free.
        aread: the same without blocking the event loop; None to run `read` in a thread.
        batch: maximum ids in one read.
    """

    read: Callable[[Any, Wanted], Sequence[BaseNode]]
    aread: Callable[[Any, Wanted], Awaitable[Sequence[BaseNode]]] | None = None
    batch: int = 1000


registered: dict[str, VectorRead | None] = {}
"""The reads by the qualified name of the class; None for a class whose `get_nodes` is of no use."""


def vector_read_of(vector_store: BasePydanticVectorStore) -> VectorRead | None:
    """Return the read of a vector store; None if it cannot read nodes by id.

    Classes whose `get_nodes(node_ids, filters)` works need no registration.
    """
    kind = type(vector_store)
    for base in kind.__mro__:
        name = f"{base.__module__}.{base.__qualname__}"
        if name in registered:
            return registered[name]
    if kind.get_nodes is BasePydanticVectorStore.get_nodes:
        return None
    has_async = kind.aget_nodes is not BasePydanticVectorStore.aget_nodes  # core's blocks the event loop
    return VectorRead(read_publicly, aread_publicly if has_async else None)


def read_publicly(store: Any, wanted: Wanted, **options: Any) -> Sequence[BaseNode]:
    """Read with `get_nodes`, with further arguments of the store's own."""
    nodes: Sequence[BaseNode] = store.get_nodes(*_arguments(wanted), **options)
    return nodes


async def aread_publicly(store: Any, wanted: Wanted) -> Sequence[BaseNode]:
    """Read with `aget_nodes`."""
    nodes: Sequence[BaseNode] = await store.aget_nodes(*_arguments(wanted))
    return nodes


def _arguments(wanted: Wanted) -> tuple[list[str] | None, MetadataFilters | None]:
    if not isinstance(wanted, Mapping):
        return list(wanted), None
    one_of = FilterOperator.IN
    return None, MetadataFilters(
        filters=[MetadataFilter(key=key, value=list(v), operator=one_of) for key, v in wanted.items()]
    )

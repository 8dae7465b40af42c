"""Read of Weaviate, since its vector store has no `get_nodes`: objects of a collection, without vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from llama_index.core.schema import BaseNode

from llama_index_ext_ctxaug.docstores.bulk.registry import private
from llama_index_ext_ctxaug.docstores.vector_reads.registry import Wanted

_LIMIT = 10_000
"""Maximum objects of one answer, the server's setting `QUERY_MAXIMUM_RESULTS`."""


def read(store: Any, wanted: Wanted) -> Sequence[BaseNode]:
    """Read with the sync client."""
    query, request = private(store, "_client").collections.get(store.index_name).query, _request(wanted)
    return _nodes(store, query.fetch_objects(**request).objects) if request else []


async def aread(store: Any, wanted: Wanted) -> Sequence[BaseNode]:
    """Read with the async client."""
    query, request = private(store, "_aclient").collections.get(store.index_name).query, _request(wanted)
    return _nodes(store, (await query.fetch_objects(**request)).objects) if request else []


def _request(wanted: Wanted) -> dict[str, Any]:
    from weaviate.classes.query import Filter

    if isinstance(wanted, Mapping):
        # A text property may match by words: the docstore drops what has other values.
        conditions = [Filter.by_property(key).contains_any(list(v)) for key, v in wanted.items()]
        return {"filters": Filter.all_of(conditions), "limit": _LIMIT}
    ids: list[UUID] = []
    for id_ in wanted:
        with suppress(ValueError):  # no object can have this id
            ids.append(UUID(id_))
    return {"filters": Filter.by_id().contains_any(ids), "limit": len(ids)} if ids else {}


def _nodes(store: Any, objects: Sequence[Any]) -> list[BaseNode]:
    from llama_index.vector_stores.weaviate.utils import to_node

    return [to_node(vars(one), text_key=store.text_key) for one in objects]

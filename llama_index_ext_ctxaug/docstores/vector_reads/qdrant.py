"""Read of Qdrant without vectors; the store's `get_nodes` returns them, and at most 9,999 nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from llama_index.core.schema import BaseNode

from llama_index_ext_ctxaug.docstores.bulk.registry import private
from llama_index_ext_ctxaug.docstores.event_loops import own_loop
from llama_index_ext_ctxaug.docstores.vector_reads.registry import By

_PAGE = 1000


def read(store: Any, by: By, ids: Sequence[str]) -> Sequence[BaseNode]:
    """Read with the sync client."""
    client, request = private(store, "_client"), _request(store, by, ids)
    if by == "node":
        return _nodes(store, client.retrieve(**request)) if request["ids"] else []
    points: list[Any] = []
    while True:
        page, request["offset"] = client.scroll(**request)
        points += page
        if request["offset"] is None:
            return _nodes(store, points)


async def aread(store: Any, by: By, ids: Sequence[str]) -> Sequence[BaseNode]:
    """Read with the async client."""
    client, request = private(store, "_aclient"), _request(store, by, ids)
    points: list[Any] = []
    with own_loop(client):
        if by == "node":
            return _nodes(store, await client.retrieve(**request)) if request["ids"] else []
        while True:
            page, request["offset"] = await client.scroll(**request)
            points += page
            if request["offset"] is None:
                return _nodes(store, points)


def _request(store: Any, by: By, ids: Sequence[str]) -> dict[str, Any]:
    from qdrant_client.http.models import FieldCondition, Filter, MatchAny

    request = {"collection_name": store.collection_name, "with_payload": True, "with_vectors": False}
    if by == "node":
        return {**request, "ids": [id_ for id_ in ids if _is_uuid(id_)]}
    # "doc_id" is the field that the store indexes.
    condition = FieldCondition(key="doc_id", match=MatchAny(any=list(ids)))
    return {**request, "scroll_filter": Filter(must=[condition]), "limit": _PAGE, "offset": None}


def _is_uuid(id_: str) -> bool:
    """True if a node can have this id: others are refused when nodes are added, and when they are read."""
    try:
        UUID(id_)
    except ValueError:
        return False
    return True


def _nodes(store: Any, points: Sequence[Any]) -> Sequence[BaseNode]:
    nodes: Sequence[BaseNode] = store.parse_to_query_result(points).nodes
    return nodes

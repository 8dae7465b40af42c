"""Read of Qdrant without vectors; the store's `get_nodes` returns them, and at most 9,999 nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from llama_index.core.schema import BaseNode

from llama_index_ext_ctxaug.docstores.bulk.registry import private
from llama_index_ext_ctxaug.docstores.vector_reads.registry import DOCUMENT_ID, Wanted

_PAGE = 1000


def read(store: Any, wanted: Wanted) -> Sequence[BaseNode]:
    """Read with the sync client."""
    client, request = private(store, "_client"), _request(store, wanted)
    if "ids" in request:
        return _nodes(store, client.retrieve(**request)) if request["ids"] else []
    points: list[Any] = []
    while True:
        page, request["offset"] = client.scroll(**request)
        points += page
        if request["offset"] is None:
            return _nodes(store, points)


async def aread(store: Any, wanted: Wanted) -> Sequence[BaseNode]:
    """Read with the async client."""
    client, request = private(store, "_aclient"), _request(store, wanted)
    if "ids" in request:
        return _nodes(store, await client.retrieve(**request)) if request["ids"] else []
    points: list[Any] = []
    while True:
        page, request["offset"] = await client.scroll(**request)
        points += page
        if request["offset"] is None:
            return _nodes(store, points)


def _request(store: Any, wanted: Wanted) -> dict[str, Any]:
    from qdrant_client.http.models import FieldCondition, Filter, MatchAny

    request = {"collection_name": store.collection_name, "with_payload": True, "with_vectors": False}
    if not isinstance(wanted, Mapping):
        ids = (_point_id(id_) for id_ in wanted)
        return {**request, "ids": [id_ for id_ in ids if id_ is not None]}
    indexed = {DOCUMENT_ID: "doc_id"}
    conditions = [
        FieldCondition(key=indexed.get(key, key), match=MatchAny(any=list(values)))
        for key, values in wanted.items()
    ]
    return {**request, "scroll_filter": Filter(must=conditions), "limit": _PAGE, "offset": None}


def _point_id(id_: str) -> int | str | None:
    """Return the id of a point; None for what is neither a UUID nor a number, which no point can have."""
    if id_.isdecimal() and id_.isascii():
        return int(id_)
    try:
        return str(UUID(id_))
    except ValueError:
        return None


def _nodes(store: Any, points: Sequence[Any]) -> Sequence[BaseNode]:
    nodes: Sequence[BaseNode] = store.parse_to_query_result(points).nodes
    return nodes

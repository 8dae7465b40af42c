"""Read of OpenSearch, since its vector store has no `get_nodes`: one search, of at most 10,000 nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.schema import BaseNode

from llama_index_ext_ctxaug.docstores.bulk.registry import private
from llama_index_ext_ctxaug.docstores.vector_reads.registry import Wanted

_LIMIT = 10_000
"""Maximum hits of one search, the index setting `max_result_window`."""


def read(store: Any, wanted: Wanted) -> Sequence[BaseNode]:
    """Read with the sync client."""
    client = private(store, "_client")
    return _nodes(client, private(client, "_os_client").search(**_request(client, wanted)))


async def aread(store: Any, wanted: Wanted) -> Sequence[BaseNode]:
    """Read with the async client."""
    client = private(store, "_client")
    return _nodes(client, await private(client, "_os_async_client").search(**_request(client, wanted)))


def _request(client: Any, wanted: Wanted) -> dict[str, Any]:
    if isinstance(wanted, Mapping):
        fields = {_field(key, values): list(values) for key, values in wanted.items()}
    else:
        fields = {"id.keyword" if client.is_aoss else "_id": list(wanted)}
    return {
        "index": private(client, "_index"),
        "body": {
            "query": {"bool": {"filter": [{"terms": {key: values}} for key, values in fields.items()]}},
            "size": _LIMIT,
            "_source": {"excludes": [private(client, "_embedding_field")]},
        },
    }


def _field(key: str, values: Sequence[Any]) -> str:
    return f"metadata.{key}.keyword" if isinstance(values[0], str) else f"metadata.{key}"


def _nodes(client: Any, answer: Any) -> Sequence[BaseNode]:
    nodes: Sequence[BaseNode] = client._to_query_result(answer).nodes
    return nodes

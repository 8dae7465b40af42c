"""Bulk read of Elasticsearch: `mget` over both indices.

The store has an async client only, and its sync methods run that in the thread's event loop, where there is
none in a thread with a timeout. The sync read uses a sync client for the same servers instead.
"""

from __future__ import annotations

import weakref
from typing import Any

from llama_index_ext_ctxaug.docstores.bulk.registry import Keys, Values, from_rows, private

_sync_clients: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def read(kvstore: Any, keys: Keys) -> Values:
    """Read all keys in one request."""
    return _values(keys, _sync_client(private(kvstore, "_client")).mget(docs=_documents(keys)))


async def aread(kvstore: Any, keys: Keys) -> Values:
    """Read all keys in one request with the async client."""
    return _values(keys, await private(kvstore, "_client").mget(docs=_documents(keys)))


def _sync_client(client: Any) -> Any:
    from elasticsearch import Elasticsearch

    if client not in _sync_clients:
        nodes = [node.config for node in client.transport.node_pool.all()]
        _sync_clients[client] = Elasticsearch(nodes).options(headers=dict(private(client, "_headers")))
    return _sync_clients[client]


def _documents(keys: Keys) -> list[dict[str, str]]:
    return [{"_index": collection, "_id": id_} for collection, ids in keys.items() for id_ in ids]


def _values(keys: Keys, answer: Any) -> Values:
    return from_rows(
        keys, ((one["_index"], one["_id"], one["_source"]) for one in answer["docs"] if one.get("found"))
    )

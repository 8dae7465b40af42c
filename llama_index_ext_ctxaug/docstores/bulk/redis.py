"""Bulk read of Redis: HMGET, in one pipeline where there are several collections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index_ext_ctxaug.docstores.bulk.registry import Keys, Values, found, private


def read(kvstore: Any, keys: Keys) -> Values:
    """Read all keys in one round trip."""
    client = private(kvstore, "_redis_client")
    if len(keys) == 1:
        [(collection, ids)] = keys.items()
        return {collection: found(ids, client.hmget(collection, ids))}
    with client.pipeline(transaction=False) as pipe:
        _queue(pipe, keys)
        return _answers(keys, pipe.execute())


async def aread(kvstore: Any, keys: Keys) -> Values:
    """Read all keys in one round trip with the async client."""
    client = private(kvstore, "_async_redis_client")
    if len(keys) == 1:
        [(collection, ids)] = keys.items()
        return {collection: found(ids, await client.hmget(collection, ids))}
    async with client.pipeline(transaction=False) as pipe:
        _queue(pipe, keys)
        return _answers(keys, await pipe.execute())


def _queue(pipe: Any, keys: Keys) -> None:
    for collection, ids in keys.items():
        pipe.hmget(collection, ids)


def _answers(keys: Keys, answers: Sequence[Sequence[Any]]) -> Values:
    return {name: found(ids, answer) for (name, ids), answer in zip(keys.items(), answers, strict=True)}

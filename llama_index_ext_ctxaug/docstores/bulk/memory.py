"""Bulk read of core's key-value store in memory."""

from __future__ import annotations

from typing import Any

from llama_index_ext_ctxaug.docstores.bulk.registry import Keys, Values, found


def read(kvstore: Any, keys: Keys) -> Values:
    """Read all keys."""
    return {
        name: found(ids, [kvstore.get(id_, collection=name) for id_ in ids]) for name, ids in keys.items()
    }


async def aread(kvstore: Any, keys: Keys) -> Values:
    """Read all keys, which takes less time than a switch of threads."""
    return read(kvstore, keys)

"""Bulk read of MongoDB: `$in`, one query for each collection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from llama_index_ext_ctxaug.docstores.bulk.registry import Keys, Values, private


def read(kvstore: Any, keys: Keys) -> Values:
    """Read all keys with the sync client."""
    database = private(kvstore, "_db")
    return {name: _values(database[name].find(**_query(ids))) for name, ids in keys.items()}


async def aread(kvstore: Any, keys: Keys) -> Values:
    """Read all keys with the async client."""
    database = private(kvstore, "_adb")
    return {
        name: _values(await database[name].find(**_query(ids)).to_list(len(ids)))
        for name, ids in keys.items()
    }


def _query(ids: Sequence[str]) -> dict[str, Any]:
    # The first batch of an answer has 101 documents by default, and each further one costs a round trip.
    return {"filter": {"_id": {"$in": list(ids)}}, "batch_size": len(ids) + 1}


def _values(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {record.pop("_id"): record for record in records}

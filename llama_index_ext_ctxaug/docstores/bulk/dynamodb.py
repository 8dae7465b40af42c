"""Bulk read of DynamoDB: BatchGetItem, which takes a hundred keys and may leave some of them unread."""

from __future__ import annotations

import time
from typing import Any

from llama_index_ext_ctxaug.docstores.bulk.registry import Keys, Values, from_rows, private

_BATCH = 100
_PAUSE = 0.05
"""Seconds to wait before keys left unread are read again; doubled each time that none was read."""
_TRIES = 7


def read(kvstore: Any, keys: Keys) -> Values:
    """Read all keys.

    Raises:
        ConnectionError: the table is throttled, and no key is read in several tries.
    """
    from llama_index.storage.kvstore.dynamodb.base import convert_decimal_to_int_or_float

    table = private(kvstore, "_table")
    hash_, range_ = private(kvstore, "_key_hash"), private(kvstore, "_key_range")
    pairs = [{hash_: collection, range_: id_} for collection, ids in keys.items() for id_ in ids]
    rows = []
    for item in _items(table, pairs):
        collection, key = item.pop(hash_), item.pop(range_)
        rows.append((collection, key, {k: convert_decimal_to_int_or_float(v) for k, v in item.items()}))
    return from_rows(keys, rows)


def _items(table: Any, pairs: list[dict[str, str]]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    tries = 0
    while pairs:
        batch, pairs = pairs[:_BATCH], pairs[_BATCH:]
        answer = table.meta.client.batch_get_item(RequestItems={table.name: {"Keys": batch}})
        items += (found := answer["Responses"].get(table.name, []))
        unread = answer.get("UnprocessedKeys", {}).get(table.name, {}).get("Keys", [])
        pairs += unread
        tries = tries + 1 if unread and not found else 0
        if tries == _TRIES:
            raise ConnectionError(
                f"DynamoDB left {len(unread)} keys of {table.name!r} unread in {tries} tries"
            )
        if unread:
            time.sleep(_PAUSE * 2**tries)
    return items

"""Bulk read of Firestore: `get_all` over both collections."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from llama_index_ext_ctxaug.docstores.bulk.registry import Keys, Values, from_rows, private


def read(kvstore: Any, keys: Keys) -> Values:
    """Read all keys in one request."""
    client = private(kvstore, "_db")
    return _values(kvstore, keys, client.get_all(_references(client, kvstore, keys)))


async def aread(kvstore: Any, keys: Keys) -> Values:
    """Read all keys in one request with the async client."""
    client = private(kvstore, "_adb")
    found = [one async for one in client.get_all(_references(client, kvstore, keys))]
    return _values(kvstore, keys, found)


def _references(client: Any, kvstore: Any, keys: Keys) -> list[Any]:
    references = []
    for collection, ids in keys.items():
        for id_ in ids:
            with suppress(ValueError):  # a key with a slash, which names no document
                references.append(client.collection(kvstore.firestore_collection(collection)).document(id_))
    return references


def _values(kvstore: Any, keys: Keys, snapshots: Iterable[Any]) -> Values:
    names = {kvstore.firestore_collection(collection): collection for collection in keys}
    return from_rows(
        keys,
        (
            (names[one.reference.parent.id], one.id, kvstore.replace_field_name_get(value))
            for one in snapshots
            if (value := one.to_dict())
        ),
    )

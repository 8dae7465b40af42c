"""Bulk read of DuckDB."""

from __future__ import annotations

from typing import Any

from llama_index_ext_ctxaug.docstores.bulk.registry import Keys, Values, from_rows, private


def read(kvstore: Any, keys: Keys) -> Values:
    """Read all keys in one query."""
    pairs = [(collection, id_) for collection, ids in keys.items() for id_ in ids]
    # A join with the keys: point queries and IN lists scan the table once for each key.
    rows = private(kvstore, "client").execute(
        f"SELECT collection, key, value FROM {private(kvstore, 'table_name')} "
        "WHERE (collection, key) IN (SELECT unnest(?), unnest(?))",
        [[collection for collection, _ in pairs], [id_ for _, id_ in pairs]],
    )
    return from_rows(keys, rows.fetchall())

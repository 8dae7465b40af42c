"""Read of Supabase, since its vector store has no `get_nodes`: records of its collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node

from llama_index_ext_ctxaug.docstores.bulk.registry import private
from llama_index_ext_ctxaug.docstores.vector_reads.registry import Wanted


def read(store: Any, wanted: Wanted) -> list[BaseNode]:
    """Read with the client of `vecs`, by metadata at most 1,000 nodes."""
    collection = private(store, "_collection")
    if isinstance(wanted, Mapping):
        filters = {"$and": [{key: {"$in": list(values)}} for key, values in wanted.items()]}
        records = collection.query(data=None, filters=filters, limit=1000, include_metadata=True)
    else:
        records = collection.fetch(wanted)
    return [metadata_dict_to_node(metadata) for *_, metadata in records]

"""Read of MongoDB Atlas, since its vector store has no `get_nodes`: one `find`, without embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node

from llama_index_ext_ctxaug.docstores.bulk.registry import private
from llama_index_ext_ctxaug.docstores.vector_reads.registry import Wanted


def read(store: Any, wanted: Wanted) -> Sequence[BaseNode]:
    """Read with the sync client."""
    return _nodes(store, private(store, "_collection").find(**_query(store, wanted)))


async def aread(store: Any, wanted: Wanted) -> Sequence[BaseNode]:
    """Read with the async client."""
    return _nodes(store, await private(store, "_async_collection").find(**_query(store, wanted)).to_list())


def _query(store: Any, wanted: Wanted) -> dict[str, Any]:
    metadata = private(store, "_metadata_key")
    if isinstance(wanted, Mapping):
        fields = {f"{metadata}.{key}": {"$in": list(values)} for key, values in wanted.items()}
    else:
        fields = {private(store, "_id_key"): {"$in": list(wanted)}}
    # The first batch of an answer has 101 documents by default, and each further one costs a round trip.
    kept = {private(store, "_text_key"): True, metadata: True}
    return {"filter": fields, "projection": kept, "batch_size": 1000}


def _nodes(store: Any, records: Iterable[dict[str, Any]]) -> list[BaseNode]:
    metadata, text = private(store, "_metadata_key"), private(store, "_text_key")
    return [metadata_dict_to_node(record[metadata], text=record[text]) for record in records]

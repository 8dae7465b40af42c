"""Read of Neo4j, since its vector store has no `get_nodes`: one query of Cypher, without embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node

from llama_index_ext_ctxaug.docstores.vector_reads.registry import Wanted


def read(store: Any, wanted: Wanted) -> list[BaseNode]:
    """Read in one query."""
    fields = wanted if isinstance(wanted, Mapping) else {"id": wanted}
    where = " AND ".join(f"n.`{key}` IN $values_{place}" for place, key in enumerate(fields))
    text, embedding = store.text_node_property, store.embedding_node_property
    rows = store.database_query(
        f"MATCH (n:`{store.node_label}`) WHERE {where} "
        f"RETURN n.`{text}` AS text, n {{.*, `{text}`: Null, `{embedding}`: Null, id: Null}} AS metadata",
        params={f"values_{place}": list(values) for place, values in enumerate(fields.values())},
    )
    return [metadata_dict_to_node(_without_null(row["metadata"]), text=row["text"]) for row in rows]


def _without_null(metadata: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if value is not None}

"""Read of LanceDB, whose `get_nodes` quotes node ids as column names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.schema import BaseNode

from llama_index_ext_ctxaug.docstores.vector_reads.registry import By


def read(store: Any, by: By, ids: Sequence[str]) -> Sequence[BaseNode]:
    """Read with a condition of SQL; the table does not exist before nodes are added."""
    if getattr(store, "_table", None) is None:
        return []
    column = "id" if by == "node" else store.doc_id_key
    quoted = ", ".join("'{}'".format(id_.replace("'", "''")) for id_ in ids)
    nodes: Sequence[BaseNode] = store.get_nodes(where=f"{column} IN ({quoted})")
    return nodes

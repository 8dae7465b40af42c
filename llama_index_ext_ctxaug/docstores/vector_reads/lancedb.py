"""Read of LanceDB, since its `get_nodes` quotes node ids as column names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.schema import BaseNode

from llama_index_ext_ctxaug.docstores.vector_reads.registry import DOCUMENT_ID, Wanted


def read(store: Any, wanted: Wanted) -> Sequence[BaseNode]:
    """Read with a condition of SQL; the table does not exist before nodes are added."""
    if getattr(store, "_table", None) is None:
        return []
    if isinstance(wanted, Mapping):
        columns = {DOCUMENT_ID: store.doc_id_key}
        conditions = [_one_of(columns.get(key, f"metadata.`{key}`"), v) for key, v in wanted.items()]
    else:
        conditions = [_one_of("id", wanted)]
    nodes: Sequence[BaseNode] = store.get_nodes(where=" AND ".join(conditions))
    return nodes


def _one_of(column: str, values: Sequence[Any]) -> str:
    quoted = ("'{}'".format(v.replace("'", "''")) if isinstance(v, str) else str(v) for v in values)
    return f"{column} IN ({', '.join(quoted)})"

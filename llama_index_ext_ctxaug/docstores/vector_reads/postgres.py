"""Read of pgvector without embeddings and outside a transaction, as `bulk.postgres` reads a docstore."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node

from llama_index_ext_ctxaug.docstores.bulk.postgres import aconnection, autocommit, initialize
from llama_index_ext_ctxaug.docstores.bulk.registry import private
from llama_index_ext_ctxaug.docstores.vector_reads.registry import By


def read(store: Any, by: By, ids: Sequence[str]) -> Sequence[BaseNode]:
    """Read in one round trip."""
    if not getattr(store, "_is_initialized", False):
        initialize(store)
    statement = _statement(private(private(store, "_table_class"), "__table__"), by)
    with private(store, "_engine").connect() as connection, autocommit(connection):
        return _nodes(connection.execute(statement, {"ids": list(ids)}))


async def aread(store: Any, by: By, ids: Sequence[str]) -> Sequence[BaseNode]:
    """Read in one round trip with the async engine."""
    if not getattr(store, "_is_initialized", False):
        await asyncio.to_thread(initialize, store)
    statement = _statement(private(private(store, "_table_class"), "__table__"), by)
    async with aconnection(private(store, "_async_engine")) as connection:
        return _nodes(await connection.execute(statement, {"ids": list(ids)}))


@lru_cache(maxsize=64)
def _statement(table: Any, by: By) -> Any:
    from sqlalchemy import ARRAY, String, any_, bindparam, select

    c = table.c
    key = c.node_id if by == "node" else c.metadata_.op("->>")("ref_doc_id")
    ids = bindparam("ids", type_=ARRAY(String))
    return select(c.text, c.metadata_).where(key == any_(ids)).order_by(c.id)


def _nodes(rows: Iterable[tuple[str, dict[str, Any]]]) -> list[BaseNode]:
    return [metadata_dict_to_node(metadata, text=text) for text, metadata in rows]

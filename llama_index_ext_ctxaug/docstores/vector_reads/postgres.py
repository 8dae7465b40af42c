"""Read of pgvector without embeddings and outside a transaction, as `bulk.postgres` reads a docstore."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from json import dumps
from typing import Any

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node

from llama_index_ext_ctxaug.docstores.bulk.postgres import aconnection, autocommit, initialize
from llama_index_ext_ctxaug.docstores.bulk.registry import private
from llama_index_ext_ctxaug.docstores.vector_reads.registry import Wanted


def read(store: Any, wanted: Wanted) -> Sequence[BaseNode]:
    """Read in one round trip."""
    if not getattr(store, "_is_initialized", False):
        initialize(store)
    statement, values = _query(store, wanted)
    with private(store, "_engine").connect() as connection, autocommit(connection):
        return _nodes(connection.execute(statement, values))


async def aread(store: Any, wanted: Wanted) -> Sequence[BaseNode]:
    """Read in one round trip with the async engine."""
    if not getattr(store, "_is_initialized", False):
        await asyncio.to_thread(initialize, store)
    statement, values = _query(store, wanted)
    async with aconnection(private(store, "_async_engine")) as connection:
        return _nodes(await connection.execute(statement, values))


def _query(store: Any, wanted: Wanted) -> tuple[Any, dict[str, list[str]]]:
    fields = wanted if isinstance(wanted, Mapping) else {"": wanted}
    values = {
        f"values_{place}": [one if isinstance(one, str) else dumps(one) for one in of_key]
        for place, of_key in enumerate(fields.values())
    }
    return _statement(private(private(store, "_table_class"), "__table__"), tuple(fields)), values


@lru_cache(maxsize=64)
def _statement(table: Any, keys: tuple[str, ...]) -> Any:
    from sqlalchemy import ARRAY, String, any_, bindparam, select

    c = table.c
    statement = select(c.text, c.metadata_).order_by(c.id)
    for place, key in enumerate(keys):
        values = bindparam(f"values_{place}", type_=ARRAY(String))
        statement = statement.where((c.metadata_.op("->>")(key) if key else c.node_id) == any_(values))
    return statement


def _nodes(rows: Iterable[tuple[str, dict[str, Any]]]) -> list[BaseNode]:
    return [metadata_dict_to_node(metadata, text=text) for text, metadata in rows]

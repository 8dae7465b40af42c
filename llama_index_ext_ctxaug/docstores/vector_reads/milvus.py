"""Read of Milvus, whose client puts node ids between quotes without escaping them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.schema import BaseNode

from llama_index_ext_ctxaug.docstores.vector_reads.registry import By, aread_publicly, read_publicly


def read(store: Any, by: By, ids: Sequence[str]) -> Sequence[BaseNode]:
    """Read with the sync client."""
    return read_publicly(store, by, _escaped(by, ids))


async def aread(store: Any, by: By, ids: Sequence[str]) -> Sequence[BaseNode]:
    """Read with the async client."""
    return await aread_publicly(store, by, _escaped(by, ids))


def _escaped(by: By, ids: Sequence[str]) -> Sequence[str]:
    if by == "document":
        return ids  # a filter, whose values the store escapes
    return [id_.replace("\\", "\\\\").replace("'", "\\'") for id_ in ids]

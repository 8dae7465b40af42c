"""Read of Milvus, since its client puts node ids between quotes without escaping them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.schema import BaseNode

from llama_index_ext_ctxaug.docstores.vector_reads.registry import Wanted, aread_publicly, read_publicly


def read(store: Any, wanted: Wanted) -> Sequence[BaseNode]:
    """Read with the sync client."""
    return read_publicly(store, _escaped(wanted))


async def aread(store: Any, wanted: Wanted) -> Sequence[BaseNode]:
    """Read with the async client."""
    return await aread_publicly(store, _escaped(wanted))


def _escaped(wanted: Wanted) -> Wanted:
    if isinstance(wanted, Mapping):
        return wanted  # the store escapes the values of filters
    return [id_.replace("\\", "\\\\").replace("'", "\\'") for id_ in wanted]

"""Filters over neighbors: LlamaIndex's metadata filters, nested ones too, or a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores import FilterCondition, MetadataFilters
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

NeighborFilter = Callable[[BaseNode], bool]


def node_filter(filters: MetadataFilters | NeighborFilter | None) -> NeighborFilter | None:
    """Return the filters as a function that is True for a node that passes; None for no filter.

    Args:
        filters: metadata filters, a function of the node, or None.
    """
    if not isinstance(filters, MetadataFilters):
        return filters
    return _matching(filters)


def _matching(filters: MetadataFilters) -> NeighborFilter:
    # Core evaluates a single filter and rejects nested ones.
    parts = [
        _matching(part) if isinstance(part, MetadataFilters) else _single(MetadataFilters(filters=[part]))
        for part in filters.filters
    ]
    if not parts:
        return lambda node: True
    if filters.condition == FilterCondition.OR:
        return lambda node: any(part(node) for part in parts)
    if filters.condition == FilterCondition.NOT:
        return lambda node: not any(part(node) for part in parts)
    return lambda node: all(part(node) for part in parts)


def _single(filters: MetadataFilters) -> NeighborFilter:
    current: dict[str, Any] = {}
    matches = build_metadata_filter_fn(lambda _: current, filters)

    def passes(node: BaseNode) -> bool:
        current.clear()
        current.update(node.metadata)
        return matches(node.node_id)

    return passes

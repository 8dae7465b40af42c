"""Filters over neighbors: LlamaIndex's metadata filters, nested ones too, or a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores import (
    ExactMatchFilter,
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from llama_index_ext_ctxaug.errors import ConfigurationError

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
        _matching(part) if isinstance(part, MetadataFilters) else _single(part) for part in filters.filters
    ]
    if not parts:
        return lambda node: True
    if filters.condition == FilterCondition.OR:
        return lambda node: any(part(node) for part in parts)
    if filters.condition == FilterCondition.NOT:
        return lambda node: not any(part(node) for part in parts)
    return lambda node: all(part(node) for part in parts)


_OVER_LISTS = (FilterOperator.ANY, FilterOperator.ALL, FilterOperator.CONTAINS)
"""Operators that look for values in a list; in a single text core would look for parts of it."""

_IN_LIST = (FilterOperator.IN, FilterOperator.NIN)


def _single(filter_: MetadataFilter | ExactMatchFilter) -> NeighborFilter:
    key, operator, value = filter_.key, filter_.operator, filter_.value
    if isinstance(value, str) and operator in (*_IN_LIST, FilterOperator.ANY, FilterOperator.ALL):
        filter_ = MetadataFilter(key=key, value=[value], operator=operator)
    current: dict[str, Any] = {}
    matches = build_metadata_filter_fn(lambda _: current, MetadataFilters(filters=[filter_]))

    def passes(node: BaseNode) -> bool:
        found = current[key] = node.metadata.get(key)
        if isinstance(found, str) and operator in _OVER_LISTS:
            current[key] = [found]
        try:
            return matches(node.node_id)
        except TypeError as error:
            raise ConfigurationError(
                f"neighbor_filters: {operator.value!r} cannot compare {value!r} with the metadata {key!r} of "
                f"node {node.node_id!r}, which is {found!r}; filter by a value of the same type"
            ) from error

    return passes

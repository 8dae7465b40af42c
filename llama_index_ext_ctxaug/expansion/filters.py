"""Filters over neighbors: LlamaIndex's metadata filters, nested ones too, or a function."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores import ExactMatchFilter, MetadataFilter, MetadataFilters

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
    parts = [
        _matching(part) if isinstance(part, MetadataFilters) else _single(part) for part in filters.filters
    ]
    if not parts:
        return lambda node: True
    if filters.condition == "or":
        return lambda node: any(part(node) for part in parts)
    if filters.condition == "not":
        return lambda node: not any(part(node) for part in parts)
    return lambda node: all(part(node) for part in parts)


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "in": lambda found, values: found in values,
    "nin": lambda found, values: found not in values,
    "any": lambda found, values: any(value in found for value in values),
    "all": lambda found, values: all(value in found for value in values),
    "contains": lambda found, value: value in found,
    "text_match": str.__contains__,
    "text_match_insensitive": lambda found, value: str.__contains__(str.lower(found), str.lower(value)),
    "is_empty": lambda found, _: found in ("", []),
}
"""Comparisons of a node's metadata with a filter's value, by operator.

LlamaIndex's own function differs between its versions, and finds parts of a text where a list is meant.
"""


def _single(filter_: MetadataFilter | ExactMatchFilter) -> NeighborFilter:
    key, name, value = filter_.key, filter_.operator.value, filter_.value
    compare = _COMPARISONS[name]
    values = [value] if isinstance(value, str) and name in ("in", "nin", "any", "all") else value
    over_list = name in ("any", "all", "contains")

    def passes(node: BaseNode) -> bool:
        found = node.metadata.get(key)
        if found is None:
            return name in ("!=", "nin", "is_empty")
        try:
            return compare([found] if over_list and isinstance(found, str) else found, values)
        except TypeError as error:
            raise ConfigurationError(
                f"neighbor_filters: {name!r} cannot compare {value!r} with the metadata {key!r} of "
                f"node {node.node_id!r}, which is {found!r}; filter by a value of the same type"
            ) from error

    return passes

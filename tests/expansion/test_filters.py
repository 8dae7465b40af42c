"""Metadata filters over neighbors, nested ones included."""

from __future__ import annotations

import re
from typing import Any

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from llama_index_ext_ctxaug import ConfigurationError, PrevNextNodePostprocessor
from llama_index_ext_ctxaug.expansion.filters import node_filter
from llama_index_ext_ctxaug.testing import docstore_of, hits, linked_document

TENANT = MetadataFilter(key="tenant", value="a")
NEW = MetadataFilter(key="year", value=2002, operator=">=")
OLD = MetadataFilter(key="year", value=2000, operator="==")


def both(*filters: Any) -> MetadataFilters:
    """All of them."""
    return MetadataFilters(filters=list(filters), condition=FilterCondition.AND)


def either(*filters: Any) -> MetadataFilters:
    """One of them."""
    return MetadataFilters(filters=list(filters), condition=FilterCondition.OR)


def neither(*filters: Any) -> MetadataFilters:
    """None of them."""
    return MetadataFilters(filters=list(filters), condition=FilterCondition.NOT)


@pytest.mark.parametrize(
    ("filters", "passing"),
    [
        (both(TENANT), {("a", 2000), ("a", 2002)}),
        (both(TENANT, NEW), {("a", 2002)}),
        (either(TENANT, NEW), {("a", 2000), ("a", 2002), ("b", 2002)}),
        (neither(TENANT), {("b", 2000), ("b", 2002)}),
        (neither(TENANT, NEW), {("b", 2000)}),
        (both(TENANT, either(NEW, OLD)), {("a", 2000), ("a", 2002)}),
        (both(either(TENANT, NEW), neither(OLD)), {("a", 2002), ("b", 2002)}),
        (neither(both(TENANT, NEW)), {("a", 2000), ("b", 2000), ("b", 2002)}),
        (either(both(TENANT, OLD), both(neither(TENANT), NEW)), {("a", 2000), ("b", 2002)}),
        (both(), {("a", 2000), ("a", 2002), ("b", 2000), ("b", 2002)}),
        (MetadataFilters(filters=[TENANT, NEW], condition=None), {("a", 2002)}),
    ],
)
def test_conditions_and_nesting(filters: MetadataFilters, passing: set[tuple[str, int]]) -> None:
    """AND, OR and NOT work at every depth."""
    passes = node_filter(filters)
    assert passes is not None
    all_ = [(tenant, year) for tenant in "ab" for year in (2000, 2002)]
    nodes = [TextNode(metadata={"tenant": tenant, "year": year}) for tenant, year in all_]
    assert {case for case, node in zip(all_, nodes, strict=True) if passes(node)} == passing
    assert not node_filter(both(TENANT))(TextNode())  # type: ignore[misc]


@pytest.mark.parametrize(
    ("operator", "value", "passing", "refused"),
    [
        ("==", 5, [5], [None, 7]),
        ("!=", 5, [None, 7], [5]),
        (">", 5, [7], [None, 5]),
        (">=", 5, [5, 7], [None, 4]),
        ("<", 7, [5], [None, 7]),
        ("<=", 7, [5, 7], [None, 8]),
        ("in", [5, 6], [5], [None, 7]),
        ("nin", [5, 6], [None, 7], [5]),
        ("in", "Harbor", ["Harbor"], [None, "Harb"]),
        ("any", ["a", "x"], [["a", "b"], "a"], [None, ["b"], "ab"]),
        ("all", ["a", "b"], [["a", "b", "c"]], [None, ["a"], "ab"]),
        ("contains", "b", [["a", "b"], "b"], [None, ["a"], "ab"]),
        ("text_match", "arb", ["Harbor"], [None, "HARBOR", ""]),
        ("text_match_insensitive", "arb", ["Harbor", "HARBOR"], [None, ""]),
        ("is_empty", None, [None, "", []], ["a", ["a"], 0]),
    ],
)
def test_operators(operator: str, value: Any, passing: list[Any], refused: list[Any]) -> None:
    """Each operator gives the same result with every llama-index-core; None counts as a missing key."""
    if operator not in list(FilterOperator):
        return
    passes = node_filter(both(MetadataFilter(key="key", value=value, operator=operator)))
    assert passes is not None
    for found in (*passing, *refused):
        node = TextNode(metadata={} if found is None else {"key": found})
        assert passes(node) == (found in passing), found


@pytest.mark.parametrize(
    ("operator", "value", "found"), [("text_match", "a", ["a"]), (">", "5", 5), ("any", ["a"], 5)]
)
def test_what_cannot_be_compared(operator: str, value: Any, found: Any) -> None:
    """Metadata of a type that the operator cannot compare is an error that names key, node and value."""
    passes = node_filter(both(MetadataFilter(key="key", value=value, operator=operator)))
    assert passes is not None
    with pytest.raises(ConfigurationError, match=rf"'key' of node 'n1', which is {re.escape(repr(found))}"):
        passes(TextNode(id_="n1", metadata={"key": found}))


def test_nested_filters_end_the_growth(postprocess: Any) -> None:
    """An augmenter takes nested filters, and saves them."""
    nodes = linked_document(4)
    for node, (tenant, year) in zip(nodes, [("b", 2000), ("a", 2002), ("a", 2000), ("a", 2001)], strict=True):
        node.metadata.update(tenant=tenant, year=year)
    store = docstore_of(nodes)
    augmenter = PrevNextNodePostprocessor(
        docstore=store, mode="both", num_nodes=3, neighbor_filters=both(TENANT, either(NEW, OLD))
    )
    restored = PrevNextNodePostprocessor.from_json(augmenter.to_json(), docstore=store)
    for one in (augmenter, restored):
        result = postprocess(one, hits(nodes, [1]))
        assert [hit.node.node_id for hit in result] == [nodes[1].node_id, nodes[2].node_id]

"""Common uses of LlamaIndex's postprocessors still work after changing the import."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from helpers import Postprocess, ids
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters
from pydantic import ValidationError

import llama_index_ext_ctxaug as package
from llama_index_ext_ctxaug import (
    AutoPrevNextNodePostprocessor,
    BRSRPostprocessor,
    ConfigurationError,
    ContextAugmenter,
    MetadataReplacementPostProcessor,
    PrevNextNodePostprocessor,
    RerankPostprocessor,
)
from llama_index_ext_ctxaug.testing import ScriptedLLM, WordEmbedding, docstore_of, hits, linked_document

NODES = linked_document(6, metadata={"window": "the window", "owner": "bobby", "year": "2019"})
PARAMETERS: dict[str, dict[str, Any]] = {
    "AutoPrevNextNodePostprocessor": {"llm": ScriptedLLM(answers=["BOTH"])},
    "BRSRPostprocessor": {"embed_model": WordEmbedding()},
    "EmbeddingRescorePostprocessor": {"embed_model": WordEmbedding()},
    "MetadataReplacementPostProcessor": {"target_metadata_key": "window"},
    "RerankPostprocessor": {"embed_model": WordEmbedding()},
    "TokenBudgetPostprocessor": {"token_budget": 1000},
}
KINDS = [
    kind
    for name in package.__all__
    if isinstance(kind := getattr(package, name), type)
    and issubclass(kind, BaseNodePostprocessor)
    and kind is not ContextAugmenter
]


def made(kind: type[BaseNodePostprocessor], **parameters: Any) -> Any:
    """Make a postprocessor of a kind over the six chunks."""
    store = {"docstore": docstore_of(NODES)} if "docstore" in kind.model_fields else {}
    name = next(one.__name__ for one in kind.__mro__ if one in KINDS)
    return kind(**store, **PARAMETERS.get(name, {}), **parameters)


@pytest.mark.parametrize("kind", KINDS)
def test_an_override_of_the_sync_method_counts_in_both_ways(
    postprocess: Postprocess, kind: type[BaseNodePostprocessor]
) -> None:
    """A subclass that overrides only `_postprocess_nodes` gives its result in async calls too."""

    class Mine(kind):  # type: ignore[misc, valid-type]
        def _postprocess_nodes(
            self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
        ) -> list[NodeWithScore]:
            return super()._postprocess_nodes(nodes, query_bundle)[:1]

    plain = postprocess(made(kind), hits(NODES, [0, 3, 5]), query_str="chunk 3")
    result = postprocess(made(Mine), hits(NODES, [0, 3, 5]), query_str="chunk 3")
    assert [hit.to_dict() for hit in result] == [hit.to_dict() for hit in plain[:1]]
    assert len(plain) > 1 or kind is BRSRPostprocessor


def test_overrides_of_both_methods_count_each_in_its_way(postprocess: Postprocess) -> None:
    """A subclass with an async method of its own runs once, and an inner step can be overridden too."""

    class Both(PrevNextNodePostprocessor):
        def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
            return super()._postprocess_nodes(nodes, query_bundle)[1:]

        async def _apostprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
            return (await super()._apostprocess_nodes(nodes, query_bundle))[1:]

    assert ids(postprocess(made(Both, num_nodes=3), hits(NODES, [0]))) == ids(NODES[1:4])
    rerank = RerankPostprocessor(reranker=made(Both, num_nodes=3), overlap="keep")
    result = postprocess(rerank, hits(NODES, [0, 1]), query_str="chunk")
    assert ids(result) == ids(NODES[1:2])  # only nodes that the reranker received


def test_parameters_are_checked_when_they_are_assigned() -> None:
    """A wrong value is rejected after construction too, and a string becomes a template."""
    with pytest.raises(ValidationError, match="previous"):
        made(PrevNextNodePostprocessor).mode = "prev"
    augmenter = made(AutoPrevNextNodePostprocessor)
    augmenter.infer_prev_next_tmpl = "Context: {context_str}\nQuestion: {query_str}\nDirection:"
    result = augmenter.postprocess_nodes(hits(NODES, [2]), query_str="what?")
    assert ids(result) == ids(NODES[1:4])
    with pytest.raises(ValidationError, match="context_str"):
        augmenter.infer_prev_next_tmpl = "Direction for {query_str}?"
    budget = made(BRSRPostprocessor)
    with pytest.raises(ValidationError, match="stride_tokens"):
        budget.stride_tokens = 9999


def test_parameters_that_llamaindex_ignores_are_accepted() -> None:
    """`verbose` and `service_context` are accepted as in LlamaIndex; a misspelt name is an error."""
    augmenter = made(PrevNextNodePostprocessor, verbose=True, service_context=None)
    assert ids(augmenter.postprocess_nodes(hits(NODES, [0]))) == ids(NODES[:2])
    made(AutoPrevNextNodePostprocessor, service_context=None, verbose=True)
    for kind in (PrevNextNodePostprocessor, AutoPrevNextNodePostprocessor):
        with pytest.raises(ValidationError, match="num_node"):
            made(kind, num_node=3)


@pytest.mark.parametrize("configured", [False, True])
def test_verbose_is_visible(
    postprocess: Postprocess,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    configured: bool,
) -> None:
    """Decisions are written to standard output by default, and to the log if INFO is enabled."""
    with caplog.at_level(logging.INFO if configured else logging.WARNING):
        augmenter = made(AutoPrevNextNodePostprocessor, verbose=True)
        postprocess(augmenter, hits(NODES, [2]), query_str="what?")
    printed, logged = capsys.readouterr().out, caplog.text
    assert "BOTH" in (logged if configured else printed)
    assert "BOTH" not in (printed if configured else logged)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "docstore" in kind.model_fields])
def test_a_restored_augmenter_needs_its_docstore(kind: type[BaseNodePostprocessor]) -> None:
    """`from_dict` without the docstore names what to pass."""
    with pytest.raises(ValueError, match=r"from_dict\(data, docstore=\.\.\.\)"):
        kind.from_dict(made(kind).to_dict())


def test_metadata_replacement_is_called_as_in_llamaindex(postprocess: Postprocess) -> None:
    """The key is the first argument, by position or by name."""
    for replacement in (
        MetadataReplacementPostProcessor("window"),
        MetadataReplacementPostProcessor(target_metadata_key="window"),
    ):
        assert [hit.text for hit in postprocess(replacement, hits(NODES, [1]))] == ["the window"]


def test_a_dict_of_filters_is_refused_with_the_remedy() -> None:
    """A plain dict is rejected; the message names the filter class and a method that converts the dict."""
    with pytest.raises(ValidationError, match=r"MetadataFilters\.from_dict") as raised:
        made(PrevNextNodePostprocessor, neighbor_filters={"tenant": "a"})
    assert raised.value.error_count() == 1


def filtered(operator: FilterOperator, key: str, value: Any) -> PrevNextNodePostprocessor:
    """Make an augmenter with one filter."""
    filters = MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=operator)])
    return made(PrevNextNodePostprocessor, neighbor_filters=filters)


@pytest.mark.parametrize(
    ("operator", "value"),
    [(FilterOperator.GT, 2000), (FilterOperator.LTE, 2000.5), (FilterOperator.TEXT_MATCH, 2019)],
)
def test_values_that_cannot_be_compared_are_named(
    postprocess: Postprocess, operator: FilterOperator, value: Any
) -> None:
    """Comparing a number with a text raises an error that names the key and both values."""
    with pytest.raises(ConfigurationError, match=rf"{value}.*'year'.*'2019'"):
        postprocess(filtered(operator, "year", value), hits(NODES, [0]))


@pytest.mark.parametrize(
    ("operator", "value"),
    [
        (FilterOperator.ANY, ["bob"]),
        (FilterOperator.ALL, ["bob", "by"]),
        (FilterOperator.CONTAINS, "bob"),
        (FilterOperator.ANY, "bob"),
        (FilterOperator.IN, "bobby and alice"),
    ],
)
def test_a_part_of_a_text_is_not_a_member(
    postprocess: Postprocess, operator: FilterOperator, value: Any
) -> None:
    """Filters over lists do not match a value that only contains the same characters."""
    assert ids(postprocess(filtered(operator, "owner", value), hits(NODES, [0]))) == ids(NODES[:1])


@pytest.mark.parametrize(
    ("operator", "value", "stored"),
    [
        (FilterOperator.ANY, ["alice", "bobby"], "bobby"),
        (FilterOperator.ANY, ["alice", "bobby"], ["bobby"]),
        (FilterOperator.ALL, ["bobby"], "bobby"),
        (FilterOperator.ALL, "bobby", ["alice", "bobby"]),
        (FilterOperator.CONTAINS, "bobby", "bobby"),
        (FilterOperator.CONTAINS, "bobby", ["bobby"]),
        (FilterOperator.IN, ["bobby"], "bobby"),
        (FilterOperator.IN, "bobby", "bobby"),
        (FilterOperator.NIN, ["bob"], "bobby"),
        (FilterOperator.NIN, "bobby and alice", "bobby"),
    ],
)
def test_a_member_is_a_member(
    postprocess: Postprocess, operator: FilterOperator, value: Any, stored: Any
) -> None:
    """A single text counts as a list of one, in metadata and in filters."""
    nodes = linked_document(2, metadata={"owner": stored})
    augmenter = filtered(operator, "owner", value).model_copy(update={"docstore": docstore_of(nodes)})
    assert ids(postprocess(augmenter, hits(nodes, [0]))) == ids(nodes)

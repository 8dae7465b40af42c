"""Relevant segment extraction as a postprocessor."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import Postprocess, positions
from llama_index.core.schema import TextNode

from llama_index_ext_ctxaug import RelevantSegmentExtractionPostprocessor
from llama_index_ext_ctxaug.testing import ObservedDocstore, docstore_of, hits, linked_document


def extraction(nodes: list[TextNode], **parameters: Any) -> RelevantSegmentExtractionPostprocessor:
    """An augmenter over these nodes whose tokens are words (6 in a chunk)."""
    return RelevantSegmentExtractionPostprocessor(
        docstore=docstore_of(nodes), tokenizer=str.split, **parameters
    )


def test_queries_take_turns(postprocess: Postprocess) -> None:
    """With query_key, the best segment of every query is taken before the second of the first."""
    nodes = linked_document(60)
    for place, name in ((5, "one"), (25, "one"), (45, "two")):
        nodes[place].metadata["query"] = name
    found = hits(nodes, [5, 25, 45], [0.95, 0.9, 0.8])
    parameters: dict[str, Any] = {"overall_max_length": 2, "minimum_value": 0.1}
    alone = postprocess(extraction(nodes, **parameters), found)
    assert positions(alone) == [5, 25]
    augmenter = extraction(nodes, query_key="query", **{**parameters, "overall_max_length": 0})
    out = postprocess(augmenter, found)
    assert positions(out) == [5, 25, 45]  # 5 more chunks for the second query


def test_reads_only_beside_what_may_end_a_segment(postprocess: Postprocess) -> None:
    """A hit with a score below the penalty ends no segment, and its neighbors are not read."""
    nodes = linked_document(60)
    store = ObservedDocstore(docstore_of(nodes))
    augmenter = RelevantSegmentExtractionPostprocessor(docstore=store, reach=2)
    out = postprocess(augmenter, hits(nodes, [10, 13, 40], [0.9, 0.8, 0.1]))
    assert positions(out) == [10, 11, 12, 13]
    read = {place for place, node in enumerate(nodes) if node.node_id in store.node_reads}
    assert read == {8, 9, 11, 12, 14, 15}


def test_the_output_is_empty_where_no_segment_is_good_enough(
    postprocess: Postprocess, caplog: pytest.LogCaptureFixture
) -> None:
    """If no segment reaches the minimum, the output is empty, as in dsRAG, and a warning gives the reason."""
    nodes = linked_document(20)
    out = postprocess(extraction(nodes, minimum_value=5.0), hits(nodes, [3, 9]))
    assert out == []
    assert [line for line in caplog.messages if "no segment reaches minimum_value=5.0" in line]


def test_parameters_survive_a_round_trip() -> None:
    """to_dict and from_dict give the same augmenter, given the docstore again."""
    nodes = linked_document(5)
    augmenter = extraction(nodes, preset="precision", decay_rate=12.0, reach=3)
    data = augmenter.to_dict()
    again = RelevantSegmentExtractionPostprocessor.from_dict(data, docstore=docstore_of(nodes))
    assert again.to_dict() == data
    assert again.class_name() == "RelevantSegmentExtractionPostprocessor"


def test_a_parameter_of_zero(postprocess: Postprocess) -> None:
    """An explicit penalty or minimum of 0 is not replaced by the preset."""
    nodes = linked_document(40)
    found = hits(nodes, [5, 20], [0.9, 0.3])
    near = {"reach": 1}
    assert positions(postprocess(extraction(nodes, **near), found)) == [5]
    assert positions(postprocess(extraction(nodes, **near, minimum_value=0.0), found)) == [5, 20]
    free = extraction(nodes, **near, irrelevant_chunk_penalty=0.0, minimum_value=0.1)
    assert positions(postprocess(free, found)) == [4, 5, 19, 20]  # of equal sums the earlier counts


def test_scores_that_are_no_relevance_are_normalized(postprocess: Postprocess) -> None:
    """If any score is negative, all scores are normalized, as scores above 1 are."""
    nodes = linked_document(60)
    scores = [0.6, 0.5, 0.3, -0.2]
    below = hits(nodes, [5, 20, 35, 50], scores)
    above = hits(nodes, [5, 20, 35, 50], [score + 5 for score in scores])
    augmenter = extraction(nodes, reach=1)
    assert positions(postprocess(augmenter, below)) == positions(postprocess(augmenter, above)) != []


def test_later_ranks_count_for_less(postprocess: Postprocess) -> None:
    """Of two hits with one score the later counts for less, the more so the lower the decay rate."""
    nodes = linked_document(40)
    found = hits(nodes, [5, 20], [0.9, 0.9])
    for rate, expected in ((1.0, [5]), (30.0, [5, 20])):
        out = postprocess(extraction(nodes, reach=0, decay_rate=rate), found)
        assert positions(out) == expected

"""Relevant segment extraction as dsRAG's users expect it, with half-open ranges."""

from __future__ import annotations

import pytest
from llama_index.core.schema import NodeWithScore
from pydantic import ValidationError

from llama_index_ext_ctxaug import RelevantSegmentExtractionPostprocessor
from llama_index_ext_ctxaug.selection.rse import RSE_PRESETS, Segment, rse, rse_value
from llama_index_ext_ctxaug.testing import docstore_of, linked_document

P = -0.2

SUMS = [
    pytest.param([[1, 1, 1]], [3], 5, 10, 0.5, [(0, 3, 3.0)], id="all good"),
    pytest.param([[1, P, 1]], [3], 5, 10, 0.5, [(0, 3, 1.8)], id="bridges one poor chunk"),
    pytest.param(
        [[1, P, P, P, P, P, 1]],
        [7],
        10,
        20,
        0.5,
        [(0, 1, 1.0), (6, 7, 1.0)],
        id="five poor chunks are not bridged",
    ),
    pytest.param(
        [[1, P, P, P, P, P, 1]],
        [7],
        5,
        20,
        0.5,
        [(0, 1, 1.0), (6, 7, 1.0)],
        id="not bridged with a shorter maximum",
    ),
    pytest.param([[1, 1, 1, 1]], [4], 2, 10, 0.5, [(0, 2, 2.0), (2, 4, 2.0)], id="maximum length"),
    pytest.param([[1, 1, 1, 1]], [4], 5, 3, 0.5, [(0, 3, 3.0)], id="maximum total"),
    pytest.param([[0.4, P, 0.3]], [3], 5, 10, 0.5, [(0, 3, 0.5)], id="minimum reached exactly"),
    pytest.param([[0.4, P, 0.3]], [3], 5, 10, 0.4, [(0, 3, 0.5)], id="minimum exceeded"),
    pytest.param([[-0.1, -0.1]], [2], 5, 10, 0.5, [], id="nothing good"),
    pytest.param([[0.9, 0.9], [0.9, 0.9]], [2], 5, 10, 0.5, [(0, 2, 1.8)], id="two queries"),
    pytest.param([[0, 0.7, 0]], [3], 5, 10, 0.5, [(0, 2, 0.7)], id="zero may begin a segment"),
    pytest.param([], [], 5, 10, 0.5, [], id="no queries"),
    pytest.param([[]], [], 5, 10, 0.5, [], id="no values"),
    pytest.param([[1, 1]], [2], 5, 0, 0.5, [], id="total of 0"),
]


@pytest.mark.parametrize(("values", "ends", "run", "total", "least", "expected"), SUMS)
def test_sums(
    values: list[list[float]],
    ends: list[int],
    run: int,
    total: int,
    least: float,
    expected: list[tuple[int, int, float]],
) -> None:
    """The segments with the greatest sums are returned in the order in which they are chosen."""
    found = rse(values, ends, max_length=run, overall_max_length=total, minimum_value=least)
    assert [segment[:2] for segment in found] == [segment[:2] for segment in expected]
    assert [segment.value for segment in found] == pytest.approx([value for *_, value in expected])


def test_segments_end_where_documents_end() -> None:
    """Chunks of two documents never share a segment, however high their values."""
    found = rse([[1, 1, 1, 1]], [2, 4], max_length=9, overall_max_length=9, minimum_value=0.5)
    assert found == [Segment(0, 2, 2.0), Segment(2, 4, 2.0)]


def test_queries_take_turns() -> None:
    """Each query takes its best segment before the first takes its second."""
    values = [[0.9, P, P, P, P, P, 0.8], [P, P, P, 0.6, P, P, P]]
    found = rse(values, [7], max_length=5, overall_max_length=9, minimum_value=0.5)
    assert [segment[:2] for segment in found] == [(0, 1), (3, 4), (6, 7)]


def test_values_of_chunks() -> None:
    """A score decays with rank and pays the penalty; long chunks weigh more, both ways."""
    ranking = [(0.9, 1400), (0.1, 1400), (0.7, 100)]
    balanced = RSE_PRESETS["balanced"]
    found = [rse_value(score, rank, size, balanced) for rank, (score, size) in enumerate(ranking)]
    assert found == pytest.approx([1.44, -0.1666, 0.4749], abs=1e-4)
    assert rse_value(None, 0, 0, balanced) == -0.18


def test_an_unknown_preset() -> None:
    """An unknown preset raises an error that names the presets."""
    with pytest.raises(ValidationError, match="'balanced', 'precision' or 'find_all'"):
        RelevantSegmentExtractionPostprocessor(docstore=docstore_of(), preset="fast")
    assert list(RSE_PRESETS) == ["balanced", "precision", "find_all"]


def test_bridges_a_chunk_that_was_not_retrieved() -> None:
    """A chunk between two good hits is part of their segment; a poor, distant hit is not."""
    nodes = linked_document(20)
    hits = [NodeWithScore(node=nodes[n], score=score) for n, score in ((4, 0.9), (6, 0.8), (15, 0.2))]
    augmenter = RelevantSegmentExtractionPostprocessor(docstore=docstore_of(nodes))
    out = augmenter.postprocess_nodes(hits)
    assert [hit.node.node_id for hit in out] == [node.node_id for node in nodes[4:7]]

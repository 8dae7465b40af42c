"""Reported faults about the direction that a model chooses, each with the correct result."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from helpers import positions
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from llama_index_ext_ctxaug import AutoPrevNextNodePostprocessor
from llama_index_ext_ctxaug.testing import ScriptedLLM, docstore_of, hits, linked_document


def augment(postprocess: Any, answer: str, query: str = "之后发生了什么？") -> list[int]:
    """Augment the middle chunk of five, given the model's answer."""
    nodes = linked_document(5)
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=ScriptedLLM(answers=[answer]))
    return positions(postprocess(augmenter, hits(nodes, [2]), query_str=query))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("下一个", [2, 3]),
        ("上一个", [1, 2]),
        ("后", [2, 3]),
        ("前", [1, 2]),
        ("这段文字没有提到。", [2]),
        ("", [2]),
    ],
)
def test_answers_in_chinese(postprocess: Any, answer: str, expected: list[int]) -> None:
    """下一/后 adds the next chunk, 上一/前 the previous, anything else nothing, and nothing raises."""
    assert augment(postprocess, answer) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("NONE - no previous context needed", [2]),
        ("NEXT, not PREVIOUS", [2, 3]),
        ("PREV", [1, 2]),
        ("Neither", [2]),
    ],
)
def test_answers_that_name_several_labels(postprocess: Any, answer: str, expected: list[int]) -> None:
    """A negated label does not count."""
    assert augment(postprocess, answer) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Sure! Here is my answer:\n\n**NEXT**\n\nLet me know if you need more.", [2, 3]),
        ("Document 2", [2]),
        ("metadata: none", [2]),
        ('{"direction": 7}', [2]),
    ],
)
def test_chatter(postprocess: Any, answer: str, expected: list[int]) -> None:
    """Chatter, other wording and useless answers give a result, not a parser error."""
    assert augment(postprocess, answer) == expected


def test_calls_at_once(postprocess: Any) -> None:
    """Ten slow calls run side by side, and the order of the result is stable."""
    nodes = linked_document(40)
    llm = ScriptedLLM(answers=["NEXT"], latency=0.2)
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm, num_workers=10)
    begin = time.perf_counter()
    result = postprocess(augmenter, hits(nodes, range(37, 0, -4)), query_str="Who?")
    assert time.perf_counter() - begin < 10 * 0.2 * 0.7
    assert positions(result) == [n for place in range(37, 0, -4) for n in (place, place + 1)]


def test_ids_play_no_part_in_the_order(postprocess: Any) -> None:
    """Ids z, y, x and 10, 9, 8 are returned in document order, runs by rank."""
    documents = []
    for ids in (["z", "y", "x"], ["10", "9", "8"]):
        nodes = [TextNode(id_=id_, text=f"text of {id_}") for id_ in ids]
        for first, second in itertools.pairwise(nodes):
            first.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id=second.id_)
            second.relationships[NodeRelationship.PREVIOUS] = RelatedNodeInfo(node_id=first.id_)
        documents.append(nodes)
    augmenter = AutoPrevNextNodePostprocessor(
        docstore=docstore_of(*documents), llm=ScriptedLLM(answers=["BOTH"])
    )
    retrieved = [
        NodeWithScore(node=documents[1][1], score=0.9),
        NodeWithScore(node=documents[0][1], score=0.8),
    ]
    result = postprocess(augmenter, retrieved, query_str="Who?")
    assert [hit.node.node_id for hit in result] == ["10", "9", "8", "z", "y", "x"]


def test_scores_survive(postprocess: Any) -> None:
    """A hit that neighbors another hit keeps its score, whatever the order of the hits."""
    nodes = linked_document(5)
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=ScriptedLLM(answers=["BOTH"]))
    for places, scores in (([3, 2], [0.9, 0.8]), ([2, 3], [0.8, 0.9])):
        result = postprocess(augmenter, hits(nodes, places, scores), query_str="Who?")
        assert [hit.score for hit in result] == [None, 0.8, 0.9, None]

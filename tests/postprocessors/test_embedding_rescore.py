"""EmbeddingRescorePostprocessor: cosine of question and node, batched, cached, sorted."""

from __future__ import annotations

import logging
import math
import time

import pytest
from helpers import Postprocess
from llama_index.core import MockEmbedding, Settings
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index_ext_ctxaug import EmbeddingRescorePostprocessor
from llama_index_ext_ctxaug.postprocessors.embedding_rescore import cosine
from llama_index_ext_ctxaug.testing import WordEmbedding


def scored(*texts: str) -> list[NodeWithScore]:
    """Nodes with these texts."""
    return [
        NodeWithScore(node=TextNode(text=text, id_=str(n)), score=0.1 * n) for n, text in enumerate(texts)
    ]


def test_nodes_are_sorted_by_cosine(postprocess: Postprocess) -> None:
    """The score is the cosine of question and text, best first, whatever the previous scores."""
    rescore = EmbeddingRescorePostprocessor(embed_model=WordEmbedding())
    result = postprocess(
        rescore, scored("red fish", "blue", "red red fish fish", "green"), query_str="red fish"
    )
    assert [hit.node.node_id for hit in result[:2]] == ["0", "2"]
    assert [hit.score for hit in result] == pytest.approx([1.0, 1.0, 0.0, 0.0])
    assert all(type(hit.score) is float for hit in result)


def test_top_k(postprocess: Postprocess) -> None:
    """At most top_k nodes are returned, chosen after sorting."""
    rescore = EmbeddingRescorePostprocessor(embed_model=WordEmbedding(), top_k=1)
    assert [h.node.node_id for h in postprocess(rescore, scored("a", "b", "c"), query_str="c")] == ["2"]


def test_one_batched_call_with_each_text_once(postprocess: Postprocess) -> None:
    """Texts are sent to the model in batches of its size, equal texts once."""
    model = WordEmbedding(embed_batch_size=10)
    nodes = scored(*(f"text {n % 25}" for n in range(50)))
    result = postprocess(EmbeddingRescorePostprocessor(embed_model=model), nodes, query_str="text 3")
    assert len(result) == 50
    assert sorted(map(len, model.calls)) == [5, 10, 10]


def test_own_embeddings_are_used_where_they_fit(postprocess: Postprocess) -> None:
    """A node with an embedding of the right length is not embedded again; others are."""
    model = WordEmbedding(dimensions=8)
    right, wrong, none = scored("right", "wrong", "none")
    right.node.embedding, wrong.node.embedding = [1.0] * 8, [1.0] * 3
    rescore = EmbeddingRescorePostprocessor(embed_model=model)
    result = postprocess(rescore, [right, wrong, none], query_str="wrong")
    assert sorted(text for call in model.calls for text in call) == ["none", "wrong"]
    assert {hit.node.node_id: hit.score for hit in result}["1"] == pytest.approx(1.0)
    again = EmbeddingRescorePostprocessor(embed_model=model, use_node_embeddings=False)
    assert len(postprocess(again, [right], query_str="right")) == 1
    assert model.calls[-1] == ["right"]


def test_zero_vectors_have_no_score(postprocess: Postprocess) -> None:
    """A zero vector gives None, which ranks last, and never NaN."""
    rescore = EmbeddingRescorePostprocessor(embed_model=WordEmbedding())
    result = postprocess(rescore, scored("!!!", "word", "other"), query_str="word")
    assert [hit.node.node_id for hit in result] == ["1", "2", "0"]
    assert result[-1].score is None
    assert [hit.score for hit in postprocess(rescore, scored("a", "b"), query_str="!!!")] == [None, None]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1, 0], [0, 2], 0.0),
        ([3, 4], [3, 4], 1.0),
        ([1, 0], [-1, 0], -1.0),
        ([0, 0], [1, 0], None),
        ([math.nan, 0], [1, 0], None),
        ([math.inf, 0], [1, 0], None),
    ],
)
def test_cosine(first: list[float], second: list[float], expected: float | None) -> None:
    """The cosine of two vectors is None if it is not defined."""
    assert (
        cosine(first, second) == pytest.approx(expected)
        if expected is not None
        else cosine(first, second) is None
    )


def test_no_query_keeps_the_order(postprocess: Postprocess, caplog: pytest.LogCaptureFixture) -> None:
    """Without a query the nodes keep order and scores, with a warning."""
    nodes = scored("a", "b")
    with caplog.at_level(logging.WARNING):
        result = postprocess(EmbeddingRescorePostprocessor(embed_model=WordEmbedding()), nodes)
    assert [id(hit) for hit in result] == [id(hit) for hit in nodes]
    assert "no query" in caplog.text


def test_model_of_the_settings_is_found_when_called(
    postprocess: Postprocess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a model of its own it uses that of the settings, at the time of the call."""
    rescore = EmbeddingRescorePostprocessor()
    monkeypatch.setattr(Settings, "_embed_model", MockEmbedding(embed_dim=3))
    result = postprocess(rescore, scored("a", "b"), query_str="q")
    assert [hit.score for hit in result] == pytest.approx([1.0, 1.0])
    assert "embed_model" not in EmbeddingRescorePostprocessor(embed_model=WordEmbedding()).to_dict()


def test_nothing_is_changed_and_repeated_nodes_are_returned_once(postprocess: Postprocess) -> None:
    """Input nodes and scores are unchanged; repeated nodes are returned once."""
    nodes = scored("a b", "b c")
    before = [hit.to_json() for hit in nodes]
    rescore = EmbeddingRescorePostprocessor(embed_model=WordEmbedding())
    result = postprocess(rescore, nodes + nodes[:1], query_str="a")
    assert [hit.to_json() for hit in nodes] == before
    assert len(result) == 2
    assert postprocess(rescore, [], query_str="a") == []


class SlowEmbedding(BaseEmbedding):
    """A model without async methods, like many."""

    def _get_query_embedding(self, query: str) -> list[float]:
        return [1.0, 0.0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return [1.0, 0.0]

    def _get_text_embedding(self, text: str) -> list[float]:
        time.sleep(0.01)
        return [1.0, float(len(text))]


def test_a_model_without_async_methods_does_not_block(postprocess: Postprocess) -> None:
    """A model that has only blocking methods runs in a thread."""
    rescore = EmbeddingRescorePostprocessor(embed_model=SlowEmbedding())
    assert [h.node.node_id for h in postprocess(rescore, scored("aaa", "a"), query_str="q")] == ["1", "0"]


def test_an_error_of_the_model_is_raised(postprocess: Postprocess) -> None:
    """An error of the model is raised unchanged."""

    class Broken(SlowEmbedding):
        def _get_text_embedding(self, text: str) -> list[float]:
            raise ConnectionError("no model")

    with pytest.raises(ConnectionError, match="no model"):
        postprocess(EmbeddingRescorePostprocessor(embed_model=Broken()), scored("a"), query_str="q")

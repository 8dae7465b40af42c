"""RerankPostprocessor: any reranker, matched by id, with a fallback and a choice of windows."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import pytest
from helpers import Postprocess, ids, recorded
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor import LLMRerank
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.utils import get_tokenizer

from llama_index_ext_ctxaug import RerankPostprocessor, SlidingWindowPostprocessor, read_provenance
from llama_index_ext_ctxaug.testing import ScriptedLLM, WordEmbedding

Answer = Callable[[list[NodeWithScore]], list[NodeWithScore]]


class Reranker(BaseNodePostprocessor):
    """A reranker that answers by a function and writes into its input, as real ones do."""

    answer: Any
    top_n: int = 2
    seen: list[Any] = Field(default_factory=list)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        self.seen.append([hit.node.get_content(metadata_mode=MetadataMode.EMBED) for hit in nodes])
        for hit in nodes:
            hit.node.metadata["retrieval_score"] = hit.score
        return self.answer(nodes)[: self.top_n]


def rescored(*scores: float | None) -> Answer:
    """Answers with these scores in place, unsorted."""

    def answer(nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        for hit, score in zip(nodes, scores, strict=True):
            hit.score = score
        return nodes

    return answer


def nodes(count: int = 5) -> list[NodeWithScore]:
    """Nodes 0, 1, 2 ... with falling scores."""
    return [
        NodeWithScore(node=TextNode(text=f"Text {n}.", id_=str(n)), score=0.9 - n / 10) for n in range(count)
    ]


def cut(text: str, size: int = 40, stride: int = 10) -> list[NodeWithScore]:
    """Windows of a text."""
    cutter = SlidingWindowPostprocessor(window_tokens=size, stride_tokens=stride)
    return cutter.postprocess_nodes([NodeWithScore(node=TextNode(text=text, id_="whole"), score=0.5)])


TEXT = " ".join(f"This is sentence number {number}." for number in range(60))


def test_all_are_ranked_before_the_best_are_taken(postprocess: Postprocess) -> None:
    """With scores that rise with the position, the last nodes are returned, best first."""
    rerank = RerankPostprocessor(reranker=Reranker(answer=rescored(1, 2, 3, 4, 5)), top_n=2)
    result = postprocess(rerank, nodes(), query_str="q")
    assert [(hit.node.node_id, hit.score) for hit in result] == [("4", 5.0), ("3", 4.0)]


def test_negative_scores_and_none_rank_as_they_should(postprocess: Postprocess) -> None:
    """Negative logits are scores; None and NaN rank below all."""
    rerank = RerankPostprocessor(reranker=Reranker(answer=rescored(-5, None, -1, math.nan, -3)))
    result = postprocess(rerank, nodes(), query_str="q")
    assert ids(result) == ["2", "4", "0", "1", "3"]
    assert result[-1].score is None


def test_input_is_not_changed(postprocess: Postprocess) -> None:
    """The reranker writes only into copies."""
    incoming = nodes()
    before = [hit.to_json() for hit in incoming]
    rerank = RerankPostprocessor(reranker=Reranker(answer=rescored(1, 2, 3, 4, 5)))
    result = postprocess(rerank, incoming, query_str="q")
    assert [hit.to_json() for hit in incoming] == before
    assert all("retrieval_score" not in hit.node.metadata for hit in result)
    assert result[0].node is incoming[4].node


def test_an_order_without_new_scores_is_taken(postprocess: Postprocess) -> None:
    """If a reranker only sorts, its order is the ranking."""
    rerank = RerankPostprocessor(reranker=Reranker(answer=lambda hits: hits[::-1]), top_n=3)
    assert ids(postprocess(rerank, nodes(), query_str="q")) == ["4", "3", "2"]


def test_an_order_with_scores_taken_away_is_taken(postprocess: Postprocess) -> None:
    """If a reranker sorts nodes and removes their scores, its order is the ranking."""

    def answer(hits: list[NodeWithScore]) -> list[NodeWithScore]:
        return [NodeWithScore(node=hit.node) for hit in hits[::-1]]

    result = postprocess(RerankPostprocessor(reranker=Reranker(answer=answer)), nodes(3), query_str="q")
    assert [(hit.node.node_id, hit.score) for hit in result] == [("2", None), ("1", None), ("0", None)]


def test_nodes_that_the_reranker_leaves_out_are_left_out(postprocess: Postprocess) -> None:
    """Nodes that the reranker omits count as irrelevant; unknown nodes are ignored."""

    def answer(hits: list[NodeWithScore]) -> list[NodeWithScore]:
        stranger = NodeWithScore(node=TextNode(text="?"), score=99)
        return [
            stranger,
            NodeWithScore(node=hits[1].node, score=0.2),
            NodeWithScore(node=hits[0].node, score=0.7),
        ]

    rerank = RerankPostprocessor(reranker=Reranker(answer=answer))
    assert ids(postprocess(rerank, nodes(), query_str="q")) == ["0", "1"]


def broken(hits: list[NodeWithScore]) -> list[NodeWithScore]:
    """A reranker's failure."""
    raise ConnectionError("reranker is down")


@pytest.mark.parametrize("answer", [broken, lambda hits: [], lambda hits: nodes(7)[5:]])
def test_a_useless_reranker_leaves_the_order(
    postprocess: Postprocess, answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    """If it raises or returns no known node, the incoming order stays, with one warning."""
    rerank = RerankPostprocessor(reranker=Reranker(answer=answer), top_n=3, min_score=0.99)
    with caplog.at_level(logging.WARNING):
        result = postprocess(rerank, nodes(), query_str="q")
    assert [(hit.node.node_id, hit.score) for hit in result] == [
        (hit.node.node_id, hit.score) for hit in nodes()[:3]
    ]
    assert caplog.text.count("the order stays") == 1
    strict = RerankPostprocessor(reranker=Reranker(answer=answer), on_rerank_error="raise")
    with pytest.raises((ConnectionError, ValueError), match=r"down|nothing usable"):
        postprocess(strict, nodes(), query_str="q")


def test_unreadable_answers_of_a_model_leave_the_order(postprocess: Postprocess) -> None:
    """If LLMRerank cannot parse the reply, the context is not empty."""
    llm = ScriptedLLM(answers=["I cannot tell which of them would help you here."])
    rerank = RerankPostprocessor(reranker=LLMRerank(llm=llm), top_n=2)
    assert ids(postprocess(rerank, nodes(), query_str="q")) == ["0", "1"]


def test_llm_rerank(postprocess: Postprocess) -> None:
    """A real LLMRerank decides if its model answers well."""
    llm = ScriptedLLM(answers=["Doc: 3, Relevance: 9\nDoc: 1, Relevance: 4"])
    rerank = RerankPostprocessor(reranker=LLMRerank(llm=llm, top_n=1), top_n=5)
    assert ids(postprocess(rerank, nodes(), query_str="q")) == ["2", "0"]


def test_without_a_reranker_similarity_decides(postprocess: Postprocess) -> None:
    """None means similarity by the embedding model."""
    rerank = RerankPostprocessor(embed_model=WordEmbedding(), top_n=1)
    assert ids(postprocess(rerank, nodes(), query_str="3")) == ["3"]


def test_a_missing_model_leaves_the_order(postprocess: Postprocess, caplog: pytest.LogCaptureFixture) -> None:
    """Without a reranker or a working model the order stays, with a warning."""

    class Gone(WordEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:
            raise ImportError("no model")

        async def _aget_query_embedding(self, query: str) -> list[float]:
            raise ImportError("no model")

    model: BaseEmbedding = Gone()
    assert len(postprocess(RerankPostprocessor(embed_model=model), nodes(), query_str="q")) == 5
    assert "no model" in caplog.text


def test_no_query_keeps_the_order(postprocess: Postprocess, caplog: pytest.LogCaptureFixture) -> None:
    """Without a query nothing is reranked, which is reported."""
    with caplog.at_level(logging.WARNING):
        result = postprocess(RerankPostprocessor(reranker=Reranker(answer=broken), top_n=2), nodes())
    assert ids(result) == ["0", "1"]
    assert "no query" in caplog.text


def test_min_score_may_leave_nothing(postprocess: Postprocess) -> None:
    """If nothing is relevant, the output is empty."""
    reranker = Reranker(answer=rescored(0.1, 0.2, 0.3, 0.6, None))
    assert ids(
        postprocess(RerankPostprocessor(reranker=reranker, min_score=0.3), nodes(), query_str="q")
    ) == [
        "3",
        "2",
    ]
    assert postprocess(RerankPostprocessor(reranker=reranker, min_score=2), nodes(), query_str="q") == []


@pytest.mark.parametrize("limit", [20, 35, 60])
def test_the_reranker_gets_no_more_than_it_reads(postprocess: Postprocess, limit: int) -> None:
    """A long node is shown in parts within the limit, metadata included; its best part counts."""
    reranker = Reranker(answer=lambda hits: [h for h in hits if _score(h, "number 57.")], seen=[])
    long = NodeWithScore(
        node=TextNode(text=TEXT, id_="long", metadata={"title": "A book of numbers"}), score=0.1
    )
    rerank = RerankPostprocessor(reranker=reranker, reranker_max_tokens=limit)
    result = postprocess(rerank, [*nodes(2), long], query_str="q")
    assert next((hit.node.node_id, hit.score) for hit in result) == ("long", 1.0)
    assert result[0].node.text == TEXT
    sent = [text for call in reranker.seen for text in call]
    assert max(len(get_tokenizer()(text)) for text in sent) <= limit
    assert all("A book" in text for text in sent[2:])


def test_a_node_as_long_as_the_reranker_reads_is_shown_whole(postprocess: Postprocess) -> None:
    """A node of exactly the limit is not cut, and loses nothing that belongs to it."""
    reranker = Reranker(answer=lambda hits: hits, seen=[])
    node = TextNode(text="Some text.", metadata={"window": "Before. Some text. After."})
    content = node.get_content(metadata_mode=MetadataMode.EMBED)
    rerank = RerankPostprocessor(reranker=reranker, reranker_max_tokens=len(get_tokenizer()(content)))
    postprocess(rerank, [NodeWithScore(node=node)], query_str="q")
    assert reranker.seen == [[content]]


def _score(hit: NodeWithScore, word: str) -> bool:
    hit.score = float(word in hit.node.text)
    return True


def test_windows_that_share_more_than_half_give_way(postprocess: Postprocess) -> None:
    """Of overlapping windows the best is returned, and others that share at most half of it."""
    windows = cut(TEXT)
    reranker = Reranker(answer=lambda hits: hits[::-1])
    places = {
        mode: [
            read_provenance(hit.node).cut[1:]
            for hit in postprocess(
                RerankPostprocessor(reranker=reranker, top_n=4, overlap=mode), windows, query_str="q"
            )
        ]
        for mode in ("suppress", "keep", "merge")
    }
    assert places["keep"] == [read_provenance(hit.node).cut[1:] for hit in windows[:-5:-1]]
    assert len(places["suppress"]) == 4
    for number, (start, end) in enumerate(places["suppress"]):
        for other_start, other_end in places["suppress"][:number]:
            assert 2 * (min(end, other_end) - max(start, other_start)) <= end - start
    assert places["merge"] == [(min(s for s, _ in places["keep"]), max(e for _, e in places["keep"]))]


def test_merged_windows_are_slices_too(postprocess: Postprocess) -> None:
    """A merged window is the text from the first to the last, with the best score and joined provenance."""
    windows = cut(TEXT)
    apart = [windows[0], windows[1], windows[-1]]
    rerank = RerankPostprocessor(reranker=Reranker(answer=rescored(1, 3, 2)), overlap="merge")
    first, second = postprocess(rerank, apart, query_str="q")
    provenance = read_provenance(first.node)
    name, start, end = provenance.cut
    assert (name, first.node.text, first.score) == ("whole", TEXT[start:end], 3.0)
    assert [(p.node_id, p.start, p.end) for p in provenance.pieces] == [("whole", 0, end - start)]
    assert second.score == 2.0


def test_order_of_the_document(postprocess: Postprocess) -> None:
    """With order="document" the chosen windows are ordered as in their text, texts by rank."""
    windows = cut(TEXT)[::3]
    rerank = RerankPostprocessor(reranker=Reranker(answer=lambda h: h[::-1]), top_n=3, order="document")
    result = postprocess(rerank, windows + nodes(1), query_str="q")
    assert ids(result) == [*ids(windows)[-2:], "0"]


def test_events_come_as_a_pair(postprocess: Postprocess) -> None:
    """A call sends one start and one end event, even if the reranker fails."""
    with recorded(ReRankStartEvent, ReRankEndEvent) as seen:
        for answer in (rescored(1, 2, 3, 4, 5), broken):
            postprocess(RerankPostprocessor(reranker=Reranker(answer=answer)), nodes(), query_str="q")
    assert [type(event).__name__ for event in seen] == ["ReRankStartEvent", "ReRankEndEvent"] * 2
    assert seen[0].top_n == 10
    assert len(seen[1].nodes) == len(seen[3].nodes) == 5


def test_saved_without_models() -> None:
    """The saved form holds no reranker."""
    rerank = RerankPostprocessor(reranker=Reranker(answer=broken), top_n=3, min_score=0.1)
    assert "reranker" not in rerank.to_dict()
    assert RerankPostprocessor.from_dict(rerank.to_dict()).top_n == 3

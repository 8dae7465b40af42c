"""Reported faults about splitting again, reranking and counting, each with the correct result."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import pytest
from helpers import Postprocess
from llama_index.core import Document
from llama_index.core.bridge.pydantic import Field
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.utils import get_tokenizer

from llama_index_ext_ctxaug import (
    BRSRPostprocessor,
    RerankPostprocessor,
    SlidingWindowPostprocessor,
    read_provenance,
)
from llama_index_ext_ctxaug.testing import WordEmbedding, docstore_of, hits, linked_document


def tokens(text: str) -> int:
    """Tokens of a text."""
    return len(get_tokenizer()(text))


def windows(postprocess: Postprocess, text: str, size: int = 512, stride: int = 128, **kw: Any) -> list[str]:
    """Texts of the windows of one node."""
    cutter = SlidingWindowPostprocessor(window_tokens=size, stride_tokens=stride)
    return [
        hit.node.text for hit in postprocess(cutter, [NodeWithScore(node=TextNode(text=text, id_="n", **kw))])
    ]


@pytest.mark.parametrize(("stride", "shared"), [(384, 128), (128, 384)])
def test_windows_of_chinese_overlap(postprocess: Postprocess, stride: int, shared: int) -> None:
    """Windows of Chinese text overlap: 512 tokens at a stride of 384 share about 128."""
    text = "".join(chr(0x4E00 + number) for number in range(2000))
    cut = windows(postprocess, text, 512, stride)
    for before, after in list(pairwise(cut))[:-1]:
        place = text.index(after)
        common = text[place : text.index(before) + len(before)]
        assert abs(tokens(common) - shared) < 30
    assert max(map(tokens, cut)) <= 512


@pytest.mark.parametrize("text", ["天地玄黄" * 500, "x" * 3000, "天" * 3000])
def test_a_run_without_punctuation_ends(postprocess: Postprocess, text: str) -> None:
    """Long runs without punctuation are cut into windows of at most 512 tokens."""
    assert max(map(tokens, windows(postprocess, text))) <= 512


@pytest.mark.parametrize(("text", "size"), [("보험" * 50, 2), ("🚀", 1)])
def test_characters_of_many_tokens(postprocess: Postprocess, text: str, size: int) -> None:
    """A window smaller than a character holds one whole character, never half of one."""
    cut = windows(postprocess, text, size, 1)
    assert set("".join(cut)) <= set(text)


@pytest.mark.parametrize("count", [1, 400, 512])
def test_a_short_text_is_one_window(postprocess: Postprocess, count: int) -> None:
    """A text that fits gives exactly one window."""
    assert len(windows(postprocess, " word" * count)) == 1


@pytest.mark.parametrize("count", [512, 513, 896, 897])
def test_each_window_has_text_of_its_own(postprocess: Postprocess, count: int) -> None:
    """No window only repeats text of the previous one."""
    text = " ".join(f"w{number}" for number in range(count // 2))
    ends = [text.index(window) + len(window) for window in windows(postprocess, text)]
    assert ends == sorted(set(ends))


class Seen(BaseNodePostprocessor):
    """A reranker that scores by position and records what it reads."""

    texts: list[str] = Field(default_factory=list)
    top_n: int = 2

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        self.texts.extend(hit.node.get_content(metadata_mode=MetadataMode.EMBED) for hit in nodes)
        for place, hit in enumerate(nodes):
            hit.score = float(place)
        return nodes[: self.top_n]


def test_no_passage_is_too_long_for_the_reranker(postprocess: Postprocess) -> None:
    """A passage of thousands of tokens reaches the reranker as windows within its limit."""
    nodes = linked_document([f"This is sentence {number} of it. " * 8 for number in range(100)])
    reranker = Seen()
    augmenter = BRSRPostprocessor(
        docstore=docstore_of(nodes), reranker=reranker, expansion_tokens=3000, reranker_max_tokens=256
    )
    assert postprocess(augmenter, hits(nodes, [50]), query_str="q")
    assert len(reranker.texts) > 10
    assert max(map(tokens, reranker.texts)) <= 256


def test_sorted_before_it_is_cut(postprocess: Postprocess) -> None:
    """Of five scores that rise with the position, the last two are returned, best first."""
    found = [NodeWithScore(node=TextNode(text=f"Text {n}", id_=str(n)), score=0.5) for n in range(5)]
    result = postprocess(RerankPostprocessor(reranker=Seen(), top_n=2), found, query_str="q")
    assert [hit.node.node_id for hit in result] == ["4", "3"]


def test_metadata_does_not_stop_the_cut(postprocess: Postprocess) -> None:
    """Metadata longer than a window does not count, excluded or not."""
    text = "A sentence of some words. " * 40
    plain = windows(postprocess, text, 64, 16)
    assert windows(postprocess, text, 64, 16, metadata={"window": "word " * 100, "x": "y " * 200}) == plain


def test_offsets_are_true(postprocess: Postprocess) -> None:
    """Each window is the slice at its offsets, even if the text repeats."""
    text = "Alpha. Same. Beta. Same. " * 20
    [node] = SentenceSplitter(chunk_size=1000).get_nodes_from_documents([Document(text=text, id_="d")])
    cutter = SlidingWindowPostprocessor(window_tokens=20, stride_tokens=7)
    found = postprocess(cutter, [NodeWithScore(node=node)])
    places = [(hit.node.start_char_idx, hit.node.end_char_idx) for hit in found]
    assert len(set(places)) == len(places)
    assert all(text[a:b] == hit.node.text for (a, b), hit in zip(places, found, strict=True))


def test_nodes_without_offsets_work(postprocess: Postprocess) -> None:
    """Windows of a node without offsets have none, but record their position in the node."""
    cutter = SlidingWindowPostprocessor(window_tokens=20, stride_tokens=7)
    text = "A sentence of some words. And another one of them. " * 10
    for hit in postprocess(cutter, [NodeWithScore(node=TextNode(text=text, id_="n"))]):
        _, start, end = read_provenance(hit.node).cut
        assert hit.node.start_char_idx is None
        assert text[start:end] == hit.node.text


def test_windows_carry_the_title_to_the_reranker(postprocess: Postprocess) -> None:
    """Each window reaches the reranker with the metadata of the answer's text."""
    nodes = linked_document(["Sentence one is here. " * 60], metadata={"title": "The title"})
    reranker = Seen()
    augmenter = BRSRPostprocessor(
        docstore=docstore_of(nodes), reranker=reranker, window_tokens=64, stride_tokens=32
    )
    result = postprocess(augmenter, hits(nodes, [0]), query_str="q")
    assert all(text.startswith("title: The title") for text in reranker.texts)
    assert all("The title" in hit.node.get_content(metadata_mode=MetadataMode.LLM) for hit in result)


def test_nothing_relevant_gives_nothing(postprocess: Postprocess) -> None:
    """With a minimum score, an unrelated question gives an empty context."""
    nodes = linked_document(["Cats sleep a lot.", "Dogs bark."])
    augmenter = BRSRPostprocessor(docstore=docstore_of(nodes), embed_model=WordEmbedding(), min_score=0.1)
    assert postprocess(augmenter, hits(nodes, [0]), query_str="quantum chromodynamics") == []
    assert postprocess(augmenter, hits(nodes, [0]), query_str="cats") != []


def test_a_stride_as_long_as_the_window(postprocess: Postprocess) -> None:
    """A stride above the window is rejected; an equal one gives no overlap; empty text gives no window."""
    with pytest.raises(ValueError, match="stride_tokens"):
        SlidingWindowPostprocessor(window_tokens=40, stride_tokens=41)
    text = "".join(f"This is sentence number {number}. " for number in range(100))
    assert "".join(windows(postprocess, text, 50, 50)).startswith(text[:3000])
    assert windows(postprocess, "", 50, 50) == [""]


def test_a_reranker_that_returns_nothing(postprocess: Postprocess, caplog: pytest.LogCaptureFixture) -> None:
    """If the reranker returns nothing, the incoming order stays, with a warning."""
    found = [NodeWithScore(node=TextNode(text=f"Text {n}", id_=str(n)), score=0.5) for n in range(5)]
    with caplog.at_level(logging.WARNING):
        result = postprocess(RerankPostprocessor(reranker=Nothing(), top_n=2), found, query_str="q")
    assert [hit.node.node_id for hit in result] == ["0", "1"]
    assert "the order stays" in caplog.text


class Nothing(BaseNodePostprocessor):
    """A reranker that returns nothing."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return []

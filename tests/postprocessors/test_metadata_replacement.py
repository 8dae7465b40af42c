"""Replacing a hit's text with a window from its metadata."""

from __future__ import annotations

import copy
import logging
import random
from typing import Any

import pytest
from helpers import Postprocess, recorded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core import SummaryIndex, VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import SentenceSplitter, SentenceWindowNodeParser
from llama_index.core.postprocessor import MetadataReplacementPostProcessor as UpstreamReplacement
from llama_index.core.schema import (
    Document,
    ImageNode,
    MediaResource,
    MetadataMode,
    Node,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.retrievers.bm25 import BM25Retriever
from pydantic import ValidationError

from llama_index_ext_ctxaug import (
    ContextAugmentationEndEvent,
    ContextAugmentationStartEvent,
    MetadataReplacementPostProcessor,
    WindowExtractor,
    read_provenance,
)

SENTENCES = [f"Sentence {n} is about topic {n * 37 % 23}. " for n in range(20)]


def sentence_nodes(
    size: int = 3, *, sentences: list[str] = SENTENCES, source_id: str = "doc"
) -> list[TextNode]:
    """Return the sentences of a document with their windows."""
    parser = SentenceWindowNodeParser(window_size=size, sentence_splitter=lambda _: sentences)
    return parser([Document(text="".join(sentences), id_=source_id)])


def scored(nodes: list[TextNode], places: list[int]) -> list[NodeWithScore]:
    """Return hits at these places, best first."""
    return [NodeWithScore(node=nodes[p], score=0.9 - 0.01 * rank) for rank, p in enumerate(places)]


def test_replaces(postprocess: Postprocess) -> None:
    """The text becomes the metadata's, as in LlamaIndex's postprocessor; id, score and links are kept."""
    hits = scored(sentence_nodes(), [4, 12])
    theirs = UpstreamReplacement("window").postprocess_nodes(copy.deepcopy(hits))
    out = postprocess(MetadataReplacementPostProcessor("window"), hits)
    for hit, mine, other in zip(hits, out, theirs, strict=True):
        assert mine.node.get_content() == other.node.get_content() == hit.node.metadata["window"]
        assert (mine.node.node_id, mine.score) == (hit.node.node_id, hit.score)
        assert mine.node.relationships == hit.node.relationships
        assert {**hit.node.metadata}.items() <= mine.node.metadata.items()


@pytest.mark.parametrize("value", [None, "", "  \n", 7, 1.5, ["a"], {"a": "b"}, True])
def test_own_text_kept(postprocess: Postprocess, value: Any) -> None:
    """If the key is missing, empty, blank or not a text, the same object is returned unchanged."""
    hits = [
        NodeWithScore(node=TextNode(text="own", metadata={"window": value}), score=0.5),
        NodeWithScore(node=TextNode(text="other"), score=0.4),
        NodeWithScore(node=TextNode(text="third", metadata={"window": "wide"}), score=0.3),
    ]
    out = postprocess(MetadataReplacementPostProcessor("window"), hits)
    assert out[0] is hits[0]
    assert out[1] is hits[1]
    assert out[2].node.get_content() == "wide"


def test_one_warning(postprocess: Postprocess, caplog: pytest.LogCaptureFixture) -> None:
    """One warning per call gives the number of hits without the key, and the existing keys."""
    hits = [NodeWithScore(node=TextNode(text=str(n), metadata={"context": "c", "page": 1})) for n in range(3)]
    with caplog.at_level(logging.WARNING):
        postprocess(MetadataReplacementPostProcessor("window"), hits)
    (record,) = caplog.records
    assert "3 hits" in record.getMessage()
    assert "['context', 'page']" in record.getMessage()


def test_keys_in_order(postprocess: Postprocess) -> None:
    """Of several keys, the first that has a text counts, for each hit."""
    metadata = [{"a": "A", "b": "B"}, {"a": " ", "b": "B"}, {"b": "B"}, {"c": "C"}]
    hits = [NodeWithScore(node=TextNode(text="own", metadata=one)) for one in metadata]
    out = postprocess(MetadataReplacementPostProcessor(["a", "b"]), hits)
    assert [hit.node.get_content() for hit in out] == ["A", "B", "B", "own"]


def test_sent_once(postprocess: Postprocess) -> None:
    """The LLM's text holds the window once, although its key was not excluded."""
    hits = [NodeWithScore(node=TextNode(text="own", metadata={"window": "the window", "title": "T"}))]
    (out,) = postprocess(MetadataReplacementPostProcessor("window"), hits)
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        assert out.node.get_content(mode) == "title: T\n\nthe window"


def test_nothing_is_changed(postprocess: Postprocess) -> None:
    """Hits and their hashes do not change, and a second call gives the same."""
    hits = scored(sentence_nodes(), [3, 4, 19])
    before, hashes = copy.deepcopy(hits), [hit.node.hash for hit in hits]
    for merge in (False, True):
        augmenter = MetadataReplacementPostProcessor("window", merge_overlaps=merge)
        first = postprocess(augmenter, hits)
        assert hits == before
        assert [hit.node.hash for hit in hits] == hashes
        assert postprocess(augmenter, hits) == first


def in_memory_retrievers() -> dict[str, Any]:
    """Return retrievers of every kind that returns nodes from memory, over the same nodes."""
    nodes = sentence_nodes()
    embedding = MockEmbedding(embed_dim=4)
    return {
        "vector": VectorStoreIndex(nodes, embed_model=embedding).as_retriever(similarity_top_k=5),
        "summary": SummaryIndex(nodes).as_retriever(),
        "bm25": BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=5),
    }


@pytest.mark.parametrize("name", ["vector", "summary", "bm25"])
@pytest.mark.parametrize("merge", [False, True])
def test_retrievers_keep_their_nodes(name: str, merge: bool) -> None:
    """A retriever that keeps its nodes in memory returns the same nodes after replacement."""
    retriever = in_memory_retrievers()[name]
    augmenter = MetadataReplacementPostProcessor("window", merge_overlaps=merge)
    held = retriever.retrieve("topic 14")
    before, hashes = copy.deepcopy(held), [hit.node.hash for hit in held]
    first = augmenter.postprocess_nodes(held)
    assert held == before
    assert [hit.node.hash for hit in held] == hashes
    again = retriever.retrieve("topic 14")
    assert [hit.node for hit in again] == [hit.node for hit in before]
    assert augmenter.postprocess_nodes(again) == first


def test_same_hits_at_any_size() -> None:
    """The hits of a query do not depend on the size of the window."""
    found = []
    for size in (1, 3, 5):
        retriever = BM25Retriever.from_defaults(nodes=sentence_nodes(size), similarity_top_k=4)
        augmenter = MetadataReplacementPostProcessor("window")
        augmenter.postprocess_nodes(retriever.retrieve("topic 14"))
        found.append([hit.node.metadata["original_text"] for hit in retriever.retrieve("topic 14")])
    assert found[0] == found[1] == found[2]


def test_what_is_no_longer_true() -> None:
    """Embedding and character offsets, which describe the own text, are dropped."""
    node = TextNode(
        text="own", metadata={"w": "wide own text"}, embedding=[1.0], start_char_idx=5, end_char_idx=8
    )
    (out,) = MetadataReplacementPostProcessor("w").postprocess_nodes([NodeWithScore(node=node)])
    assert (out.node.embedding, out.node.start_char_idx, out.node.end_char_idx) == (None, None, None)
    provenance = read_provenance(out.node)
    assert provenance is not None
    assert (provenance.role, provenance.hits) == ("window", (node.node_id,))


def test_kinds_of_nodes(postprocess: Postprocess) -> None:
    """Image nodes, resource nodes and subclasses keep their class and all other fields."""

    class Special(TextNode):
        extra: str = "kept"

    nodes = [
        ImageNode(text="i", image_path="x.png", metadata={"w": "wide"}, text_embedding=[1.0]),
        Node(
            text_resource=MediaResource(text="n"),
            image_resource=MediaResource(url="http://localhost/x.png"),
            metadata={"w": "wide"},
        ),
        Special(text="s", extra="own", metadata={"w": "wide"}),
        Document(text="d", metadata={"w": "wide"}),
    ]
    hits = [NodeWithScore(node=node) for node in nodes]
    for merge in (False, True):
        out = postprocess(MetadataReplacementPostProcessor("w", merge_overlaps=merge), hits)
        assert [type(hit.node) for hit in out] == [type(node) for node in nodes]
        assert all(hit.node.get_content() == "wide" for hit in out)
        assert (out[0].node.image_path, out[0].node.text_embedding) == ("x.png", None)
        assert out[1].node.image_resource == nodes[1].image_resource
        assert out[2].node.extra == "own"


def test_repeated_hit(postprocess: Postprocess) -> None:
    """A node that was retrieved twice is returned once, with its best score."""
    nodes = sentence_nodes()
    hits = [NodeWithScore(node=nodes[2], score=s) for s in (0.3, 0.9)]
    (out,) = postprocess(MetadataReplacementPostProcessor("window"), hits)
    assert out.score == 0.9


def test_nothing_in(postprocess: Postprocess) -> None:
    """No hits give no nodes."""
    assert postprocess(MetadataReplacementPostProcessor("window", merge_overlaps=True), []) == []


@pytest.mark.parametrize("key", ["", [], None, 3])
def test_a_key_is_needed(key: Any) -> None:
    """Without a key construction fails."""
    with pytest.raises(ValidationError):
        MetadataReplacementPostProcessor(key)
    with pytest.raises(ValidationError):
        MetadataReplacementPostProcessor("window", merge=True)


def test_serialization() -> None:
    """A saved postprocessor comes back equal."""
    for key in ("window", ["window", "parent_text"]):
        augmenter = MetadataReplacementPostProcessor(target_metadata_key=key, merge_overlaps=True)
        assert (
            MetadataReplacementPostProcessor.from_json(augmenter.to_json()).to_dict() == augmenter.to_dict()
        )
    assert MetadataReplacementPostProcessor.class_name() == UpstreamReplacement.class_name()


def test_events(postprocess: Postprocess) -> None:
    """A call reports its start and its end."""
    with recorded(ContextAugmentationStartEvent, ContextAugmentationEndEvent) as own:
        hits = scored(sentence_nodes(), [3, 4])
        postprocess(MetadataReplacementPostProcessor("window", merge_overlaps=True), hits)
    assert [type(event) for event in own] == [ContextAugmentationStartEvent, ContextAugmentationEndEvent]
    assert (own[1].num_hits, own[1].num_nodes) == (2, 1)


def test_merged(postprocess: Postprocess) -> None:
    """Overlapping windows are one node at the best score: each sentence once, attributed to its hit."""
    nodes = sentence_nodes()
    hits = scored(nodes, [10, 8, 9])
    (out,) = postprocess(MetadataReplacementPostProcessor("window", merge_overlaps=True), hits)
    text = out.node.get_content(MetadataMode.LLM)
    assert text.split() == "".join(SENTENCES[5:14]).split()
    assert out.score == 0.9
    assert out.node.ref_doc_id == "doc"
    provenance = read_provenance(out.node)
    assert provenance is not None
    assert provenance.role == "passage"
    assert set(provenance.hits) == {nodes[n].node_id for n in (8, 9, 10)}
    own = {
        piece.node_id: text[piece.start : piece.end].strip()
        for piece in provenance.pieces
        if piece.role == "hit"
    }
    assert own == {nodes[n].node_id: SENTENCES[n].strip() for n in (8, 9, 10)}


def test_not_merged_unless_asked(postprocess: Postprocess) -> None:
    """By default each hit keeps its own window, as in LlamaIndex, however much the windows overlap."""
    nodes = sentence_nodes()
    out = postprocess(MetadataReplacementPostProcessor("window"), scored(nodes, [10, 8, 9]))
    assert [hit.node.text for hit in out] == [nodes[place].metadata["window"] for place in (10, 8, 9)]


def test_apart(postprocess: Postprocess) -> None:
    """Windows with text between them, and windows of other documents, stay separate nodes."""
    first, second = sentence_nodes(1), sentence_nodes(1, source_id="other")
    hits = [*scored(first, [3, 12]), *scored(second, [3])]
    out = postprocess(MetadataReplacementPostProcessor("window", merge_overlaps=True), hits)
    assert [hit.node.node_id for hit in out] == [hit.node.node_id for hit in hits]


def test_source_unknown(postprocess: Postprocess) -> None:
    """Hits of unknown documents are not merged, however alike their windows."""
    nodes = [TextNode(text=t, metadata={"window": "One long window. Another one."}) for t in ("One", "two")]
    hits = [NodeWithScore(node=node) for node in nodes]
    assert len(postprocess(MetadataReplacementPostProcessor("window", merge_overlaps=True), hits)) == 2


def test_windows_that_touch(postprocess: Postprocess) -> None:
    """Windows that touch by their offsets are one text."""
    text = "".join(SENTENCES)
    parser = SentenceWindowNodeParser(window_size=1, sentence_splitter=lambda _: SENTENCES)
    nodes = WindowExtractor(window_size=1).extract(parser([Document(text=text, id_="d")]), {"d": text})
    out = postprocess(MetadataReplacementPostProcessor("window", merge_overlaps=True), scored(nodes, [2, 5]))
    assert [hit.node.get_content() for hit in out] == ["".join(SENTENCES[1:7])]


def test_offsets_in_parents_are_no_places(postprocess: Postprocess) -> None:
    """Offsets that count in different parents do not make windows touch."""
    nodes = [
        TextNode(id_=id_, text=text, metadata={"window": text}, start_char_idx=start, end_char_idx=start + 5)
        for id_, text, start in (("a", "Some.", 0), ("b", "More.", 5))
    ]
    for node, parent in zip(nodes, "PQ", strict=True):
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="doc")
        node.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id=parent)
    augmenter = MetadataReplacementPostProcessor("window", merge_overlaps=True)
    assert len(postprocess(augmenter, scored(nodes, [0, 1]))) == 2


def test_a_merged_window_is_not_sent_twice(postprocess: Postprocess) -> None:
    """If both hits have the same window, it is the text, and no longer in the metadata."""
    nodes = sentence_nodes(5, sentences=SENTENCES[:3])
    (out,) = postprocess(
        MetadataReplacementPostProcessor("window", merge_overlaps=True), scored(nodes, [2, 0])
    )
    assert out.node.get_content(MetadataMode.ALL).count(SENTENCES[1].strip()) == 1


def placed(id_: str, own: str, window: str, start: int) -> TextNode:
    """A sentence of a document with its window and its offsets."""
    node = TextNode(id_=id_, text=own, metadata={"window": window}, start_char_idx=start)
    node.end_char_idx = start + len(own)
    node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="doc")
    return node


def test_a_short_window_in_another_adds_nothing(postprocess: Postprocess) -> None:
    """A window of a few characters inside another one is not appended to it."""
    nodes = [placed("a", "乙。", "甲。乙。丙。", 2), placed("b", "丙。", "丙。", 4)]
    (out,) = postprocess(
        MetadataReplacementPostProcessor("window", merge_overlaps=True), scored(nodes, [0, 1])
    )
    assert out.node.text == "甲。乙。丙。"


def test_what_a_window_has_twice_is_in_no_place(postprocess: Postprocess) -> None:
    """If a window contains its sentence twice, the piece is the window, with no place in the document."""
    shared = "今天天气很好我们去公园散步。"
    nodes = [placed("a", "好。", f"好。好。{shared}", 2), placed("b", "好。", f"{shared}好。好。", 18)]
    (out,) = postprocess(
        MetadataReplacementPostProcessor("window", merge_overlaps=True), scored(nodes, [0, 1])
    )
    pieces = read_provenance(out.node).pieces
    assert "".join(out.node.text[piece.start : piece.end] for piece in pieces) == out.node.text
    assert [piece.source_start for piece in pieces] == [None, None]


def test_what_is_more_than_text_is_not_merged(postprocess: Postprocess) -> None:
    """An image with a window that overlaps a sentence's stays a separate node, with its image."""
    nodes = sentence_nodes()
    image = ImageNode(
        id_="i", text="", image="aGk=", metadata=dict(nodes[3].metadata), relationships=nodes[3].relationships
    )
    found = [*scored(nodes, [4]), NodeWithScore(node=image)]
    out = postprocess(MetadataReplacementPostProcessor("window", merge_overlaps=True), found)
    assert [hit.node.node_id for hit in out] == [nodes[4].node_id, "i"]
    assert out[1].node.image == "aGk="


def test_output_nodes_have_links_of_their_own(postprocess: Postprocess) -> None:
    """Changing the links of a replaced node does not affect the input node."""
    nodes = sentence_nodes()
    (out,) = postprocess(MetadataReplacementPostProcessor("window"), scored(nodes, [4]))
    assert out.node.relationships == nodes[4].relationships
    out.node.relationships.clear()
    assert nodes[4].relationships


def test_short_sentences_by_links(postprocess: Postprocess) -> None:
    """Hits that link to each other are merged, however short the shared text."""
    nodes = sentence_nodes(1, sentences=["甲。", "乙。", "丙。", "丁。", "戊。"])
    for node in nodes:
        node.start_char_idx = node.end_char_idx = None
    hits = scored(nodes, [3, 2])
    (out,) = postprocess(MetadataReplacementPostProcessor("window", merge_overlaps=True), hits)
    assert out.node.get_content().split() == ["乙。", "丙。", "丁。", "戊。"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    size=st.integers(1, 5),
    places=st.lists(st.integers(0, 19), min_size=1, max_size=8),
    offsets=st.booleans(),
    links=st.booleans(),
    exact=st.booleans(),
)
def test_each_sentence_once(size: int, places: list[int], offsets: bool, links: bool, exact: bool) -> None:
    """With or without offsets and links, in any order of hits, each sentence appears once, in order."""
    nodes = list(sentence_nodes(size))
    if exact:
        nodes = list(WindowExtractor(window_size=size).extract(nodes, {"doc": "".join(SENTENCES)}))
    for node in nodes:
        if not offsets:
            node.start_char_idx = node.end_char_idx = None
        if not links:
            node.relationships = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc")}
    augmenter = MetadataReplacementPostProcessor("window", merge_overlaps=True)
    out = augmenter.postprocess_nodes(scored(nodes, places))
    wanted = {n for p in places for n in range(max(0, p - size), min(20, p + size + 1))}
    seen: list[int] = []
    for hit in out:
        text = hit.node.get_content()
        inside = sorted((text.index(s.strip()), n) for n, s in enumerate(SENTENCES) if s.strip() in text)
        numbers = [n for _, n in inside]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert text.split() == "".join(SENTENCES[numbers[0] : numbers[-1] + 1]).split()
        seen += numbers
    assert sorted(seen) == sorted(wanted)


def test_order_of_hits_matters_by_rank_alone() -> None:
    """Passages depend on the order of hits only by the rank of their first hit."""
    nodes = sentence_nodes(1)
    places = [3, 4, 11, 12, 17]
    augmenter = MetadataReplacementPostProcessor("window", merge_overlaps=True)
    texts = set()
    for seed in range(5):
        random.Random(seed).shuffle(places)
        out = augmenter.postprocess_nodes(scored(nodes, places))
        texts.add(frozenset(hit.node.get_content() for hit in out))
        assert f"Sentence {places[0]} " in out[0].node.get_content()
    assert len(texts) == 1


def test_merge_keeps_hits_without_window(postprocess: Postprocess) -> None:
    """Among merged windows, a hit without one keeps its own text and rank."""
    nodes = sentence_nodes()
    plain = NodeWithScore(node=TextNode(text="plain"), score=0.95)
    hits = [scored(nodes, [4])[0], plain, scored(nodes, [5])[0]]
    out = postprocess(MetadataReplacementPostProcessor("window", merge_overlaps=True), hits)
    assert len(out) == 2
    assert out[1] is plain


def test_in_an_engine() -> None:
    """In a query engine the LLM reads the merged windows of a splitter's chunks, once."""
    text = "".join(SENTENCES)
    chunks = SentenceSplitter(chunk_size=30, chunk_overlap=0)([Document(text=text)])
    nodes = WindowExtractor(window_size=1)(chunks)
    index = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=4))
    engine = index.as_query_engine(
        llm=MockLLM(),
        similarity_top_k=len(nodes),
        node_postprocessors=[MetadataReplacementPostProcessor("window", merge_overlaps=True)],
    )
    response = engine.query("Which topic?")
    assert [hit.node.get_content() for hit in response.source_nodes] == [text.strip()]

"""SlidingWindowPostprocessor: windows of any nodes, with true offsets and provenance."""

from __future__ import annotations

import json

import pytest
from helpers import Postprocess
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core import Document
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import (
    ImageNode,
    IndexNode,
    MediaResource,
    MetadataMode,
    Node,
    NodeRelationship,
    NodeWithScore,
    TextNode,
)
from llama_index.core.utils import get_tokenizer

from llama_index_ext_ctxaug import PrevNextNodePostprocessor, SlidingWindowPostprocessor, read_provenance
from llama_index_ext_ctxaug.testing import docstore_of, hits, linked_document
from llama_index_ext_ctxaug.windows.sliding import sliding_windows

SENTENCES = [f"This is sentence number {number} of the text." for number in range(60)]


def tokens(text: str) -> int:
    """Tokens of a text."""
    return len(get_tokenizer()(text))


def windows_of(postprocess: Postprocess, text: str, size: int = 64, stride: int = 16, **kw: object) -> list:
    """The windows of one node with this text."""
    cutter = SlidingWindowPostprocessor(window_tokens=size, stride_tokens=stride)
    return postprocess(cutter, [NodeWithScore(node=TextNode(text=text, id_="n", **kw), score=0.7)])


def test_defaults() -> None:
    """By default, windows have 512 tokens at a stride of 128."""
    cutter = SlidingWindowPostprocessor()
    assert (cutter.window_tokens, cutter.stride_tokens) == (512, 128)


@pytest.mark.parametrize("stride", [0, -1, 65])
def test_a_stride_that_cannot_work_is_refused(stride: int) -> None:
    """A stride below 1 or above the window is rejected at construction."""
    with pytest.raises(ValueError, match="stride_tokens must be between 1 and window_tokens"):
        SlidingWindowPostprocessor(window_tokens=64, stride_tokens=stride)


def test_windows_are_slices_with_score_and_offsets(postprocess: Postprocess) -> None:
    """Each window is a slice within the limit, with its node's score and true offsets in the document."""
    text = " ".join(SENTENCES)
    result = windows_of(postprocess, text, start_char_idx=100, end_char_idx=100 + len(text))
    assert len(result) > 10
    for window in result:
        start, end = window.node.start_char_idx - 100, window.node.end_char_idx - 100
        assert window.node.text == text[start:end]
        assert tokens(window.node.text) <= 64
        assert window.score == 0.7
        provenance = read_provenance(window.node)
        assert (provenance.role, provenance.cut) == ("window", ("n", start, end))
        piece = provenance.pieces[0]
        assert (piece.node_id, piece.start, piece.end) == ("n", 0, end - start)
        assert (piece.source_start, piece.source_end) == (start + 100, end + 100)
    assert result[0].node.start_char_idx == 100
    assert result[-1].node.end_char_idx == 100 + len(text)


def test_a_node_that_fits_is_returned_unchanged(postprocess: Postprocess) -> None:
    """A node of one window, an empty one and an image are returned as the same objects."""
    nodes = [
        NodeWithScore(node=TextNode(text="Short."), score=0.1),
        NodeWithScore(node=TextNode(text=""), score=None),
        NodeWithScore(node=ImageNode(image="x" * 1000), score=0.3),
    ]
    result = postprocess(SlidingWindowPostprocessor(), nodes)
    assert [id(hit) for hit in result] == [id(hit) for hit in nodes]
    assert postprocess(SlidingWindowPostprocessor(), []) == []


def test_what_is_more_than_text_is_not_cut(postprocess: Postprocess) -> None:
    """Images with text and index nodes are returned unchanged, however long they are."""
    text = " ".join(SENTENCES)
    nodes = [
        NodeWithScore(node=ImageNode(id_="i", text=text, image="aGk=")),
        NodeWithScore(node=IndexNode(id_="x", text=text, index_id="other")),
    ]
    result = postprocess(SlidingWindowPostprocessor(window_tokens=64, stride_tokens=16), nodes)
    assert [id(hit) for hit in result] == [id(hit) for hit in nodes]


def test_a_splitter_of_ones_own_says_where_windows_begin(postprocess: Postprocess) -> None:
    """Windows begin and end where the given function splits the text."""
    cutter = SlidingWindowPostprocessor(
        window_tokens=4, stride_tokens=2, tokenizer=str.split, sentence_splitter=lambda text: text.split("; ")
    )
    node = TextNode(id_="n", text="a. B; c. D; e. F; g. H")
    windows = postprocess(cutter, [NodeWithScore(node=node)])
    assert [hit.node.text for hit in windows] == ["a. B; c. D; ", "c. D; e. F; ", "e. F; g. H"]


def test_the_end_event_names_the_windows(postprocess: Postprocess, ends: list) -> None:
    """The event counts nodes before and after, and names only new windows, not unchanged nodes."""
    found = [NodeWithScore(node=TextNode(id_="long", text=" ".join(SENTENCES)))]
    found.append(NodeWithScore(node=TextNode(id_="short", text="Short.")))
    result = postprocess(SlidingWindowPostprocessor(window_tokens=64, stride_tokens=16), found)
    (event,) = ends
    assert (event.num_hits, event.num_nodes, event.reads) == (2, len(result), 0)
    assert event.added_node_ids == [hit.node.node_id for hit in result[:-1]]


@pytest.mark.parametrize("excluded", [[], ["window", "note"]])
def test_metadata_never_counts(postprocess: Postprocess, excluded: list[str]) -> None:
    """Metadata longer than a window does not prevent the cut; windows of a window parser are dropped."""
    metadata = {"window": "word " * 100, "note": "long " * 100, "file": "a.txt"}
    result = windows_of(
        postprocess, " ".join(SENTENCES), metadata=metadata, excluded_llm_metadata_keys=list(excluded)
    )
    assert len(result) > 10
    for window in result:
        assert window.node.metadata["file"] == "a.txt"
        assert "window" not in window.node.metadata
        assert "context_augmentation" not in window.node.get_content(metadata_mode=MetadataMode.LLM)


def test_nothing_is_changed_and_ids_are_the_same(postprocess: Postprocess) -> None:
    """The input node is unchanged, and a second run gives the same windows."""
    node = TextNode(text=" ".join(SENTENCES), id_="n", metadata={"a": 1})
    before = node.to_json()
    cutter = SlidingWindowPostprocessor(window_tokens=64, stride_tokens=16)
    runs = [postprocess(cutter, [NodeWithScore(node=node, score=1.0)]) for _ in range(2)]
    assert node.to_json() == before
    assert [w.node.to_json() for w in runs[0]] == [w.node.to_json() for w in runs[1]]
    assert len({w.node.node_id for w in runs[0]}) == len(runs[0])


def test_equal_windows_of_a_document_are_returned_once(postprocess: Postprocess) -> None:
    """Equal windows of a document are returned once; those of another document stay."""
    text = "The same sentence again. " * 60
    one, two = linked_document([text], source_id="a"), linked_document([text], source_id="b")
    cutter = SlidingWindowPostprocessor(window_tokens=50, stride_tokens=50)
    single = postprocess(cutter, hits(one, [0]))
    assert len({window.node.text for window in single}) == len(single)
    both = postprocess(cutter, hits(one, [0]) + hits(two, [0]))
    assert len(both) == 2 * len(single)


def test_a_repeated_node_is_cut_once(postprocess: Postprocess) -> None:
    """The same node from two retrievers gives its windows once, with the better score."""
    node = TextNode(text=" ".join(SENTENCES), id_="n")
    cutter = SlidingWindowPostprocessor(window_tokens=64, stride_tokens=16)
    once = postprocess(cutter, [NodeWithScore(node=node, score=0.9)])
    twice = postprocess(cutter, [NodeWithScore(node=node, score=0.3), NodeWithScore(node=node, score=0.9)])
    assert [(w.node.node_id, w.score) for w in once] == [(w.node.node_id, w.score) for w in twice]


def test_windows_of_passages_attribute_their_text(postprocess: Postprocess) -> None:
    """Pieces of a window of a passage are slices of the chunks' texts, and hits are named."""
    nodes = linked_document([f"{s} " for s in SENTENCES], offsets=True)
    grow = PrevNextNodePostprocessor(
        docstore=docstore_of(nodes), num_nodes=20, mode="both", output="passages"
    )
    passages = postprocess(grow, hits(nodes, [20, 40]))
    cutter = SlidingWindowPostprocessor(window_tokens=64, stride_tokens=16)
    texts = {node.node_id: node.text for node in nodes}
    document = "".join(node.text for node in nodes)
    for window in postprocess(cutter, passages):
        provenance = read_provenance(window.node)
        assert provenance.hits
        assert document[window.node.start_char_idx : window.node.end_char_idx] == window.node.text
        for piece in provenance.pieces:
            assert window.node.text[piece.start : piece.end] in texts[piece.node_id]
        json.dumps(window.node.metadata)


def test_links_to_the_outside_stay_at_the_ends(postprocess: Postprocess) -> None:
    """The first window keeps PREVIOUS, the last one NEXT, and all of them SOURCE."""
    nodes = linked_document(["Before.", " ".join(SENTENCES), "After."])
    cutter = SlidingWindowPostprocessor(window_tokens=64, stride_tokens=16)
    result = [hit.node for hit in postprocess(cutter, hits(nodes, [1]))]
    assert [NodeRelationship.PREVIOUS in node.relationships for node in result] == [True] + [False] * (
        len(result) - 1
    )
    assert [NodeRelationship.NEXT in node.relationships for node in result][-2:] == [False, True]
    assert {node.ref_doc_id for node in result} == {"doc"}


def test_windows_are_not_cut_twice(postprocess: Postprocess) -> None:
    """Windows are not cut again; smaller windows of them count from the first node."""
    result = windows_of(postprocess, " ".join(SENTENCES))
    again = postprocess(SlidingWindowPostprocessor(window_tokens=64, stride_tokens=16), result)
    assert [id(w) for w in again] == [id(w) for w in result]
    smaller = postprocess(SlidingWindowPostprocessor(window_tokens=32, stride_tokens=32), result[2:3])
    whole = " ".join(SENTENCES)
    for window in smaller:
        name, start, end = read_provenance(window.node).cut
        assert (name, whole[start:end]) == ("n", window.node.text)


def test_repeated_text_has_offsets_of_its_own(postprocess: Postprocess) -> None:
    """Two windows with equal text in a document without a source differ only in place."""
    nodes = SentenceSplitter(chunk_size=200, chunk_overlap=0).get_nodes_from_documents(
        [Document(text="Alpha. Same. Beta. Same.", id_="d")]
    )
    result = postprocess(
        SlidingWindowPostprocessor(window_tokens=6, stride_tokens=3), [NodeWithScore(node=nodes[0])]
    )
    places = [(w.node.start_char_idx, w.node.end_char_idx) for w in result]
    assert len(set(places)) == len(places)
    assert all(
        "Alpha. Same. Beta. Same."[a:b] == w.node.text for (a, b), w in zip(places, result, strict=True)
    )


def test_saved_and_restored() -> None:
    """The saved form holds sizes, without functions."""
    cutter = SlidingWindowPostprocessor(window_tokens=64, stride_tokens=16, sentence_splitter=str.splitlines)
    data = cutter.to_dict()
    assert data["class_name"] == "SlidingWindowPostprocessor"
    assert SlidingWindowPostprocessor.from_dict(data).window_tokens == 64
    assert "sentence_splitter" not in data


@settings(max_examples=60, deadline=None)
@given(
    text=st.lists(
        st.sampled_from(["One two three. ", "今天天气很好。", "👍🏽", "3.14 ", "\n\n", "word "]), max_size=80
    ),
    size=st.integers(4, 40),
    data=st.data(),
)
def test_windows_are_those_of_the_text(text: list[str], size: int, data: st.DataObject) -> None:
    """For any text, the nodes are its windows in order, without duplicates."""
    whole, stride = "".join(text), data.draw(st.integers(1, size))
    cutter = SlidingWindowPostprocessor(window_tokens=size, stride_tokens=stride)
    result = cutter.postprocess_nodes([NodeWithScore(node=TextNode(text=whole, id_="n"))])
    spans = sliding_windows(whole, window_tokens=size, stride_tokens=stride, count_tokens=tokens)
    expected = list(dict.fromkeys(whole[span.start : span.end] for span in spans)) or [whole]
    assert [window.node.text for window in result] == expected


def test_equal_texts_without_a_document(postprocess: Postprocess) -> None:
    """Nodes of unknown documents count as separate documents: each has all of its windows."""
    text = " ".join(SENTENCES)
    nodes = [
        NodeWithScore(node=TextNode(id_=id_, text=text, start_char_idx=0, end_char_idx=len(text)))
        for id_ in "ab"
    ]
    result = postprocess(SlidingWindowPostprocessor(window_tokens=64, stride_tokens=16), nodes)
    assert len(result) % 2 == 0
    assert len({hit.node.node_id for hit in result}) == len(result)
    assert [hit.node.text for hit in result[: len(result) // 2]] == [
        hit.node.text for hit in result[len(result) // 2 :]
    ]


@pytest.mark.parametrize("kind", [Document, Node])
def test_text_of_every_class_is_cut(postprocess: Postprocess, kind: type) -> None:
    """Documents and nodes that hold text are cut like text nodes."""
    text = " ".join(SENTENCES)
    node = (
        Document(id_="n", text=text)
        if kind is Document
        else Node(id_="n", text_resource=MediaResource(text=text))
    )
    cutter = SlidingWindowPostprocessor(window_tokens=64, stride_tokens=16)
    windows = postprocess(cutter, [NodeWithScore(node=node)])
    expected = postprocess(cutter, [NodeWithScore(node=TextNode(id_="n", text=text))])
    assert len(windows) > 1
    assert [hit.node.text for hit in windows] == [hit.node.text for hit in expected]

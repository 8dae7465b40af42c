"""Window texts in metadata for the nodes of any parser."""

from __future__ import annotations

import copy
import json
import logging

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser import (
    HierarchicalNodeParser,
    SentenceSplitter,
    SentenceWindowNodeParser,
    TokenTextSplitter,
)
from llama_index.core.schema import (
    Document,
    ImageNode,
    MetadataMode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from pydantic import ValidationError

from llama_index_ext_ctxaug import NeighborLinker, WindowExtractor
from llama_index_ext_ctxaug.testing import linked_document

TEXT = " ".join(f"Sentence {n} of the harbor book says one more thing." for n in range(60))


def windows(nodes: list, size: int = 1, **options: object) -> list[str]:
    """Return the windows of nodes."""
    return [node.metadata["window"] for node in WindowExtractor(window_size=size, **options)(nodes)]


def test_window_of_each_chunk() -> None:
    """A window is the text of the given number of chunks a side, fewer at the edges of the document."""
    nodes = linked_document(["a ", "b ", "c ", "d "])
    assert windows(nodes) == ["a b ", "a b c ", "b c d ", "c d "]
    assert windows(nodes, 9) == ["a b c d "] * 4
    by_default = WindowExtractor()(linked_document(list("abcdefghi")))
    assert [node.metadata["window"] for node in by_default][::4] == ["a b c d", "b c d e f g h", "f g h i"]


def test_never_across_documents() -> None:
    """A window ends where its document ends, even if a link leads on."""
    first, second = linked_document(["a", "b"], source_id="one"), linked_document(["c", "d"], source_id="two")
    first[1].relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id=second[0].node_id)
    assert windows([*first, *second], 5) == ["a b", "a b", "c d", "c d"]


def test_sides() -> None:
    """The text before and the text after can be stored separately."""
    nodes = linked_document(["a", "b", "c"])
    out = WindowExtractor(window_size=1, layout="sides")(nodes)
    assert [(n.metadata["previous_text"], n.metadata["next_text"]) for n in out] == [
        ("", " b"),
        ("a ", " c"),
        ("b ", ""),
    ]
    assert "window" not in out[0].metadata


def test_overlap_is_cut() -> None:
    """Shared text appears once in a window, and with "sides" not beside the chunk that holds it."""
    nodes = SentenceSplitter(chunk_size=60, chunk_overlap=25)([Document(text=TEXT)])
    out = WindowExtractor(window_size=2, layout="sides")(nodes)
    for node in out:
        assert node.metadata["previous_text"] + node.text + node.metadata["next_text"] in TEXT


@pytest.mark.parametrize("overlap", [0, 20])
@pytest.mark.parametrize("splitter", [SentenceSplitter, TokenTextSplitter])
def test_slice_of_the_document(splitter: type, overlap: int) -> None:
    """With any text splitter, a chunk's window is the document from its first to its last chunk."""
    nodes = splitter(chunk_size=50, chunk_overlap=overlap)([Document(text=TEXT)])
    for place, window in enumerate(windows(nodes, 2)):
        first, last = nodes[max(0, place - 2)], nodes[min(len(nodes) - 1, place + 2)]
        assert window == TEXT[first.start_char_idx : last.end_char_idx]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["One thing is so.", "好的。", "A much longer sentence stands here.", "你呢？走吧！"]
            ),
            st.sampled_from([" ", "\n", "\n\n", "   ", ""]),
        ),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 4),
    st.sampled_from([0, 10]),
)
@example([("One thing is so.", " ")] * 9 + [("好的。", " ")], 1, 10)
@example([("好的。", " ")] * 2 + [("One thing is so.", " ")] * 3 + [("好的。", " ")] * 2, 1, 0)
@example(
    [("One thing is so.", " ")] * 6
    + [("A much longer sentence stands here.", "\n")] * 3
    + [("A much longer sentence stands here.", " "), ("你呢？走吧！", " "), ("你呢？走吧！", " ")]
    + [("One thing is so.", " ")],
    1,
    10,
)
def test_exact_with_the_document(parts: list[tuple[str, str]], size: int, overlap: int) -> None:
    """Given the document's text, a window is its slice whatever white space was stripped.

    Without it the window has the same words, unless sentences repeat: then a short text that two chunks
    share, and one that is repeated, look the same.
    """
    text = "".join(sentence + space for sentence, space in parts)
    document = Document(text=text, id_="doc")
    nodes = SentenceSplitter(chunk_size=30, chunk_overlap=overlap)([document])
    out = WindowExtractor(window_size=size).extract(nodes, {"doc": text})
    guessed = WindowExtractor(window_size=size)(nodes)
    for node, same in zip(out, guessed, strict=True):
        assert node.metadata["window"] in text
        if len({sentence for sentence, _ in parts}) == len(parts):
            assert "".join(same.metadata["window"].split()) == "".join(node.metadata["window"].split())


def test_hierarchy() -> None:
    """Each level of a hierarchy has its own windows, across the edges of parents."""
    nodes = HierarchicalNodeParser.from_defaults([256, 64], chunk_overlap=0)([Document(text=TEXT)])
    leaves = [node for node in WindowExtractor(window_size=1)(nodes) if not node.child_nodes]
    assert len({node.parent_node.node_id for node in leaves}) > 1
    for before, leaf, after in zip(leaves, leaves[1:], leaves[2:], strict=False):
        assert leaf.metadata["window"] == f"{before.text} {leaf.text} {after.text}"
        assert leaf.metadata["window"] in TEXT


def test_places_in_parents_of_parents() -> None:
    """Offsets add up over all levels, so white space between chunks of two parents is found."""
    texts = {"G": (9, "alpha beta"), "P": (0, "alpha"), "Q": (6, "beta"), "a": (0, "alpha"), "b": (0, "beta")}
    nodes = {
        id_: TextNode(id_=id_, text=text, start_char_idx=start, end_char_idx=start + len(text))
        for id_, (start, text) in texts.items()
    }
    for id_, above in (("P", "G"), ("Q", "G"), ("a", "P"), ("b", "Q")):
        nodes[id_].relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id=above)
        listed = nodes[above].relationships.setdefault(NodeRelationship.CHILD, [])
        listed.append(RelatedNodeInfo(node_id=id_))
    for node in nodes.values():
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="doc")
    assert windows(list(nodes.values()))[-2:] == ["alpha beta", "alpha beta"]


def test_a_document_among_the_nodes_shows_what_was_stripped() -> None:
    """White space between chunks comes from the document if it is among the nodes."""
    document = Document(id_="doc", text="First.\n\t Second.")
    nodes = linked_document(["First.", "Second."])
    for node, (start, end) in zip(nodes, ((0, 6), (9, 16)), strict=True):
        node.start_char_idx, node.end_char_idx = start, end
    assert windows([document, *nodes])[1:] == [document.text] * 2


def test_problems_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Contradicting links give one warning of the extractor."""
    nodes = linked_document(["a", "b"])
    nodes[1].relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id=nodes[0].node_id)
    with caplog.at_level(logging.WARNING):
        assert windows(nodes) == ["a b", "a b"]
    assert [record.getMessage()[:32] for record in caplog.records] == ["WindowExtractor: 1 problems with"]


def test_pages_of_a_file() -> None:
    """With a linker that joins the pages of a file, windows cross the edges of pages."""
    pages = [Document(text=f"Page {n}.", metadata={"file": "f", "page_label": str(n)}) for n in (9, 10)]
    nodes = SentenceSplitter()(pages)
    assert windows(nodes) == ["Page 9.", "Page 10."]
    linker = NeighborLinker(document_key="file")
    assert windows(nodes, linker=linker, chunk_separator="\n") == ["Page 9.\nPage 10."] * 2


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize(
    "pages",
    [
        ["This page is left blank.", "This page is left blank.", "The end of it."],
        ["Chapter one. Confidential.", "Confidential. Chapter two.", "Chapter three."],
    ],
)
def test_pages_share_no_text(pages: list[str], offsets: bool) -> None:
    """The windows of a file hold all equal pages, headers and footers, each on a new line."""
    nodes = [
        linked_document([text], source_id=f"p{n}", offsets=offsets, metadata={"file": "f", "page_label": n})[
            0
        ]
        for n, text in enumerate(pages)
    ]
    linker = NeighborLinker(document_key="file")
    assert windows(nodes, 2, linker=linker) == ["\n".join(pages)] * 3


def test_parents_in_a_ring() -> None:
    """A ring of parents ends the search, and its chunks have windows."""
    nodes = linked_document(["a ", "b ", "c "], offsets=True)
    parents = linked_document(["a b ", "c "], source_id="doc", offsets=True)
    for number, node in enumerate(nodes):
        node.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id=f"parent-{number // 2}")
    for number, parent in enumerate(parents):
        parent.id_ = f"parent-{number}"
        parent.relationships = {
            NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc"),
            NodeRelationship.PARENT: RelatedNodeInfo(node_id=f"parent-{1 - number}"),
        }
    assert windows([*parents, *nodes])[2:] == ["a b ", "a b c ", "b c "]


def test_hidden_from_embedding_and_llm() -> None:
    """A window is in neither the embedding text nor the LLM text, and the node's own text stays."""
    nodes = linked_document(["alpha", "beta"])
    for node, out in zip(nodes, WindowExtractor()(nodes), strict=True):
        assert out.text == node.text
        for mode in (MetadataMode.EMBED, MetadataMode.LLM):
            assert out.get_content(mode) == node.get_content(mode)


def test_stored_once() -> None:
    """No window is stored in the relationships of neighbors, not even one left by a parser."""
    nodes = SentenceWindowNodeParser()([Document(text=TEXT)])
    assert "window" in nodes[1].relationships[NodeRelationship.NEXT].metadata
    out = WindowExtractor()(nodes)
    for node in out:
        assert all("window" not in info.metadata for info in node.relationships.values())
    assert len(json.dumps([n.to_dict() for n in out])) < 0.75 * len(json.dumps([n.to_dict() for n in nodes]))


def test_nothing_is_changed() -> None:
    """Input nodes and their hashes do not change; a second run gives the same result."""
    nodes = SentenceWindowNodeParser()([Document(text=TEXT)])
    before, hashes = copy.deepcopy(nodes), [node.hash for node in nodes]
    out = WindowExtractor()(nodes)
    assert nodes == before
    assert [node.hash for node in nodes] == hashes
    assert WindowExtractor()(out) == out


def test_kinds_of_nodes_are_kept() -> None:
    """An image node gets the text around it and stays an image node."""
    nodes = linked_document(["a", "b"])
    image = ImageNode(text="i", image_path="x.png", relationships=nodes[1].relationships, id_=nodes[1].id_)
    out = WindowExtractor()([nodes[0], image])
    assert isinstance(out[1], ImageNode)
    assert (out[1].image_path, out[1].metadata["window"]) == ("x.png", "a i")


def test_no_nodes() -> None:
    """No nodes give no nodes."""
    assert WindowExtractor()([]) == []


def test_no_window_is_refused() -> None:
    """A window of no chunks and a misspelled parameter are rejected at construction."""
    with pytest.raises(ValidationError):
        WindowExtractor(window_size=0)
    with pytest.raises(ValidationError):
        WindowExtractor(windowsize=2)


async def test_in_a_pipeline() -> None:
    """An IngestionPipeline gives nodes with windows, sync and async, also after saving and loading."""
    extractor = WindowExtractor(window_size=2, linker=NeighborLinker(document_key="file"))
    assert WindowExtractor.from_json(extractor.to_json()) == extractor
    splitter = SentenceSplitter(chunk_size=50, chunk_overlap=0, id_func=lambda i, doc: f"{doc.id_}-{i}")
    pipeline = IngestionPipeline(transformations=[splitter, extractor])
    documents = [Document(text=TEXT, id_="doc")]
    nodes = await pipeline.arun(documents=documents)
    assert nodes == IngestionPipeline(transformations=[splitter, extractor]).run(documents=documents)
    assert nodes[0].metadata["window"] == TEXT[: nodes[2].end_char_idx]

"""SectionPostprocessor: expansion to a heading, to a number of tokens, and no further."""

from __future__ import annotations

import logging

import pytest
from helpers import Postprocess
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core import Document
from llama_index.core.node_parser import MarkdownNodeParser, SentenceSplitter
from llama_index.core.schema import BaseNode, NodeWithScore, TextNode
from llama_index.core.utils import get_tokenizer

from llama_index_ext_ctxaug import SectionPostprocessor, read_provenance
from llama_index_ext_ctxaug.structure.headings import find_headings
from llama_index_ext_ctxaug.testing import ObservedDocstore, docstore_of, hits, linked_document

BOOK = [
    "# One\n\nText of one.",
    "More of one.",
    "## One point one\n\nText.",
    "More of one point one.",
    "The end of it.\n\n## One point two\n\nText.",
    "More of one point two.",
    "# Two\n\nText of two.",
    "More of two.",
]


def grown(result: list[NodeWithScore], nodes: list[TextNode]) -> list[int]:
    """Return the places of the returned nodes."""
    ids = [node.node_id for node in nodes]
    return [ids.index(hit.node.node_id) for hit in result]


def section(nodes: list[TextNode], **kw: object) -> SectionPostprocessor:
    """An augmenter over these nodes."""
    return SectionPostprocessor(docstore=docstore_of(nodes), **kw)


@pytest.mark.parametrize(
    ("hit", "any_heading", "same_or_higher"),
    [
        (0, [0, 1], [0, 1, 2, 3, 4, 5]),
        (1, [0, 1], [0, 1, 2, 3, 4, 5]),
        (2, [2, 3, 4], [2, 3, 4]),
        (3, [2, 3, 4], [2, 3, 4]),
        (4, [2, 3, 4, 5], [2, 3, 4, 5]),
        (5, [4, 5], [4, 5]),
        (6, [6, 7], [6, 7]),
        (7, [6, 7], [6, 7]),
    ],
)
def test_growth_ends_at_headings(
    postprocess: Postprocess, hit: int, any_heading: list[int], same_or_higher: list[int]
) -> None:
    """The section's own heading is included, and the next heading of the mode ends it."""
    nodes = linked_document(BOOK)
    for mode, expected in (("any", any_heading), ("same_or_higher", same_or_higher)):
        result = postprocess(section(nodes, stop_at=mode, expansion_tokens=1000), hits(nodes, [hit]))
        assert grown(result, nodes) == expected


def test_chinese_sections(postprocess: Postprocess) -> None:
    """Numbered Chinese headings end a section as Markdown headings do."""
    nodes = linked_document(
        [
            "第一章 总则\n\n本章说明目的。",
            "目的如下。",
            "第二章 分则\n\n本章说明细则。",
            "细则如下。",
            "（一）适用范围\n\n全国。",
        ]
    )
    assert grown(postprocess(section(nodes), hits(nodes, [1])), nodes) == [0, 1]
    assert grown(postprocess(section(nodes), hits(nodes, [3])), nodes) == [2, 3]
    deep = section(nodes, stop_at="same_or_higher")
    assert grown(postprocess(deep, hits(nodes, [3])), nodes) == [2, 3, 4]


def test_each_side_has_its_own_tokens(postprocess: Postprocess) -> None:
    """Neither side takes a chunk that would exceed expansion_tokens."""
    nodes = linked_document([f"word{number} " * 10 for number in range(9)])
    one = len(get_tokenizer()(nodes[4].text))
    for chunks in (0, 1, 2, 3):
        result = postprocess(section(nodes, expansion_tokens=chunks * one + one // 2), hits(nodes, [4]))
        assert grown(result, nodes) == list(range(4 - chunks, 5 + chunks))


def test_reasons_are_reported(postprocess: Postprocess) -> None:
    """The outermost nodes name the reason why expansion ended."""
    nodes = linked_document([*BOOK, "word " * 50])
    result = postprocess(section(nodes, expansion_tokens=20), hits(nodes, [7]))
    first = read_provenance(result[0].node)
    assert (grown(result, nodes), first.stopped_previous) == ([6, 7], "heading")
    nodes = linked_document(["word " * 50, "Text.", "Hit.", "Text."])
    result = postprocess(section(nodes, expansion_tokens=20), hits(nodes, [2]))
    assert read_provenance(result[0].node).stopped_previous == "budget"
    assert read_provenance(result[-1].node).stopped_next == "document_end"


def test_a_hit_that_opens_its_section_says_so(postprocess: Postprocess, ends: list) -> None:
    """Nothing is read before a hit that opens with a heading; the passage and the event give the reason."""
    nodes = linked_document(BOOK)
    store = ObservedDocstore(docstore_of(nodes))
    augmenter = SectionPostprocessor(docstore=store, expansion_tokens=1000, output="passages")
    (passage,) = postprocess(augmenter, hits(nodes, [2]))
    provenance = read_provenance(passage.node)
    assert (provenance.stopped_previous, provenance.stopped_next) == ("heading", "heading")
    assert ends[0].stop_reasons == {"heading": 2}
    assert not {node.node_id for node in nodes[:2]} & set(store.node_reads)


def test_a_section_found_late_is_cut_to_it(postprocess: Postprocess) -> None:
    """If only text before the hit shows its section's level, fitting text after it stays, with the reason."""
    nodes = linked_document(["## One", "Hit.", "Text of it.", "- item", "# Two", "- item " * 9])
    augmenter = section(nodes, stop_at="same_or_higher", expansion_tokens=8, tokenizer=str.split)
    result = postprocess(augmenter, hits(nodes, [1]))
    assert grown(result, nodes) == [0, 1, 2, 3]
    assert read_provenance(result[-1].node).stopped_next == "heading"
    tight = augmenter.model_copy(update={"expansion_tokens": 5})
    assert grown(postprocess(tight, hits(nodes, [1])), nodes) == [0, 1, 2, 3]


def test_the_last_heading_before_a_hit_is_its_own(postprocess: Postprocess) -> None:
    """Of several headings in the chunk before the hit, the last one opens the hit's section."""
    nodes = linked_document(["# One\n\nText.\n\n## One a\n\nText.", "Hit.", "More.", "## One b\n\nText."])
    augmenter = section(nodes, stop_at="same_or_higher")
    assert grown(postprocess(augmenter, hits(nodes, [1])), nodes) == [0, 1, 2]


def test_without_a_heading_any_ends_the_section(postprocess: Postprocess) -> None:
    """A hit without a heading before it, as in a preface, expands to the first heading of any level."""
    nodes = linked_document(["Preface.", "Hit.", "More.", "### Deep\n\nText.", "# One\n\nText."])
    augmenter = section(nodes, stop_at="same_or_higher")
    assert grown(postprocess(augmenter, hits(nodes, [1])), nodes) == [0, 1, 2]


def test_growths_that_meet_are_one_passage(postprocess: Postprocess) -> None:
    """Two hits of a section give one run, and nodes that both reach name both."""
    nodes = linked_document(["# Top", "One.", "Two.", "Three.", "Four."])
    result = postprocess(section(nodes), hits(nodes, [3, 1]))
    assert grown(result, nodes) == [0, 1, 2, 3, 4]
    assert set(read_provenance(result[2].node).hits) == {nodes[1].node_id, nodes[3].node_id}
    passages = postprocess(section(nodes, output="passages"), hits(nodes, [3, 1]))
    assert len(passages) == 1


def test_a_hit_on_the_way_is_not_grown_beyond(postprocess: Postprocess) -> None:
    """A heading inside another hit also ends the section."""
    nodes = linked_document(["# A\n\nText.", "Text.", "# B\n\nText.", "Text.", "# C\n\nText."])
    result = postprocess(section(nodes), hits(nodes, [1, 2]))
    assert grown(result, nodes) == [0, 1, 2, 3]
    assert read_provenance(result[-1].node).hits == (nodes[2].node_id,)


def test_documents_are_kept_apart(postprocess: Postprocess) -> None:
    """Hits of two documents give two runs, in the order of their rank."""
    one, two = linked_document(BOOK, source_id="a"), linked_document(BOOK, source_id="b")
    augmenter = SectionPostprocessor(docstore=docstore_of(one, two))
    result = postprocess(augmenter, hits(two, [1]) + hits(one, [7], [0.95]))
    assert grown(result, one + two) == [8, 9, 6, 7]


def test_filters_hold(postprocess: Postprocess) -> None:
    """A chunk that the filter rejects ends the expansion before it."""
    nodes = linked_document(["One.", "Secret.", "Hit.", "Four."])
    augmenter = section(nodes, neighbor_filters=lambda node: "Secret" not in node.get_content())
    assert grown(postprocess(augmenter, hits(nodes, [2])), nodes) == [2, 3]


def test_a_missing_node_behind_the_section_is_no_concern(postprocess: Postprocess) -> None:
    """Expansion that ended at the section's own heading reads nothing before it, even when strict."""
    nodes = linked_document(["Gone.", "# Top\n\nText.", "Hit.", "Text."])
    store = ObservedDocstore(docstore_of(nodes), missing=[nodes[0].node_id])
    augmenter = SectionPostprocessor(docstore=store, strict=True, repair_links=False)
    assert grown(postprocess(augmenter, hits(nodes, [2])), nodes) == [1, 2, 3]
    assert nodes[0].node_id not in store.node_reads


def test_all_hits_grow_in_few_rounds(postprocess: Postprocess) -> None:
    """Expansion of unknown length from many hits costs a few batched reads, each id once."""
    nodes = linked_document([f"Sentence number {number} is here." for number in range(400)])
    store = ObservedDocstore(docstore_of(nodes))
    augmenter = SectionPostprocessor(docstore=store, expansion_tokens=60)
    postprocess(augmenter, hits(nodes, range(10, 400, 40)))
    assert len(store.batches) <= 3
    assert len(store.node_reads) == len(set(store.node_reads))


def test_chunks_much_shorter_than_the_hit_are_read_ahead_again(postprocess: Postprocess) -> None:
    """If more chunks fit than expected, they are read in batches too."""
    texts = ["Word."] * 60
    texts[30] = "A hit that is much longer than its neighbors are. " * 6
    nodes = linked_document(texts)
    store = ObservedDocstore(docstore_of(nodes))
    result = postprocess(SectionPostprocessor(docstore=store, expansion_tokens=300), hits(nodes, [30]))
    assert len(result) == 60
    assert len(store.batches) <= 9


@pytest.mark.parametrize(
    "block",
    [
        ["| a | b |\n|---|---|\n| 1 | 2 |", "| 3 | 4 |\n| 5 | 6 |", "| 7 | 8 |"],
        ["- first item here", "- second item here", "- third item here"],
        ["```python\nx = 1\ny = 2", "z = 3\n```"],
    ],
)
def test_a_block_that_does_not_fit_is_left_out_whole(postprocess: Postprocess, block: list[str]) -> None:
    """A table, list or code block is taken whole if it fits, and never cut by the token limit."""
    nodes = linked_document(["Hit.", "Text.", *block, "After."])
    tokens = [len(get_tokenizer()(node.text)) for node in nodes]
    whole = sum(tokens[1:-1])
    assert grown(postprocess(section(nodes, expansion_tokens=whole), hits(nodes, [0])), nodes) == list(
        range(len(nodes) - 1)
    )
    assert grown(postprocess(section(nodes, expansion_tokens=whole - 1), hits(nodes, [0])), nodes) == [0, 1]


def test_a_block_around_the_hit_is_given_as_far_as_it_fits(postprocess: Postprocess) -> None:
    """A hit inside a long list expands within the list: there is no better place to end."""
    nodes = linked_document([f"- item {number}" for number in range(20)])
    result = postprocess(section(nodes, expansion_tokens=12), hits(nodes, [10]))
    assert len(result) > 3


def test_nothing_that_fits_is_warned_of(postprocess: Postprocess, caplog: pytest.LogCaptureFixture) -> None:
    """Chunks longer than expansion_tokens are not added, and one warning gives the numbers."""
    nodes = linked_document(["word " * 300, "Hit.", "word " * 400])
    with caplog.at_level(logging.WARNING):
        assert grown(postprocess(section(nodes), hits(nodes, [1])), nodes) == [1]
    assert "expansion_tokens=256" in caplog.text
    assert len(caplog.records) == 1


def test_one_hit_that_grows_is_no_reason_to_warn(
    postprocess: Postprocess, caplog: pytest.LogCaptureFixture
) -> None:
    """If one hit expands, there is no warning that nothing fits beside another."""
    short, long = (
        linked_document(["a", "b"], source_id="s"),
        linked_document(["a", "b " * 400], source_id="l"),
    )
    augmenter = SectionPostprocessor(docstore=docstore_of(short, long), tokenizer=str.split)
    assert len(postprocess(augmenter, [*hits(short, [0]), *hits(long, [0])])) == 3
    assert caplog.records == []


def test_a_block_given_back_is_no_reason_to_warn(
    postprocess: Postprocess, caplog: pytest.LogCaptureFixture
) -> None:
    """If a neighbor would fit alone but is dropped with its block, there is no warning."""
    nodes = linked_document(["Hit.", *(f"- item number {n}" for n in range(30))])
    assert grown(postprocess(section(nodes, expansion_tokens=12), hits(nodes, [0])), nodes) == [0]
    assert caplog.records == []


def test_no_tokens_no_growth(postprocess: Postprocess) -> None:
    """With expansion_tokens=0 hits are returned alone, without a read."""
    nodes = linked_document(BOOK)
    store = ObservedDocstore(docstore_of(nodes))
    assert len(postprocess(SectionPostprocessor(docstore=store, expansion_tokens=0), hits(nodes, [3]))) == 1
    assert store.batches == []


def test_chunks_of_real_parsers(postprocess: Postprocess) -> None:
    """With Markdown parsed into sections and split again, a hit gets its whole section, and no more."""
    text = "\n\n".join(
        f"## Section {number}\n\n" + " ".join(f"Sentence {number}.{i} says something." for i in range(30))
        for number in range(5)
    )
    parts = SentenceSplitter(chunk_size=60, chunk_overlap=0)(
        MarkdownNodeParser().get_nodes_from_documents([Document(text=text, id_="d")])
    )
    inside = [place for place, node in enumerate(parts) if "2." in node.get_content()]
    result = postprocess(section(parts, expansion_tokens=1000), hits(parts, [inside[3]]))
    assert set(grown(result, parts)) <= set(inside)
    assert len(result) > 3


def test_own_finder_and_keys(postprocess: Postprocess) -> None:
    """A function may detect headings; it is not saved."""
    nodes = linked_document(["text", "LOUD", "text", "text", "LOUD"])
    augmenter = section(nodes, heading_finder=lambda node: 1 if node.get_content().isupper() else None)
    assert grown(postprocess(augmenter, hits(nodes, [3])), nodes) == [1, 2, 3]
    assert "heading_finder" not in augmenter.to_dict()
    again = SectionPostprocessor.from_dict(augmenter.to_dict(), docstore=docstore_of(nodes))
    assert again.expansion_tokens == 256


TEXTS = st.lists(
    st.sampled_from(
        [
            "# A",
            "## B\n\nText.",
            "Text here.",
            "End.\n\n## C\n\nText.",
            "- item",
            "| a | b |",
            "第一章 总则",
            "字" * 20,
        ]
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=120, deadline=None)
@given(
    texts=TEXTS, tokens=st.integers(0, 60), mode=st.sampled_from(["any", "same_or_higher"]), data=st.data()
)
def test_growth_is_bounded(texts: list[str], tokens: int, mode: str, data: st.DataObject) -> None:
    """Every hit is returned; no side exceeds its tokens or, with "any", crosses a heading."""
    nodes = linked_document(texts)
    places = data.draw(st.lists(st.integers(0, len(nodes) - 1), min_size=1, max_size=3, unique=True))
    result = section(nodes, expansion_tokens=tokens, stop_at=mode).postprocess_nodes(hits(nodes, places))
    out = grown(result, nodes)
    assert set(places) <= set(out)
    assert out == sorted(out) or len(places) > 1
    cost = [len(get_tokenizer()(node.text)) for node in nodes]
    for place in set(out) - set(places):
        reachable = False
        for hit in places:
            between = range(min(hit, place) + 1, max(hit, place))
            spent = sum(cost[i] for i in between) + cost[place]
            crossed = (
                any(find_headings(nodes[i].text) for i in between)
                or (place > hit and _opens(nodes[place]))
                or (place < hit and _opens(nodes[hit]))
            )
            reachable |= spent <= tokens and (mode != "any" or not crossed)
        assert reachable


def _opens(node: BaseNode) -> bool:
    headings = find_headings(node.get_content())
    return bool(headings) and headings[0].start == 0

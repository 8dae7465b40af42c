"""Set PREVIOUS and NEXT where they are missing or wrong."""

from __future__ import annotations

import asyncio
import copy
import logging
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser import (
    HierarchicalNodeParser,
    MarkdownNodeParser,
    SentenceSplitter,
    get_leaf_nodes,
)
from llama_index.core.schema import (
    BaseNode,
    Document,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
from pydantic import ValidationError

from llama_index_ext_ctxaug import NeighborLinker, PrevNextNodePostprocessor, WindowExtractor
from llama_index_ext_ctxaug.testing import docstore_of, linked_document

PREVIOUS, NEXT = NodeRelationship.PREVIOUS, NodeRelationship.NEXT
TEXT = "\n\n".join(
    f"# Part {part}\n\n" + " ".join(f"Sentence {n} of part {part} says a thing." for n in range(30))
    for part in range(3)
)


def links(nodes: Sequence[BaseNode]) -> dict[str, tuple[str | None, str | None]]:
    """Return the ids that PREVIOUS and NEXT of each node name."""
    return {
        node.node_id: (
            node.relationships[PREVIOUS].node_id if PREVIOUS in node.relationships else None,
            node.relationships[NEXT].node_id if NEXT in node.relationships else None,
        )
        for node in nodes
    }


def chain(*ids: str) -> dict[str, tuple[str | None, str | None]]:
    """Return the links of nodes that follow one another."""
    padded = [None, *ids, None]
    return {id_: (padded[n], padded[n + 2]) for n, id_ in enumerate(ids)}


def bare(nodes: Sequence[BaseNode]) -> list[BaseNode]:
    """Return copies of nodes without PREVIOUS and NEXT."""
    copies = [copy.deepcopy(node) for node in nodes]
    for node in copies:
        node.relationships.pop(PREVIOUS, None)
        node.relationships.pop(NEXT, None)
    return copies


def named(*ids: str, source: str | None = "doc", **metadata: Sequence[object]) -> list[TextNode]:
    """Return unlinked nodes of one source; each keyword gives the values of one metadata key."""
    nodes = [
        TextNode(id_=id_, text=f"text {id_}", metadata={key: values[n] for key, values in metadata.items()})
        for n, id_ in enumerate(ids)
    ]
    for node in nodes:
        if source is not None:
            node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=source)
    return nodes


def link(node: BaseNode, relationship: NodeRelationship, id_: str) -> None:
    """Set a link on a node."""
    node.relationships[relationship] = RelatedNodeInfo(node_id=id_)


def kinds(linker: NeighborLinker, nodes: Sequence[BaseNode]) -> list[str]:
    """Return the kinds of problems that a linker reports."""
    return [problem.kind for problem in linker.check(nodes).problems]


def test_parsed_from_parsed() -> None:
    """Chunks split from parts of a document get the NEXT that no parser set."""
    parts = MarkdownNodeParser().get_nodes_from_documents([Document(text=TEXT, id_="doc")])
    chunks = SentenceSplitter(chunk_size=60, chunk_overlap=0)(parts)
    assert not any(NEXT in node.relationships for node in chunks)
    assert links(NeighborLinker()(chunks)) == chain(*(node.node_id for node in chunks))


@pytest.mark.parametrize("only_leaves", [False, True])
def test_hierarchy(only_leaves: bool) -> None:
    """Each level of a hierarchy becomes one chain per document, across the edges of parents."""
    documents = [Document(text=TEXT, id_="one"), Document(text=TEXT[:900], id_="two")]
    nodes = HierarchicalNodeParser.from_defaults([256, 64], chunk_overlap=0)(documents)
    leaves = get_leaf_nodes(nodes)
    linked = links(NeighborLinker()(leaves if only_leaves else nodes))
    for source in ("one", "two"):
        expected = chain(*(leaf.node_id for leaf in leaves if leaf.ref_doc_id == source))
        assert {id_: linked[id_] for id_ in expected} == expected


def test_parents_kept_apart() -> None:
    """With across_parents=False the children of each parent are a chain of their own."""
    nodes = HierarchicalNodeParser.from_defaults([256, 64], chunk_overlap=0)([Document(text=TEXT)])
    linked = links(NeighborLinker(across_parents=False)(nodes))
    parents = [node for node in nodes if node.child_nodes]
    assert len(parents) > 1
    for parent in parents:
        expected = chain(*(child.node_id for child in parent.child_nodes or ()))
        assert {id_: linked[id_] for id_ in expected} == expected


def test_hierarchy_shuffled() -> None:
    """A parent's list of children gives the order, whatever the order of the input."""
    nodes = bare(HierarchicalNodeParser.from_defaults([256, 64], chunk_overlap=0)([Document(text=TEXT)]))
    expected = links(NeighborLinker()(nodes))
    random.Random(3).shuffle(nodes)
    assert links(NeighborLinker()(nodes)) == expected


def test_offsets_give_the_order() -> None:
    """Character offsets that agree with the texts order the shuffled chunks of a source."""
    nodes = bare(SentenceSplitter(chunk_size=60, chunk_overlap=20)([Document(text=TEXT)]))
    expected = chain(*(node.node_id for node in nodes))
    random.Random(1).shuffle(nodes)
    assert links(NeighborLinker()(nodes)) == expected


def test_wrong_offsets_order_nothing() -> None:
    """Offsets that count from different parts of a document do not order its chunks."""
    nodes = named("a", "b", "c")
    for node, start in zip(nodes, (3, 0, 5), strict=True):
        node.start_char_idx, node.end_char_idx = start, start + len(node.text)
    assert links(NeighborLinker()(nodes)) == chain("a", "b", "c")


def test_one_sided() -> None:
    """A link stated by only one of two nodes is completed on the other."""
    for which in ("previous", "next"):
        nodes = linked_document(4, links=which)
        ids = [node.node_id for node in nodes]
        random.Random(2).shuffle(nodes)
        assert links(NeighborLinker()(nodes)) == chain(*ids)


def test_metadata_ids() -> None:
    """Ids in metadata link nodes, even if their source is unknown."""
    nodes = named("x", "a", "m", source=None, prev_id=["m", None, "a"], next_id=[None, "m", "x"])
    assert links(NeighborLinker()(nodes)) == chain("a", "m", "x")
    own_keys = NeighborLinker(previous_id_key="before", next_id_key="after")
    assert links(own_keys(nodes)) == links(nodes)


@pytest.mark.parametrize("key", ["chunk_id", "split_id", "page_label"])
def test_chunk_numbers(key: str) -> None:
    """A chunk number orders the chunks of a source, numerically and not as text."""
    nodes = named("a", "b", "c", **{key: ["10", "9", "11"]})
    assert links(NeighborLinker()(nodes)) == chain("b", "a", "c")


def test_the_first_key_that_numbers_all_counts() -> None:
    """A chunk id takes precedence over a split id, and that over a page, if it numbers every chunk."""
    numbers = {"page_label": [1, 2], "split_id": [2, 1], "chunk_id": [0, 1]}
    assert links(NeighborLinker()(named("a", "b", **numbers))) == chain("a", "b")
    assert links(NeighborLinker()(named("a", "b", **{**numbers, "chunk_id": [0, None]}))) == chain("b", "a")
    own = NeighborLinker(number_keys=["split_id", "chunk_id"])
    assert links(own(named("a", "b", **numbers))) == chain("b", "a")


def test_missing_number() -> None:
    """A missing number is a hole: it is reported, and not linked over."""
    nodes = named("a", "b", "c", chunk_id=[1, 2, 4])
    assert links(NeighborLinker()(nodes)) == {**chain("a", "b"), **chain("c")}
    assert NeighborLinker().check(nodes).problems == (("hole", "b", "c"),)


def test_missing_child() -> None:
    """A child that the parent lists but the input lacks is a hole."""
    nodes = HierarchicalNodeParser.from_defaults([256, 64], chunk_overlap=0)([Document(text=TEXT)])
    parent = next(node for node in nodes if len(node.child_nodes or ()) > 3)
    gone = (parent.child_nodes or [])[1].node_id
    rest = bare([node for node in nodes if node.node_id != gone])
    linked = links(NeighborLinker()(rest))
    before, after = (parent.child_nodes or [])[0].node_id, (parent.child_nodes or [])[2].node_id
    assert linked[before][1] is None
    assert linked[after][0] is None


def children_of(parent_id: str, *ids: str) -> list[TextNode]:
    """Return a parent that lists these children, and the children."""
    parent, *children = named(parent_id, *ids)
    parent.relationships[NodeRelationship.CHILD] = [RelatedNodeInfo(node_id=id_) for id_ in ids]
    for child in children:
        child.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id=parent_id)
    return [parent, *children]


@pytest.mark.parametrize("gone", ["b", "c"])
def test_missing_child_at_the_edge_of_a_parent(gone: str) -> None:
    """Without a parent's last child, or the next one's first, nothing links the two parents' children."""
    nodes = [*children_of("P", "a", "b"), *children_of("Q", "c", "d")]
    linker = NeighborLinker()
    assert links(linker(nodes)) == {**chain("P", "Q"), **chain("a", "b", "c", "d")}
    rest = [node for node in nodes if node.node_id != gone]
    halves = {**chain("a"), **chain("c", "d")} if gone == "b" else {**chain("a", "b"), **chain("d")}
    assert links(linker(rest)) == {**chain("P", "Q"), **halves}


def test_children_of_parents_that_do_not_follow_each_other() -> None:
    """If a parent is missing between two, no child of one follows a child of the other."""
    nodes = [*children_of("P", "a", "b"), *children_of("Q", "c", "d")]
    nodes[0].metadata["chunk_id"], nodes[3].metadata["chunk_id"] = 1, 3
    assert links(NeighborLinker()(nodes)) == {
        **chain("P"), **chain("Q"), **chain("a", "b"), **chain("c", "d"),
    }  # fmt: skip


def test_a_list_of_children_that_repeats_one_is_not_used() -> None:
    """Children keep their order if their parent's list names one of them twice."""
    nodes = children_of("P", "a", "b")
    nodes[0].relationships[NodeRelationship.CHILD] += [RelatedNodeInfo(node_id="a")]
    assert links(NeighborLinker()(nodes)) == {**chain("P"), **chain("a", "b")}


def test_chunks_of_different_levels_are_not_linked() -> None:
    """A chunk of the document does not follow a child of a chunk, with or without their parents."""
    nodes = named("a", "b", "c", "d")
    for node in nodes[2:]:
        node.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id="P")
    apart = {**chain("a", "b"), **chain("c", "d")}
    assert links(NeighborLinker()(nodes)) == apart
    with_document = [Document(text="text", id_="doc"), *nodes]
    linked = links(NeighborLinker(across_parents=False)(with_document))
    assert {id_: linked[id_] for id_ in apart} == apart


def test_offsets_of_edited_chunks_give_no_order() -> None:
    """Offsets that do not match the lengths of the texts order nothing."""
    nodes = named("a", "b")
    for node, start in zip(nodes, (10, 0), strict=True):
        node.start_char_idx, node.end_char_idx = start, start + 2
    assert links(NeighborLinker()(nodes)) == chain("a", "b")
    for node in nodes:
        node.set_content("ok")
    assert links(NeighborLinker()(nodes)) == chain("b", "a")


def test_equal_offsets_give_no_order() -> None:
    """Chunks with equal start offsets do not contradict a link between them."""
    nodes = named("a", "b")
    for node, text in zip(nodes, ("text", "text and more"), strict=True):
        node.set_content(text)
        node.start_char_idx, node.end_char_idx = 0, len(text)
    link(nodes[1], NEXT, "a")
    link(nodes[0], PREVIOUS, "b")
    assert links(NeighborLinker()(nodes)) == chain("b", "a")
    assert kinds(NeighborLinker(), nodes) == []


@pytest.mark.parametrize(
    "numbers", [[True, False], [2.5, 1.5], ["2a", "1a"], [None, 1], [[2], [1]], [10**400, "x"]]
)
def test_what_is_no_whole_number_numbers_nothing(numbers: list[object]) -> None:
    """Chunks keep their order if their numbers are not numeric."""
    assert links(NeighborLinker()(named("a", "b", chunk_id=numbers))) == chain("a", "b")


@pytest.mark.parametrize("numbers", [[2.0, 1.0], [" 2 ", "1"], ["١٠", "٩"], [1, 0]])
def test_whole_numbers_of_other_kinds(numbers: list[object]) -> None:
    """Whole numbers as floats or text, with white space or in other digits, order chunks."""
    assert links(NeighborLinker()(named("a", "b", chunk_id=numbers))) == chain("b", "a")


def test_repeated_number() -> None:
    """A repeated chunk number is reported and not used."""
    nodes = named("a", "b", "c", chunk_id=[1, 1, 0])
    assert links(NeighborLinker()(nodes)) == chain("a", "b", "c")
    assert kinds(NeighborLinker(), nodes) == ["repeated_number"]


def test_several_chunks_of_a_page() -> None:
    """Chunks of one page share its label, and keep their order in the input."""
    nodes = named("a", "b", "c", page_label=["2", "2", "2"])
    assert links(NeighborLinker()(nodes)) == chain("a", "b", "c")
    assert kinds(NeighborLinker(), nodes) == []


def test_pages_of_a_file() -> None:
    """With document_key the pages of a file are one document, ordered by their labels."""
    pages = {"10": ("j", "k"), "9": ("h", "i"), "2": ("b",), "1": ("a",)}
    nodes: list[TextNode] = []
    for label, ids in pages.items():
        more = {"file_path": ["f.pdf"] * len(ids), "page_label": [label] * len(ids)}
        nodes += named(*ids, source=f"page-{label}", **more)
    nodes += named("z", source="other", file_path=["g.pdf"], page_label=["11"])
    apart = {**chain("j", "k"), **chain("h", "i"), **chain("a"), **chain("b"), **chain("z")}
    assert links(NeighborLinker()(nodes)) == apart
    linker = NeighborLinker(document_key="file_path")
    assert links(linker(nodes)) == {**chain("a", "b", "h", "i", "j", "k"), **chain("z")}


def pages_of(labels: Sequence[str], **metadata: str) -> list[TextNode]:
    """Return two chunks for each page of a file."""
    return [
        node
        for label in labels
        for node in linked_document(
            2, source_id=f"{label}{metadata}", metadata={"file": "f.pdf", "page_label": label, **metadata}
        )
    ]


@pytest.mark.parametrize(
    ("labels", "total", "cut"),
    [
        (["1", "2", "3"], None, 0),
        (["0", "1"], "2", 0),
        (["3", "4"], None, 1),
        (["iii", "iv", "1", "2"], None, 1),
        (["Cover", "i", "1", "2"], None, 0),
        (["五", "六"], None, 1),
        (["1", "2"], "4", 1),
        (["2", "3"], "4", 2),
    ],
    ids=str,
)
def test_batches_that_begin_or_end_inside_a_file(
    caplog: pytest.LogCaptureFixture, labels: list[str], total: str | None, cut: int
) -> None:
    """Pages that start after the first or end before the total give one warning, for windows too."""
    nodes = pages_of(labels, **({} if total is None else {"total_pages": total}))
    linker = NeighborLinker(document_key="file")
    assert kinds(linker, nodes) == ["cut_file"] * cut
    assert kinds(NeighborLinker(), nodes) == []
    for step in (linker, WindowExtractor(linker=linker)):
        caplog.clear()
        step(nodes)
        messages = [record.getMessage() for record in caplog.records]
        assert ["inside a file of pages" in message for message in messages] == [True] * bool(cut)


def test_pages_of_two_owners() -> None:
    """Pages of one file name are linked by owner; a key that may name one is reported, and linked over."""
    first, second = pages_of(["1", "2"], tenant="a"), pages_of(["3", "4"], tenant="b")
    linker = NeighborLinker(document_key="file")
    assert links(linker([*first, *second])) == links(linker(first)) | links(linker(second))
    first, second = pages_of(["1", "2"], mandant="a"), pages_of(["3", "4"], mandant="b")
    assert kinds(linker, [*first, *second]) == ["differing_page"]


def test_other_document() -> None:
    """A link into another document is removed and reported."""
    nodes = [*named("a", "b"), *named("c", source="other")]
    link(nodes[1], NEXT, "c")
    link(nodes[2], PREVIOUS, "b")
    assert links(NeighborLinker()(nodes)) == {**chain("a", "b"), **chain("c")}
    assert kinds(NeighborLinker(), nodes) == ["other_document", "other_document"]
    assert NeighborLinker().check(nodes)[:2] == (2, 2)


def test_link_to_itself() -> None:
    """A link of a node to itself is replaced by the right one."""
    nodes = named("a", "b")
    link(nodes[0], NEXT, "a")
    assert links(NeighborLinker()(nodes)) == chain("a", "b")
    assert kinds(NeighborLinker(), nodes) == ["self"]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0)])
def test_contradiction(order: tuple[int, ...]) -> None:
    """A link that both nodes state wins over a rival stated by one, which is reported."""
    nodes = [*linked_document(3), *named("d")]
    link(nodes[3], PREVIOUS, nodes[0].node_id)
    first, second, third = (node.node_id for node in nodes[:3])
    shuffled = [nodes[n] for n in order]
    linked = links(NeighborLinker()(shuffled))
    assert linked[second] == (first, third)
    assert linked["d"][0] != first
    assert ("contradiction", "d", first) in NeighborLinker().check(shuffled).problems


def test_order_decides_between_rivals() -> None:
    """Of two conflicting links, the one that the order of the chunks confirms is kept."""
    nodes = named("a", "c", "b")
    link(nodes[0], NEXT, "b")
    link(nodes[1], NEXT, "b")
    assert links(NeighborLinker()(nodes)) == chain("a", "c", "b")
    assert NeighborLinker().check(nodes).problems == (("contradiction", "a", "b"),)


def test_what_is_settled_settles_more() -> None:
    """Of two rivals, one is kept as soon as weaker evidence places the other."""
    nodes = named("a", "c", "b", "d", source=None)
    link(nodes[0], NEXT, "b")
    link(nodes[1], NEXT, "b")
    nodes[1].metadata["next_id"] = "d"
    assert links(NeighborLinker()(nodes)) == {**chain("a", "b"), **chain("c", "d")}
    assert NeighborLinker().check(nodes).problems == (("contradiction", "c", "b"),)


def test_of_a_repeated_node_the_first_counts() -> None:
    """If an id is in the input twice, all of its nodes get the links of the first."""
    nodes = [*named("a", source=None), *named("a", "b", source=None)]
    link(nodes[0], NEXT, "b")
    out = NeighborLinker()(nodes)
    assert len(out) == 3
    assert [links([node])[node.node_id] for node in out] == [(None, "b"), (None, "b"), ("a", None)]


def test_doubt_is_kept() -> None:
    """Conflicting links stay as they are if nothing decides between them, and are reported."""
    nodes = named("a", "b", "c", source=None)
    link(nodes[0], NEXT, "c")
    link(nodes[1], NEXT, "c")
    linker = NeighborLinker()
    assert linker(nodes) == nodes
    assert kinds(linker, nodes) == ["doubt", "doubt"]


def test_ring() -> None:
    """A ring of links is opened where it leads backward."""
    nodes = linked_document(3)
    link(nodes[2], NEXT, nodes[0].node_id)
    link(nodes[0], PREVIOUS, nodes[2].node_id)
    assert links(NeighborLinker()(nodes)) == chain(*(node.node_id for node in nodes))
    assert kinds(NeighborLinker(), nodes) == ["ring", "ring"]


def test_node_that_was_not_handed_in() -> None:
    """A link to a node outside the input is kept, or replaced if documents are complete."""
    nodes = named("a", "b")
    link(nodes[0], NEXT, "gone")
    assert links(NeighborLinker()(nodes)) == {"a": (None, "gone"), "b": (None, None)}
    assert links(NeighborLinker(complete_documents=True)(nodes)) == chain("a", "b")
    assert kinds(NeighborLinker(), nodes) == ["not_at_hand"]
    nodes = named("a", "b")
    link(nodes[1], PREVIOUS, "gone")
    assert links(NeighborLinker()(nodes)) == {"a": (None, None), "b": ("gone", None)}
    assert links(NeighborLinker(complete_documents=True)(nodes)) == chain("a", "b")


def test_link_against_offsets() -> None:
    """A link that contradicts trustworthy character offsets is kept and reported."""
    nodes = linked_document(3, offsets=True, links="none")
    link(nodes[2], NEXT, nodes[1].node_id)
    link(nodes[1], PREVIOUS, nodes[2].node_id)
    linked = links(NeighborLinker()(nodes))
    assert linked[nodes[2].node_id][1] == nodes[1].node_id
    assert "against_offsets" in kinds(NeighborLinker(), nodes)


def test_offsets_in_different_parents_are_not_compared() -> None:
    """A link from one parent's last chunk to another's first does not contradict their offsets."""
    nodes = named("a", "b", "c", "d")
    for number, node in enumerate(nodes):
        node.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id="PQ"[number // 2])
        node.start_char_idx, node.end_char_idx = number % 2 * 6, number % 2 * 6 + 6
    link(nodes[3], NEXT, "a")
    link(nodes[0], PREVIOUS, "d")
    assert links(NeighborLinker()(nodes)) == chain("c", "d", "a", "b")
    assert kinds(NeighborLinker(), nodes) == []


def test_blank_ids_in_metadata_name_nothing() -> None:
    """An empty id, as at the ends of a document, is neither a link nor a problem."""
    nodes = named("a", "b", source=None, prev_id=["", "a"], next_id=["b", ""])
    assert links(NeighborLinker()(nodes)) == chain("a", "b")
    assert kinds(NeighborLinker(), nodes) == []


def test_metadata_that_links_contradict() -> None:
    """An id in metadata that contradicts the nodes' own links is reported and not used."""
    nodes = [*linked_document(2), *named("c")]
    first = nodes[0].node_id
    nodes[2].metadata["prev_id"] = first
    assert links(NeighborLinker()(nodes))["c"][0] != first
    assert NeighborLinker().check(nodes).problems == (("contradiction", "c", first),)


def test_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """All problems of a call give one warning, with their kinds and the first one; none is silent."""
    nodes = [*named("a", "b", chunk_id=[1, 3]), *named("c", "d", source="other", chunk_id=[2, 2])]
    with caplog.at_level(logging.WARNING):
        NeighborLinker()(nodes)
    (record,) = caplog.records
    assert "hole: 1" in record.getMessage()
    assert "repeated_number: 1" in record.getMessage()
    assert record.getMessage().endswith("the first is ('hole', 'a', 'b')")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        NeighborLinker()(named("a", "b"))
    assert not caplog.records


def test_right_links_stay() -> None:
    """Nodes with correct links are returned as the same objects."""
    nodes = SentenceSplitter(chunk_size=60, chunk_overlap=0)([Document(text=TEXT)])
    assert all(out is node for out, node in zip(NeighborLinker()(nodes), nodes, strict=True))
    assert NeighborLinker().check(nodes) == (0, 0, ())


def test_no_metadata_in_links() -> None:
    """A new link holds the neighbor's id and type, without a copy of its metadata."""
    nodes = named("a", "b", window=["long text", "long text"])
    info = NeighborLinker()(nodes)[0].relationships[NEXT]
    assert (info.node_id, info.node_type, info.metadata) == ("b", nodes[1].get_type(), {})


@st.composite
def tangles(draw: st.DrawFn) -> list[TextNode]:
    """Nodes of a few documents, with links, numbers, metadata ids and offsets that may all be wrong."""
    size = draw(st.integers(0, 7))
    ids = [f"n{number}" for number in draw(st.permutations(range(size)))]
    some_id = st.none() | st.sampled_from([*ids, "gone"])
    nodes = []
    for id_ in ids:
        node = TextNode(id_=id_, text="x" * draw(st.integers(0, 3)))
        for relationship in (PREVIOUS, NEXT, NodeRelationship.PARENT):
            if other := draw(some_id):
                link(node, relationship, other)
        if source := draw(st.sampled_from([None, "d1", "d1", "d2"])):
            link(node, NodeRelationship.SOURCE, source)
        for key, values in (
            ("chunk_id", st.none() | st.integers(0, 4)),
            ("prev_id", some_id),
            ("next_id", some_id),
            ("file", st.sampled_from([None, "f", "g"])),
        ):
            if (value := draw(values)) is not None:
                node.metadata[key] = value
        if draw(st.booleans()):
            node.start_char_idx = draw(st.integers(0, 6))
            node.end_char_idx = node.start_char_idx + len(node.text)
        nodes.append(node)
    for node in nodes:
        children = draw(st.lists(st.sampled_from([*ids, "gone"]), max_size=4))
        if children:
            node.relationships[NodeRelationship.CHILD] = [RelatedNodeInfo(node_id=id_) for id_ in children]
    return nodes


@settings(max_examples=100, deadline=None)
@given(
    tangles(),
    st.builds(
        NeighborLinker,
        document_key=st.sampled_from([None, "file"]),
        across_parents=st.booleans(),
        complete_documents=st.booleans(),
    ),
)
def test_promises(nodes: list[TextNode], linker: NeighborLinker) -> None:
    """Links agree both ways, stay in a document and make no ring, and a second run changes nothing."""
    before = copy.deepcopy(nodes)
    out = list(linker(nodes))
    assert nodes == before
    assert [node.node_id for node in out] == [node.node_id for node in nodes]
    assert all(second is first for first, second in zip(out, linker(out), strict=True))
    resolved = linker.neighbor_links(nodes)
    chains = resolved.chains
    by_id = {node.node_id: node for node in out}
    for first, second in chains.followers.items():
        assert links(out)[first][1] == second
        assert links(out)[second][0] == first
        document = resolved.order.document
        assert document(by_id[first]) == document(by_id[second])
    reached: set[str] = set()
    for start in by_id.keys() - chains.preceding.keys():
        current: str | None = start
        while current is not None:
            reached.add(current)
            current = chains.followers.get(current)
    assert reached == by_id.keys()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.data())
def test_any_loss_is_repaired(count: int, data: st.DataObject) -> None:
    """A chain that lost any of its links, passed in order, is whole again."""
    nodes = linked_document(count)
    for node in nodes:
        for relationship in (PREVIOUS, NEXT):
            if data.draw(st.booleans()):
                node.relationships.pop(relationship, None)
    assert links(NeighborLinker()(nodes)) == chain(*(node.node_id for node in nodes))


async def test_in_a_pipeline() -> None:
    """In an IngestionPipeline, sync and async, the output nodes are linked."""
    pipeline = IngestionPipeline(
        transformations=[
            MarkdownNodeParser(),
            SentenceSplitter(chunk_size=60, chunk_overlap=0),
            NeighborLinker(),
        ]
    )
    documents = [Document(text=TEXT, id_="doc")]
    for nodes in (
        await pipeline.arun(documents=documents),
        await asyncio.to_thread(pipeline.run, None, documents),
    ):
        assert links(nodes) == chain(*(node.node_id for node in nodes))


async def test_async_call() -> None:
    """The async call gives the same result as the sync one."""
    nodes = named("a", "b")
    linker = NeighborLinker()
    assert await linker.acall(nodes) == linker(nodes)


def test_serialization() -> None:
    """A saved linker is restored equal, and misspelled parameters are rejected."""
    linker = NeighborLinker(document_key="file_path", number_keys=["n"], across_parents=False)
    assert NeighborLinker.from_json(linker.to_json()) == linker
    assert linker.class_name() == "NeighborLinker"
    with pytest.raises(ValidationError):
        NeighborLinker(document_keys="file_path")


def test_expansion_after_linking() -> None:
    """Neighbors that no link named are found after linking, by a postprocessor that repairs nothing."""
    nodes = HierarchicalNodeParser.from_defaults([256, 64], chunk_overlap=0)([Document(text=TEXT)])
    linked = [node for node in NeighborLinker()(nodes) if not node.child_nodes]
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(linked), repair_links=False)
    for first, second in pairwise(linked):
        out = augmenter.postprocess_nodes([NodeWithScore(node=first)])
        assert [hit.node.node_id for hit in out] == [first.node_id, second.node_id]

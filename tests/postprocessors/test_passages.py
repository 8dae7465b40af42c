"""`output="passages"`: one node for each run of chunks."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pydoc_data.topics import topics
from typing import Any
from unittest.mock import ANY

import pytest
from helpers import Postprocess, texts
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core import Document
from llama_index.core.node_parser import HierarchicalNodeParser, SentenceSplitter, get_leaf_nodes
from llama_index.core.schema import (
    ImageNode,
    IndexNode,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
from text_strategies import Parsed, parsed_documents

from llama_index_ext_ctxaug import PROVENANCE_KEY, PrevNextNodePostprocessor, read_provenance
from llama_index_ext_ctxaug.testing import ObservedDocstore, docstore_of, hits, linked_document

TEXTS = [
    "The keeper lit the lamp. ",
    "Fog came in. ",
    "No ship was seen. ",
    "He wrote it down. ",
    "Then he slept.",
]


def passages_of(docstore: Any, num_nodes: int = 1, **parameters: Any) -> PrevNextNodePostprocessor:
    """An augmenter with neighbors on both sides and passages as output."""
    return PrevNextNodePostprocessor(
        docstore=docstore, num_nodes=num_nodes, mode="both", output="passages", **parameters
    )


def test_a_hit_and_its_neighbors_are_one_node(postprocess: Postprocess):
    """Touching chunks become one text that names its source, its place and the chunks outside."""
    nodes = linked_document(TEXTS, offsets=True, metadata={"title": "Log"})
    (passage,) = postprocess(passages_of(docstore_of(nodes)), hits(nodes, [2]))
    node = passage.node
    assert texts([passage]) == ["".join(TEXTS[1:4])]
    assert passage.score == 0.9
    assert node.ref_doc_id == "doc"
    assert node.prev_node.node_id == nodes[0].node_id
    assert node.next_node.node_id == nodes[4].node_id
    assert (node.start_char_idx, node.end_char_idx) == (25, 25 + len(node.text))
    assert node.get_content(metadata_mode=MetadataMode.LLM) == f"title: Log\n\n{node.text.strip()}"


def test_provenance_covers_every_character(postprocess: Postprocess):
    """Pieces name node, role, hits, hops and place in the document, and why expansion ended."""
    nodes = linked_document(TEXTS, offsets=True)
    (passage,) = postprocess(passages_of(docstore_of(nodes)), hits(nodes, [3]))
    provenance = read_provenance(passage.node)
    assert provenance.role == "passage"
    assert provenance.hits == (nodes[3].node_id,)
    assert not provenance.exact  # without the document, the offsets are not verified
    assert (provenance.stopped_previous, provenance.stopped_next) == ("count", "count")
    assert [piece.role for piece in provenance.pieces] == ["neighbor", "hit", "neighbor"]
    assert [piece.hops for piece in provenance.pieces] == [1, 0, 1]
    document = "".join(TEXTS)
    for piece, node in zip(provenance.pieces, nodes[2:], strict=True):
        assert piece.node_id == node.node_id
        assert passage.node.text[piece.start : piece.end] == document[piece.source_start : piece.source_end]
    cut = provenance.slice(5, 30)
    assert [(piece.start, piece.end) for piece in cut.pieces] == [(0, 13), (13, 25)]
    assert cut.pieces[0].source_start == provenance.pieces[0].source_start + 5


def test_a_hit_to_which_nothing_is_added_is_the_input_object(postprocess: Postprocess):
    """A lone hit stays the same object, and touching hits become a passage even without neighbors."""
    nodes = linked_document(TEXTS)
    found = hits(nodes, [0, 2, 3])
    result = postprocess(passages_of(docstore_of(nodes), num_nodes=0), found)
    assert result[0] is found[0]
    assert texts(result[1:]) == [TEXTS[2] + TEXTS[3]]


def test_images_and_index_nodes_stay_whole(postprocess: Postprocess):
    """Nodes that are more than text split a passage and are returned separately."""
    nodes = linked_document(TEXTS)
    image = ImageNode(
        id_=nodes[2].node_id, text="a photo", image="aGk=", relationships=nodes[2].relationships
    )
    found = hits([*nodes[:2], image, *nodes[3:]], [2])
    result = postprocess(passages_of(docstore_of(nodes), num_nodes=2), found)
    assert texts(result) == [TEXTS[0] + TEXTS[1], "a photo", TEXTS[3] + TEXTS[4]]
    assert result[1] is found[0]
    index_node = IndexNode(id_=nodes[2].node_id, text="see there", index_id="x")
    (lone,) = postprocess(passages_of(docstore_of(nodes), num_nodes=0), hits([index_node], [0]))
    assert lone.node is index_node


def test_metadata_is_that_of_the_best_hit(postprocess: Postprocess):
    """A passage has the metadata of its best hit, and hides the same keys; pieces have their chunks' own."""
    nodes = linked_document(TEXTS, metadata={"file": "log.txt", "secret": "x"})
    for number, node in enumerate(nodes):
        node.metadata["page"] = number
        node.metadata_template = "{key} = {value}"
    nodes[1].excluded_llm_metadata_keys = ["secret", "page"]
    (passage,) = postprocess(passages_of(docstore_of(nodes)), hits(nodes, [1, 2], [0.1, 0.2]))
    assert passage.node.metadata == {**nodes[2].metadata, PROVENANCE_KEY: ANY}
    assert passage.node.get_metadata_str(mode=MetadataMode.LLM) == "file = log.txt\npage = 2"
    assert passage.node.get_metadata_str(mode=MetadataMode.EMBED) == "file = log.txt\nsecret = x\npage = 2"
    assert [piece.metadata for piece in read_provenance(passage.node).pieces] == [
        node.metadata for node in nodes[:4]
    ]


@pytest.mark.parametrize(
    ("rule", "score"), [("best", 0.8), ("mean", 0.5), ("reciprocal_rank_sum", 1 + 1 / 2 + 1 / 3)]
)
def test_a_passage_is_scored_by_its_hits(postprocess: Postprocess, rule: str, score: float):
    """The best hit, the mean of the scored ones, or the sum of reciprocal ranks."""
    nodes = linked_document(TEXTS)
    found = hits(nodes, [1, 3, 2], [0.2, None, 0.8])
    (passage,) = postprocess(passages_of(docstore_of(nodes), passage_score=rule), found)
    assert passage.score == pytest.approx(score)


def test_hits_can_be_marked(postprocess: Postprocess):
    """Marks surround the text of hits, adjacent hits share a pair, and pieces include the marks."""
    nodes = linked_document(TEXTS, offsets=True)
    augmenter = passages_of(docstore_of(nodes), mark_hits=("<hit>", "</hit>"))
    (passage,) = postprocess(augmenter, hits(nodes, [1, 2]))
    assert passage.node.text == f"{TEXTS[0]}<hit>{TEXTS[1]}{TEXTS[2]}</hit>{TEXTS[3]}"
    assert passage.node.start_char_idx is None
    pieces = read_provenance(passage.node).pieces
    assert [passage.node.text[piece.start : piece.end] for piece in pieces] == TEXTS[:4]


def test_all_runs_of_a_document_can_be_one_passage(postprocess: Postprocess):
    """With passage_scope="document" runs are in document order, with holes marked between them."""
    nodes = linked_document(8, offsets=True)
    augmenter = passages_of(docstore_of(nodes), 0, passage_scope="document", hole_separator="\n...\n")
    (passage,) = postprocess(augmenter, hits(nodes, [6, 7, 1]))
    assert passage.node.text == f"{nodes[1].text}\n...\n{nodes[6].text}{nodes[7].text}"
    assert not read_provenance(passage.node).exact


def test_the_source_document_shows_what_was_stripped(postprocess: Postprocess):
    """White space between chunks comes from the source document, read once, if the docstore holds it."""
    text = "First sentence here.\n\n\tSecond sentence there.  Third one."
    document = Document(text=text, id_="doc")
    nodes = SentenceSplitter(chunk_size=6, chunk_overlap=0).get_nodes_from_documents([document])
    store = ObservedDocstore(docstore_of(nodes, [document]))
    (passage,) = postprocess(passages_of(store, len(nodes)), hits(nodes, [0]))
    assert passage.node.text == text
    assert (passage.node.start_char_idx, passage.node.end_char_idx) == (0, len(text))
    assert store.node_reads.count("doc") == 1
    (guessed,) = postprocess(passages_of(store, len(nodes), read_source=False), hits(nodes, [0]))
    assert guessed.node.text.split() == text.split()
    assert len(guessed.node.text) == len(text)
    assert guessed.node.start_char_idx is None
    assert not read_provenance(guessed.node).exact


def test_leaves_of_a_hierarchy_have_their_place_in_the_document(postprocess: Postprocess):
    """Offsets that count in a parent give places in the document if the docstore holds the parents."""
    text = topics["assignment"]
    document = Document(text=text, id_="doc")
    parser = HierarchicalNodeParser.from_defaults(chunk_sizes=[512, 128], chunk_overlap=20)
    nodes = parser.get_nodes_from_documents([document])
    leaves = [n for n in get_leaf_nodes(nodes) if n.parent_node]
    store = docstore_of(nodes, [document])
    for number in range(len(leaves)):
        (passage,) = postprocess(passages_of(store, across_parents=False), hits(leaves, [number]))
        node = passage.node
        assert node.start_char_idx is not None
        assert node.text == text[node.start_char_idx : node.end_char_idx]


def test_all_topics_of_pydoc_are_slices_of_their_source():
    """Every chunk of the 79 topics gives a slice: 128 tokens, 25 overlapping, two neighbors each side."""
    splitter = SentenceSplitter(chunk_size=128, chunk_overlap=25)
    for name, text in topics.items():
        document = Document(text=text, id_=name)
        nodes = splitter.get_nodes_from_documents([document])
        augmenter = passages_of(docstore_of(nodes, [document]), 2)
        for number in range(len(nodes)):
            (passage,) = augmenter.postprocess_nodes(hits(nodes, [number]))
            first, last = nodes[max(0, number - 2)], nodes[min(len(nodes) - 1, number + 2)]
            assert texts([passage]) == [text[first.start_char_idx : last.end_char_idx]]


def test_equal_input_gives_equal_passages_in_another_process():
    """Passage ids and texts do not depend on the process."""
    code = (
        "from llama_index_ext_ctxaug import PrevNextNodePostprocessor as P;"
        "from llama_index_ext_ctxaug.testing import *;"
        "n = linked_document(9, metadata={'a': 1, 'b': 2});"
        "p = P(docstore=docstore_of(n), mode='both', output='passages');"
        "result = '\\n'.join(h.node.to_json() for h in p.postprocess_nodes(hits(n, [7, 1, 2])))"
    )
    here: dict[str, Any] = {}
    exec(code, here)
    there = subprocess.run(
        [sys.executable, "-c", code + "; print(result)"],
        capture_output=True,
        check=True,
        text=True,
        env={"PYTHONHASHSEED": "3", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert there.stdout.strip() == here["result"]


@given(parsed=parsed_documents(), known=st.booleans(), data=st.data())
def test_passages_keep_every_promise(parsed: Parsed, known: bool, data: st.DataObject):
    """Hits are whole, places true, pieces equal their source, and augmenting again changes nothing."""
    text, nodes = parsed
    places = data.draw(st.lists(st.integers(0, len(nodes) - 1), min_size=1, max_size=4))
    scores = data.draw(st.lists(st.none() | st.floats(-1, 1), min_size=len(places), max_size=len(places)))
    found = hits(nodes, places, scores)
    before = [hit.model_dump_json() for hit in found]
    store = docstore_of(nodes, [Document(text=text, id_="doc")] if known else [])
    augmenter = passages_of(store, data.draw(st.integers(0, 3)))
    result = augmenter.postprocess_nodes(found)
    assert [hit.model_dump_json() for hit in found] == before
    for hit in found:
        assert sum(hit.node.text in whole for whole in texts(result)) >= 1
    for passage in result:
        node, provenance = passage.node, read_provenance(passage.node)
        if node.start_char_idx is not None:
            assert node.text == text[node.start_char_idx : node.end_char_idx]
        place = 0
        for piece in provenance.pieces if provenance else ():
            assert place <= piece.start < piece.end
            place = piece.end
            if piece.source_start is not None:
                assert node.text[piece.start : piece.end] == text[piece.source_start : piece.source_end]
    again = augmenter.postprocess_nodes(result)
    assert len(again) == len(result)
    assert all(one is other for one, other in zip(again, result, strict=True))
    separate = PrevNextNodePostprocessor(docstore=store, num_nodes=1, mode="both")
    once = separate.postprocess_nodes(found)
    assert all(a is b for a, b in zip(separate.postprocess_nodes(once), once, strict=True))


def test_a_failing_store_gives_the_hits(postprocess: Postprocess, caplog: pytest.LogCaptureFixture):
    """With on_store_error="return_hits" a failure while reading the source gives the hits too."""
    text = "First sentence here.\n\n\tSecond sentence there.  Third one."
    nodes = SentenceSplitter(chunk_size=6, chunk_overlap=0).get_nodes_from_documents([Document(text=text)])
    store = ObservedDocstore(docstore_of(nodes), fail_after=1)
    found = hits(nodes, [1])
    with caplog.at_level(logging.ERROR):
        assert postprocess(passages_of(store, on_store_error="return_hits"), found) == found
    store.reset()
    with pytest.raises(ConnectionError):
        postprocess(passages_of(store), found)


def test_a_hit_that_lost_its_links_still_names_its_source(postprocess: Postprocess):
    """If a vector store dropped the links, source and neighbors come from the stored copy."""
    nodes = linked_document(TEXTS, offsets=True)
    bare = nodes[2].model_copy(update={"relationships": {}, "start_char_idx": None, "end_char_idx": None})
    (passage,) = postprocess(passages_of(docstore_of(nodes)), [NodeWithScore(node=bare, score=1.0)])
    assert passage.node.text == "".join(TEXTS[1:4])
    assert passage.node.relationships[NodeRelationship.SOURCE] == RelatedNodeInfo(node_id="doc")
    assert passage.node.start_char_idx == len(TEXTS[0])


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize(
    "pages",
    [
        ["This page is left blank.", "This page is left blank.", "The end of it."],
        ["Chapter one. Confidential.", "Confidential. Chapter two.", "Chapter three."],
    ],
)
def test_pages_share_no_text(postprocess: Postprocess, pages: list[str], offsets: bool):
    """Pages are separate documents: equal pages, headers and footers all stay, each on a new line."""
    documents = [
        linked_document(
            [text],
            source_id=f"page {number}",
            offsets=offsets,
            metadata={"file_path": "a.pdf", "page_label": str(number)},
        )
        for number, text in enumerate(pages)
    ]
    augmenter = passages_of(docstore_of(*documents), num_nodes=2, document_key="file_path")
    (passage,) = postprocess(augmenter, hits(documents[1], [0]))
    assert texts([passage]) == ["\n".join(pages)]
    provenance = read_provenance(passage.node)
    assert [passage.node.text[piece.start : piece.end] for piece in provenance.pieces] == pages
    assert not provenance.exact


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("order", [[2, 0, 1], [1, 2, 0]])
def test_runs_of_a_file_are_ordered_by_page(postprocess: Postprocess, order: list[int], offsets: bool):
    """With one passage per file, pages are ordered by label, and the runs of a page by place."""
    labels = ["1", "2", "10"]
    documents = [
        linked_document(
            8, source_id=label, offsets=offsets, metadata={"file_path": "a.pdf", "page_label": label}
        )
        for label in labels
    ]
    augmenter = passages_of(
        docstore_of(*documents), num_nodes=0, document_key="file_path", passage_scope="document"
    )
    found = [hit for page in order for hit in hits(documents[page], [6 - 2 * page, 2])]
    (passage,) = postprocess(augmenter, found)
    pieces = read_provenance(passage.node).pieces
    in_order = [piece.node_id for piece in pieces]
    if offsets:
        places = [(page, place) for page in range(3) for place in sorted({6 - 2 * page, 2})]
        assert in_order == [documents[page][place].node_id for page, place in places]
    else:
        assert [id_.split("-")[0] for id_ in in_order] == ["1", "1", "2", "2", "10"]


def tree_of(leaves: list[TextNode], parent_id: str, place: int, above: str | None) -> TextNode:
    """A parent of leaves with offsets that count in it, its own place, and what is above it."""
    parent = TextNode(
        id_=parent_id,
        text="".join(leaf.text for leaf in leaves),
        start_char_idx=place,
        end_char_idx=place + sum(len(leaf.text) for leaf in leaves),
    )
    parent.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="doc")
    if above is not None:
        parent.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id=above)
    for leaf in leaves:
        leaf.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id=parent_id)
    return parent


def test_the_document_may_be_named_as_the_parent(postprocess: Postprocess):
    """If the document itself is the parent, of chunks or of their parents, places count in it."""
    nodes = linked_document(TEXTS, offsets=True)
    for node in nodes:
        node.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id="doc")
    (passage,) = postprocess(passages_of(docstore_of(nodes)), hits(nodes, [2]))
    assert passage.node.start_char_idx == len(TEXTS[0])
    leaves = linked_document(TEXTS, offsets=True)
    parent = tree_of(leaves, "P", 100, "doc")
    (passage,) = postprocess(passages_of(docstore_of(leaves, [parent]), 4), hits(leaves, [0]))
    assert passage.node.text == "".join(TEXTS)
    assert passage.node.start_char_idx == 100


def test_parents_in_a_ring_give_no_place(postprocess: Postprocess):
    """If a passage's parents name each other, it claims no place in the document."""
    leaves = linked_document(TEXTS, offsets=True)
    parents = [tree_of(leaves, "P", 10, "Q"), tree_of(leaves, "Q", 20, "P")]
    found = [*hits(leaves, [2, 3]), *hits(parents, [0, 1])]
    passage = postprocess(passages_of(docstore_of(leaves, parents)), found)[0]
    assert passage.node.text == "".join(TEXTS[1:])
    assert passage.node.start_char_idx is None
    assert [piece.source_start for piece in read_provenance(passage.node).pieces] == [None] * 4


def test_a_parent_that_is_read_for_white_space_gives_a_place(postprocess: Postprocess):
    """A parent that is read for the text between chunks also gives their place in the document."""
    leaves = linked_document(TEXTS, offsets=True)
    parent = tree_of(leaves, "P", 100, None)
    for leaf in leaves:
        leaf.end_char_idx -= len(leaf.text) - len(leaf.text.strip())
        leaf.set_content(leaf.text.strip())
    store = ObservedDocstore(docstore_of(leaves, [parent]))
    (passage,) = postprocess(passages_of(store), hits(leaves, [2]))
    assert store.node_reads.count("P") == 1
    assert passage.node.text == "".join(TEXTS[1:4]).strip()
    assert passage.node.start_char_idx == 100 + len(TEXTS[0])


def test_offsets_of_a_stored_copy_are_those_of_its_own_text(postprocess: Postprocess):
    """A hit without offsets that differs from its stored copy has no place."""
    nodes = linked_document(TEXTS, offsets=True)
    edited = TextNode(id_=nodes[2].node_id, text=TEXTS[2].upper())
    (passage,) = postprocess(passages_of(docstore_of(nodes)), hits([edited], [0]))
    assert passage.node.text == TEXTS[1] + TEXTS[2].upper() + TEXTS[3]
    assert passage.node.start_char_idx is None
    assert not read_provenance(passage.node).exact


def test_a_passage_is_not_its_own_neighbor(postprocess: Postprocess):
    """If links form a ring, the passage keeps no link to a chunk inside it."""
    nodes = linked_document(TEXTS[:3])
    nodes[0].relationships[NodeRelationship.PREVIOUS] = RelatedNodeInfo(node_id=nodes[2].node_id)
    nodes[2].relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id=nodes[0].node_id)
    (passage,) = postprocess(passages_of(docstore_of(nodes), 2), hits(nodes, [1]))
    assert len(read_provenance(passage.node).pieces) == 3
    assert set(passage.node.relationships) == {NodeRelationship.SOURCE}


@pytest.mark.parametrize("places", [[6, 2], [2, 6]])
def test_runs_with_incomparable_places_are_ordered_by_rank(postprocess: Postprocess, places: list[int]):
    """A run with offsets and one without keep the order of their hits in their document's passage."""
    nodes = linked_document(8, offsets=True)
    nodes[6].start_char_idx = nodes[6].end_char_idx = None
    augmenter = passages_of(docstore_of(nodes), 0, passage_scope="document", hole_separator="|")
    (passage,) = postprocess(augmenter, hits(nodes, places))
    assert passage.node.text == "|".join(nodes[place].text for place in places)


def test_metadata_that_some_chunks_lack(postprocess: Postprocess):
    """A passage has no metadata that its best hit lacks, and a piece none that its chunk lacks."""
    nodes = linked_document(TEXTS, metadata={"file": "log.txt", "note": "x"})
    del nodes[2].metadata["note"]
    for hit, keys in ((1, {"file", "note"}), (2, {"file"})):
        (passage,) = postprocess(passages_of(docstore_of(nodes)), hits(nodes, [hit]))
        assert set(passage.node.metadata) == {*keys, PROVENANCE_KEY}
        pieces = {piece.node_id: piece.metadata for piece in read_provenance(passage.node).pieces}
        assert pieces[nodes[2].node_id] == {"file": "log.txt"}
        assert pieces[nodes[1].node_id] == {"file": "log.txt", "note": "x"}


def test_a_passage_is_below_the_parent_of_all_its_chunks(postprocess: Postprocess):
    """Chunks of one parent give a passage with that parent; chunks of two give one without."""
    nodes = linked_document(TEXTS)
    for number, node in enumerate(nodes):
        node.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id=f"P{number // 3}")
    parents = []
    for place in (1, 2, 4):
        (passage,) = postprocess(passages_of(docstore_of(nodes)), hits(nodes, [place]))
        parents.append(passage.node.parent_node and passage.node.parent_node.node_id)
    assert parents == ["P0", None, "P1"]


def test_templates_are_those_of_the_best_hit(postprocess: Postprocess):
    """A passage uses the templates of its best hit, whatever those of its neighbors."""
    nodes = linked_document(TEXTS)
    for node in nodes:
        node.metadata_template, node.text_template = "{key} is {value}", "{metadata_str}: {content}"
    nodes[3].text_template = "{content}"
    (passage,) = postprocess(passages_of(docstore_of(nodes)), hits(nodes, [2]))
    assert passage.node.metadata_template == "{key} is {value}"
    assert passage.node.text_template == "{metadata_str}: {content}"


def test_marks_surround_text(postprocess: Postprocess):
    """A hit without text gets no marks, and one inside another gets none of its own."""
    nodes = linked_document(["", "One two three four.", "three four.", "Five."])
    augmenter = passages_of(docstore_of(nodes), mark_hits=("<", ">"))
    (passage,) = postprocess(augmenter, hits(nodes, [0]))
    assert passage.node.text == "One two three four."
    nodes = linked_document(["One two three four five.", "two three four", "Six."])
    document = Document(text="One two three four five. Six.", id_="doc")
    nodes[1].start_char_idx, nodes[1].end_char_idx = 4, 18
    augmenter = passages_of(docstore_of(nodes, [document]), mark_hits=("<", ">"))
    (passage,) = postprocess(augmenter, hits(nodes, [0, 1]))
    assert passage.node.text == "<One two three four five.> Six."


@pytest.mark.parametrize("field", ["excluded_llm_metadata_keys", "excluded_embed_metadata_keys"])
def test_what_any_chunk_hides_is_hidden(postprocess: Postprocess, field: str):
    """If one chunk hides a shared metadata key from a model, so does the passage."""
    nodes = linked_document(TEXTS, metadata={"secret": "x"})
    setattr(nodes[3], field, ["secret"])
    (passage,) = postprocess(passages_of(docstore_of(nodes)), hits(nodes, [2]))
    assert getattr(passage.node, field) == ["secret", PROVENANCE_KEY]


def test_a_source_that_one_chunk_lost_is_that_of_the_others(postprocess: Postprocess):
    """The passage takes its document, with its hash, from the first chunk that knows it."""
    nodes = linked_document(TEXTS)
    source = RelatedNodeInfo(node_id="doc", hash="h")
    for node in nodes:
        node.relationships[NodeRelationship.SOURCE] = source
    store = docstore_of(nodes)
    del nodes[0].relationships[NodeRelationship.SOURCE]
    (passage,) = postprocess(passages_of(store), hits(nodes, [0]))
    assert passage.node.relationships[NodeRelationship.SOURCE] == source


def chunks_at(text: str, spans: list[tuple[int, int]], *, offsets: bool) -> list[TextNode]:
    """Return linked chunks of a text, with or without its offsets."""
    nodes = linked_document([text[start:end] for start, end in spans])
    for node, (start, end) in zip(nodes, spans, strict=True):
        if offsets:
            node.start_char_idx, node.end_char_idx = start, end
    return nodes


@pytest.mark.parametrize(("offsets", "stored"), [(True, False), (True, True), (False, True)])
def test_text_that_unlinked_hits_share_comes_once(postprocess: Postprocess, offsets: bool, stored: bool):
    """Hits that overlap across a chunk between them, or without a link, are one passage."""
    text = "".join(chr(0x4E00 + number) for number in range(400))
    nodes = chunks_at(text, [(0, 100), (40, 140), (80, 180), (180, 300), (300, 400)], offsets=offsets)
    store = docstore_of(nodes, [Document(text=text, id_="doc")] if stored else [])
    found = hits(nodes, [2, 4, 0])
    (joined, alone) = postprocess(passages_of(store, 0), found)
    assert joined.node.text == text[:180]
    assert (joined.node.start_char_idx, joined.node.end_char_idx) == (0, 180)
    assert read_provenance(joined.node).exact == stored
    assert alone is found[1]


def test_hits_that_only_claim_to_overlap_stay_apart(postprocess: Postprocess):
    """Offsets that the texts contradict join nothing."""
    text = "".join(chr(0x4E00 + number) for number in range(400))
    nodes = chunks_at(text, [(0, 100), (100, 200), (200, 300)], offsets=True)
    nodes[2].start_char_idx, nodes[2].end_char_idx = 80, 180
    found = hits(nodes, [0, 2])
    assert postprocess(passages_of(docstore_of(nodes), 0), found) == found


HEADER = "| year | ships |\n|------|-------|\n"
ROWS = [f"| {1900 + number} | {number * 7} |\n" for number in range(40)]


def table_chunks(size: int = 5) -> tuple[Document, list[TextNode]]:
    """Return a document with a table, and its linked chunks of rows, the first with the header."""
    parts = ["Ships by year:\n\n" + HEADER + "".join(ROWS[:size])]
    parts += ["".join(ROWS[start : start + size]) for start in range(size, len(ROWS), size)]
    parts.append("\nThat was all.")
    return Document(text="".join(parts), id_="doc"), linked_document([part.strip() for part in parts])


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize(("place", "num_nodes"), [(3, 0), (3, 1), (7, 1), (1, 1), (8, 0)])
def test_rows_get_the_header_of_their_table(
    postprocess: Postprocess, stored: bool, place: int, num_nodes: int
):
    """The header appears once before rows without it, from the document or from the chunks before."""
    document, nodes = table_chunks()
    store = docstore_of(nodes, [document] if stored else [])
    augmenter = passages_of(store, num_nodes, table_headers=True)
    (passage,) = postprocess(augmenter, hits(nodes, [place]))
    text = passage.node.text
    first = max(0, place - num_nodes)
    assert text.count(HEADER) == (first < 8)
    assert text.index(HEADER) == (0 if first else len("Ships by year:\n\n")) if first < 8 else True
    for row in "".join(node.text + "\n" for node in nodes[first : place + num_nodes + 1]).split("\n"):
        assert row in text
    (plain,) = postprocess(passages_of(store, num_nodes), hits(nodes, [place]))
    assert plain.node.text.count(HEADER) == (first == 0)
    for piece in read_provenance(passage.node).pieces if num_nodes else ():
        assert passage.node.text[piece.start : piece.end] in document.text


def test_rows_behind_a_hole_get_the_header_too(postprocess: Postprocess):
    """In a passage per document, each run of rows begins with the header of its table."""
    document, nodes = table_chunks()
    augmenter = passages_of(
        docstore_of(nodes, [document]), 0, table_headers=True, passage_scope="document", hole_separator="…\n"
    )
    (passage,) = postprocess(augmenter, hits(nodes, [2, 5]))
    assert passage.node.text == f"{HEADER}{nodes[2].text}…\n{HEADER}{nodes[5].text}"


def test_a_header_that_filters_refuse_is_not_read(postprocess: Postprocess):
    """The header never comes from a chunk that may not be added."""
    _, nodes = table_chunks()
    augmenter = passages_of(
        docstore_of(nodes),
        0,
        table_headers=True,
        neighbor_filters=lambda node: node.node_id != nodes[0].node_id,
    )
    found = hits(nodes, [2])
    assert postprocess(augmenter, found) == found

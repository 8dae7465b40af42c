"""Provenance is read back as written, as far as it holds, and nothing else is taken for it."""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import BaseNode, NodeRelationship, RelatedNodeInfo, TextNode

from llama_index_ext_ctxaug import (
    PROVENANCE_KEY,
    Piece,
    PrevNextNodePostprocessor,
    Provenance,
    TokenBudgetPostprocessor,
    read_provenance,
)
from llama_index_ext_ctxaug.passages.provenance import with_provenance
from llama_index_ext_ctxaug.testing import docstore_of, hits, linked_document

FOREIGN = [
    "a text",
    {},
    {"role": "editor"},
    {"role": "neighbor"},
    {"role": "neighbor", "hits": None},
    {"role": "neighbor", "hits": ["a"], "unheard_of": 1},
    {"role": "passage", "hits": ["a"], "pieces": [{"x": 1}]},
    {"role": ["neighbor"], "hits": ["a"]},
    "{}",
    "[1]",
    "null",
    '{"version":2,"role":"neighbor"}',
    '{"version":1,"role":"neighbor","hits":[0],"ids":[]}',
    '{"version":1,"role":"passage","hits":[],"ids":[],"hops":0,"stopped":[null,null]}',
]


@pytest.mark.parametrize("value", FOREIGN, ids=repr)
def test_something_else_under_the_key(postprocess: Any, value: Any) -> None:
    """Other metadata under that key is the user's: the node is a hit, and expands like any other."""
    nodes = linked_document(3, metadata={PROVENANCE_KEY: value})
    assert read_provenance(nodes[1]) is None
    for output, count in (("nodes", 3), ("passages", 1)):
        augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode="both", output=output)
        result = postprocess(augmenter, hits(nodes, [1]))
        assert len(result) == count
        assert result[0].node.metadata[PROVENANCE_KEY] != value
    assert len(postprocess(TokenBudgetPostprocessor(token_budget=100), hits(nodes, [0, 1]))) == 2
    assert nodes[1].metadata == {PROVENANCE_KEY: value}


def test_it_is_read_as_it_was_written() -> None:
    """Reading a node's metadata gives back an equal provenance."""
    (node,) = linked_document(1, metadata={"file": "a.pdf", "page": 2})
    piece = Piece("n", "hit", ("n",), 0, 0, 4, 10, 14, True, "d", {"file": "a.pdf", "page": 3})
    for provenance in (
        Provenance("neighbor", ("a", "b"), 2, "count", "filter", node_id=node.node_id),
        Provenance("passage", ("n",), pieces=(piece,), exact=False),
        Provenance("window", ("n",), pieces=(piece,), cut=("p", 3, 7)),
    ):
        assert read_provenance(with_provenance(node, provenance)) == provenance


def test_a_copy_may_be_edited() -> None:
    """Changing an added node in a later step leaves the stored node alone."""
    nodes = linked_document(2)
    before = nodes[0].to_dict()
    copy = with_provenance(nodes[0], Provenance("neighbor", ("a",)))
    copy.metadata["new"] = 1
    copy.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id="elsewhere")
    copy.excluded_llm_metadata_keys.append("new")
    copy.set_content("another text")
    assert nodes[0].to_dict() == before


def made_of(texts: list[str], metadata: list[dict[str, Any]]) -> BaseNode:
    """Return a passage with one piece per text, in a document of their own."""
    pieces, start = [], 0
    for number, (text, own) in enumerate(zip(texts, metadata, strict=True)):
        end = start + len(text)
        id_ = str(uuid5(NAMESPACE_OID, str(number)))
        hit = str(uuid5(NAMESPACE_OID, str(number // 7 * 7)))
        pieces.append(Piece(id_, "hit", (hit,), number % 7, start, end, start, end, True, "doc", own))
        start = end
    node = TextNode(text="".join(texts), metadata=metadata[0])
    return with_provenance(node, Provenance("passage", pieces[0].hits, pieces=tuple(pieces)))


TEXTS = [f"Chunk {number} says {number**3}. " * 30 for number in range(20)]


def test_it_is_small() -> None:
    """The string for 20 chunks with pages and times takes at most 2 kB, without omissions."""
    metadata = [
        {"file_path": "/data/reports/2023/annual.pdf", "page_label": str(n), "start_s": n * 60.5}
        for n in range(20)
    ]
    node = made_of(TEXTS, metadata)
    assert len(node.metadata[PROVENANCE_KEY].encode()) <= 2000
    assert [piece.metadata for piece in read_provenance(node).pieces] == metadata


@pytest.mark.parametrize("summary", ["A summary of this very chunk. ", object()])
def test_metadata_without_room_is_left_out(summary: Any) -> None:
    """If a chunk's metadata is too long or not JSON, the passage's value is not taken for the chunk's."""
    metadata = [
        {"page": n, "summary": summary * 20 if isinstance(summary, str) else summary, "n": n + 1}
        for n in range(20)
    ]
    metadata[0]["summary"] = "another one"
    node = made_of(TEXTS, metadata)
    assert len(node.metadata[PROVENANCE_KEY].encode()) <= 2000
    assert [piece.metadata for piece in read_provenance(node).pieces] == [
        {"page": n, "n": n + 1} for n in range(20)
    ]


def test_metadata_that_a_later_step_added_is_not_the_chunks() -> None:
    """A key that a later step adds to the passage is not attributed to its chunks."""
    node = made_of(TEXTS[:3], [{"page": 1}] * 3)
    node.metadata["note"] = "of a later step"
    assert [piece.metadata for piece in read_provenance(node).pieces] == [{"page": 1}] * 3


def test_only_what_holds_after_a_change() -> None:
    """A cut passage has the remaining pieces at their new places; an empty one has only its hits."""
    node = made_of(TEXTS[:4], [{"page": n} for n in range(4)])
    text, whole = node.text, read_provenance(node)
    start, end = len(TEXTS[0]), len(text) - len(TEXTS[3]) - 200
    node.set_content(f"Source 1:\n{text[start:end]}\n")
    changed = read_provenance(node)
    assert (changed.role, changed.hits, changed.exact) == ("passage", whole.hits, False)
    assert [piece.metadata["page"] for piece in changed.pieces] == [1, 2]
    for piece in changed.pieces:
        assert text[piece.source_start : piece.source_end] == node.text[piece.start : piece.end]
    assert sum(piece.end - piece.start for piece in changed.pieces) > end - start - 100
    node.set_content("nothing of it")
    assert read_provenance(node).pieces == ()
    node.set_content(text)
    assert read_provenance(node) == whole


def test_a_part_that_fits_several_places_is_left_out() -> None:
    """The parts of a text that repeats itself cannot be distinguished, so none is claimed."""
    node = made_of(["The same line again.\n" * 60] * 2, [{"page": n} for n in range(2)])
    node.set_content(node.text[210:1050])
    assert read_provenance(node).pieces == ()


@given(
    hit_ids=st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=4, unique=True),
    node_id=st.text(min_size=1, max_size=40) | st.uuids().map(str),
    hops=st.integers(0, 9),
    stopped=st.sampled_from([None, "count", "document_end"]),
)
def test_any_ids_are_read_as_they_were_written(
    hit_ids: list[str], node_id: str, hops: int, stopped: Any
) -> None:
    """Provenance gives back any ids, including quotes and marks."""
    provenance = Provenance("neighbor", tuple(hit_ids), hops, stopped_next=stopped)
    read = read_provenance(with_provenance(TextNode(id_=node_id, text="a"), provenance))
    assert read is not None
    assert read.hits == tuple(hit_ids)
    assert (read.role, read.hops, read.stopped_next) == ("neighbor", hops, stopped)

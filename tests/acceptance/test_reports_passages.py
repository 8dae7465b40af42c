"""Reported faults about repeated text, budgets and lists that contradict their text."""

from __future__ import annotations

from typing import Any

from helpers import Postprocess
from llama_index.core import Document
from llama_index.core.node_parser import SentenceSplitter, TokenTextSplitter
from llama_index.core.schema import NodeWithScore

from llama_index_ext_ctxaug import PrevNextNodePostprocessor, read_provenance
from llama_index_ext_ctxaug.testing import docstore_of, hits, linked_document


def passages_of(docstore: Any, num_nodes: int, **parameters: Any) -> PrevNextNodePostprocessor:
    """An augmenter with neighbors on both sides and passages as output."""
    return PrevNextNodePostprocessor(
        docstore=docstore, num_nodes=num_nodes, mode="both", output="passages", **parameters
    )


def test_words_come_once(postprocess: Postprocess):
    """400 words split at 64 with an overlap of 32: around chunk 4 each word appears once, in order."""
    words = [f"w{number}" for number in range(400)]
    splitter = TokenTextSplitter(chunk_size=64, chunk_overlap=32, tokenizer=str.split)
    nodes = splitter.get_nodes_from_documents([Document(text=" ".join(words))])
    (passage,) = postprocess(passages_of(docstore_of(nodes), 1), hits(nodes, [4]))
    found = passage.node.text.split()
    assert found == words[int(found[0][1:]) : int(found[-1][1:]) + 1]
    assert len(found) > 96


def test_a_sentence_repeated_on_purpose(postprocess: Postprocess):
    """Two adjacent chunks with the same short sentence and no overlap are both kept."""
    for offsets in (True, False):
        nodes = linked_document(["好。", "好。"], offsets=offsets)
        (passage,) = postprocess(passages_of(docstore_of(nodes), 1), hits(nodes, [0]))
        assert passage.node.text == "好。好。"


def test_windows_that_overlap_are_one(postprocess: Postprocess):
    """Hits 8, 9 and 10 of 20 sentences with a window of 3 give one span of nine sentences."""
    nodes = linked_document([f"Sentence {n}. " for n in range(20)], offsets=True)
    (passage,) = postprocess(passages_of(docstore_of(nodes), 3), hits(nodes, [8, 9, 10]))
    assert passage.node.text == "".join(f"Sentence {n}. " for n in range(5, 14))


def test_the_same_node_twice(postprocess: Postprocess):
    """A node that was retrieved twice is returned once, with the better score."""
    nodes = linked_document(2)
    found = hits(nodes, [0, 0], [0.9, 0.3])
    assert postprocess(passages_of(docstore_of(nodes), 0), found) == [found[0]]
    (passage,) = postprocess(passages_of(docstore_of(nodes), 1), found)
    assert passage.score == 0.9
    assert passage.node.text == f"{nodes[0].text} {nodes[1].text}"


def test_tokens_are_bounded(postprocess: Postprocess):
    """2,000 tokens hold three hits of 400 words, then the nearest neighbors."""
    nodes = linked_document([f"{'word ' * 399}n{n}" for n in range(60)])
    found = hits(nodes, [10, 30, 50])
    augmenter = PrevNextNodePostprocessor(
        docstore=docstore_of(nodes), num_nodes=5, mode="both", token_budget=2000, tokenizer=str.split
    )
    result = postprocess(augmenter, found)
    assert [hit.node.text.split()[-1] for hit in result] == ["n9", "n10", "n11", "n30", "n50"]
    assert all(any(hit is other for other in result) for hit in found)


def test_what_was_cut_is_visible(postprocess: Postprocess):
    """A side that the budget cut is marked, and the budget is a parameter."""
    nodes = linked_document(30)
    augmenter = passages_of(docstore_of(nodes), 30, token_budget=60, tokenizer=str.split)
    (passage,) = postprocess(augmenter, hits(nodes, [15]))
    provenance = read_provenance(passage.node)
    assert (provenance.stopped_previous, provenance.stopped_next) == ("budget", "budget")


def test_text_and_list_agree(postprocess: Postprocess):
    """The merged node holds its chunks in order, with source, first and last id, and span."""
    text = " ".join(f"The {n}th thing that happened in the harbor that year was small." for n in range(60))
    document = Document(text=text, id_="d", metadata={"file": "f"})
    nodes = SentenceSplitter(chunk_size=60, chunk_overlap=15).get_nodes_from_documents([document])
    store = docstore_of(nodes, [document])
    separate = PrevNextNodePostprocessor(docstore=store, num_nodes=2, mode="both")
    listed = [hit.node for hit in postprocess(separate, [NodeWithScore(node=nodes[4], score=1.0)])]
    (passage,) = postprocess(passages_of(store, 2), [NodeWithScore(node=nodes[4], score=1.0)])
    pieces = read_provenance(passage.node).pieces
    assert [piece.node_id for piece in pieces] == [node.node_id for node in listed]
    assert (pieces[0].node_id, pieces[-1].node_id) == (nodes[2].node_id, nodes[6].node_id)
    assert passage.node.ref_doc_id == "d"
    assert passage.node.metadata["file"] == "f"
    start, end = passage.node.start_char_idx, passage.node.end_char_idx
    assert (start, end) == (nodes[2].start_char_idx, nodes[6].end_char_idx)
    assert passage.node.text == text[start:end]

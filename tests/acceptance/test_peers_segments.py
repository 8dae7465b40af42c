"""What users of Verba and QAnything expect of choosing context from hits."""

from __future__ import annotations

from helpers import Postprocess, texts

from llama_index_ext_ctxaug import RelevantSegmentsPostprocessor
from llama_index_ext_ctxaug.testing import docstore_of, hits, linked_document


def test_vb_01_only_good_hits_grow(postprocess: Postprocess) -> None:
    """VB-01: where the best hit grows by one, that with score 1.0 grows and that with 0.5 does not."""
    nodes = linked_document(30)
    augmenter = RelevantSegmentsPostprocessor(docstore=docstore_of(nodes), reach=1, token_budget=None)
    out = postprocess(augmenter, hits(nodes, [5, 20], [1.0, 0.5]))
    assert texts(out) == [nodes[n].text for n in (4, 5, 6, 20)]
    assert [hit.score for hit in out] == [None, 1.0, None, 0.5]


def test_vb_01_a_chunk_beside_that_is_a_hit_keeps_its_score(postprocess: Postprocess) -> None:
    """VB-01: a neighbor that was itself retrieved is there once, with its own score."""
    nodes = linked_document(30)
    augmenter = RelevantSegmentsPostprocessor(docstore=docstore_of(nodes), reach=1, token_budget=None)
    out = postprocess(augmenter, hits(nodes, [5, 6], [1.0, 0.5]))
    assert texts(out) == [nodes[n].text for n in (4, 5, 6)]
    assert [hit.score for hit in out] == [None, 1.0, 0.5]


def test_qa_03_two_documents_that_fit_go_out_whole(postprocess: Postprocess) -> None:
    """QA-03: where all hits are in two documents and these fit, both go out whole."""
    first, second = linked_document(5, source_id="a"), linked_document(4, source_id="b")
    augmenter = RelevantSegmentsPostprocessor(docstore=docstore_of(first, second), method="documents")
    out = postprocess(augmenter, [*hits(first, [3]), *hits(second, [1])])
    assert texts(out) == [node.text for node in [*first, *second]]


def test_qa_03_from_the_first_hit_to_the_last(postprocess: Postprocess) -> None:
    """QA-03: where the documents do not fit, each goes out from its first hit to its last."""
    first, second = linked_document(40, source_id="a"), linked_document(40, source_id="b")
    augmenter = RelevantSegmentsPostprocessor(
        docstore=docstore_of(first, second), method="documents", token_budget=100
    )
    out = postprocess(augmenter, [*hits(first, [10, 13]), *hits(second, [7])])
    assert texts(out) == [node.text for node in [*first[10:14], second[7]]]


def test_qa_03_three_documents_stay_as_they_are(postprocess: Postprocess) -> None:
    """QA-03: hits of three documents go out unchanged, and nothing is read."""
    documents = [linked_document(5, source_id=name) for name in "abc"]
    found = [hit for document in documents for hit in hits(document, [2])]
    augmenter = RelevantSegmentsPostprocessor(docstore=docstore_of(*documents), method="documents")
    out = postprocess(augmenter, found)
    assert [id(hit) for hit in out] == [id(hit) for hit in found]

"""Choosing context from hits as users of Verba and QAnything expect it."""

from __future__ import annotations

from helpers import Postprocess, texts

from llama_index_ext_ctxaug import RelevantSegmentsPostprocessor, WholeDocumentsPostprocessor
from llama_index_ext_ctxaug.testing import docstore_of, hits, linked_document


def test_only_good_hits_expand(postprocess: Postprocess) -> None:
    """The hit with score 1.0 expands by one and the hit with 0.5 does not."""
    nodes = linked_document(30)
    augmenter = RelevantSegmentsPostprocessor(docstore=docstore_of(nodes), reach=1, token_budget=None)
    out = postprocess(augmenter, hits(nodes, [5, 20], [1.0, 0.5]))
    assert texts(out) == [nodes[n].text for n in (4, 5, 6, 20)]
    assert [hit.score for hit in out] == [None, 1.0, None, 0.5]


def test_a_neighbor_that_is_a_hit_keeps_its_score(postprocess: Postprocess) -> None:
    """A neighbor that was itself retrieved appears once, with its own score."""
    nodes = linked_document(30)
    augmenter = RelevantSegmentsPostprocessor(docstore=docstore_of(nodes), reach=1, token_budget=None)
    out = postprocess(augmenter, hits(nodes, [5, 6], [1.0, 0.5]))
    assert texts(out) == [nodes[n].text for n in (4, 5, 6)]
    assert [hit.score for hit in out] == [None, 1.0, 0.5]


def test_two_documents_that_fit_are_whole(postprocess: Postprocess) -> None:
    """If all hits are in two documents that fit, both are returned whole."""
    first, second = linked_document(5, source_id="a"), linked_document(4, source_id="b")
    augmenter = WholeDocumentsPostprocessor(docstore=docstore_of(first, second))
    out = postprocess(augmenter, [*hits(first, [3]), *hits(second, [1])])
    assert texts(out) == [node.text for node in [*first, *second]]


def test_from_the_first_hit_to_the_last(postprocess: Postprocess) -> None:
    """If the documents do not fit, each is returned from its first hit to its last."""
    first, second = linked_document(40, source_id="a"), linked_document(40, source_id="b")
    augmenter = WholeDocumentsPostprocessor(docstore=docstore_of(first, second), token_budget=100)
    out = postprocess(augmenter, [*hits(first, [10, 13]), *hits(second, [7])])
    assert texts(out) == [node.text for node in [*first[10:14], second[7]]]


def test_three_documents_stay_as_they_are(postprocess: Postprocess) -> None:
    """Hits of three documents are returned unchanged, and nothing is read."""
    documents = [linked_document(5, source_id=name) for name in "abc"]
    found = [hit for document in documents for hit in hits(document, [2])]
    augmenter = WholeDocumentsPostprocessor(docstore=docstore_of(*documents))
    out = postprocess(augmenter, found)
    assert [id(hit) for hit in out] == [id(hit) for hit in found]

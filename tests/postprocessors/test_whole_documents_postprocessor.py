"""Whole documents in place of hits."""

from __future__ import annotations

import pytest
from helpers import Postprocess, positions

from llama_index_ext_ctxaug import WholeDocumentsPostprocessor
from llama_index_ext_ctxaug.testing import docstore_of, hits, linked_document


@pytest.mark.parametrize(
    ("budget", "expected"), [(None, [0, 1, 2, 3, 4]), (30, [0, 1, 2, 3, 4]), (29, [1, 2, 3])]
)
def test_documents_that_just_fit_are_given_whole(
    postprocess: Postprocess, budget: int | None, expected: list[int]
) -> None:
    """A document of exactly the budget is given whole; a longer one from its first hit to its last."""
    nodes = linked_document(5)
    augmenter = WholeDocumentsPostprocessor(
        docstore=docstore_of(nodes), tokenizer=str.split, token_budget=budget
    )
    assert positions(postprocess(augmenter, hits(nodes, [3, 1]))) == expected

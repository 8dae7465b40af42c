"""Provenance is read back as it was written, as far as it holds, and nothing else is taken for it."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo

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
    """Metadata that happens to have that key is the user's: the node is a hit, and grows as any other."""
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
    """What a node carries in its metadata gives back an equal provenance."""
    (node,) = linked_document(1, metadata={"file": "a.pdf", "page": 2})
    piece = Piece("n", "hit", ("n",), 0, 0, 4, 10, 14, True, "d", {"file": "a.pdf", "page": 3})
    for provenance in (
        Provenance("neighbor", ("a", "b"), 2, "count", "filter", node_id=node.node_id),
        Provenance("passage", ("n",), pieces=(piece,), exact=False),
        Provenance("window", ("n",), pieces=(piece,), cut=("p", 3, 7)),
    ):
        assert read_provenance(with_provenance(node, provenance)) == provenance


def test_a_copy_may_be_edited() -> None:
    """What a later step changes on an added node leaves the store's node alone."""
    nodes = linked_document(2)
    before = nodes[0].to_dict()
    copy = with_provenance(nodes[0], Provenance("neighbor", ("a",)))
    copy.metadata["new"] = 1
    copy.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id="elsewhere")
    copy.excluded_llm_metadata_keys.append("new")
    copy.set_content("another text")
    assert nodes[0].to_dict() == before

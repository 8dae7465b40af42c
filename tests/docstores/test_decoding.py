"""Records are decoded into the nodes that core makes of them."""

from __future__ import annotations

import copy
import json

import pytest
from llama_index.core.bridge.pydantic import ValidationError
from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageNode,
    IndexNode,
    MediaResource,
    Node,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.storage.docstore.utils import doc_to_json, json_to_doc

from llama_index_ext_ctxaug.docstores.decoding import decode_node

RELATED = {
    NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc", node_type="4", hash="h", metadata={"a": 1}),
    NodeRelationship.NEXT: RelatedNodeInfo(node_id="n2", node_type="1"),
    NodeRelationship.CHILD: [RelatedNodeInfo(node_id="c1"), RelatedNodeInfo(node_id="c2")],
}
NODES = {
    "text": TextNode(id_="n", text="text", metadata={"a": [1]}, relationships=RELATED, embedding=[0.5, 1.0]),
    "bare": TextNode(id_="n"),
    "offsets": TextNode(id_="n", text="text", start_char_idx=3, end_char_idx=7, text_template="{content}"),
    "document": Document(id_="n", text="text", metadata={"a": 1}),
    "image": ImageNode(id_="n", text="text", image="aGk="),
    "index": IndexNode(id_="n", text="text", index_id="i"),
    "node": Node(id_="n", text_resource=MediaResource(text="text")),
}


@pytest.mark.parametrize("node", NODES.values(), ids=NODES.keys())
def test_a_record_gives_the_node_that_core_makes(node: BaseNode) -> None:
    """Class, values, types and set fields equal core's; the record is unchanged."""
    record = json.loads(json.dumps(doc_to_json(node)))
    before = copy.deepcopy(record)
    made, expected = decode_node(record), json_to_doc(record)
    assert type(made) is type(expected)
    assert made == expected == node
    assert made.model_fields_set == expected.model_fields_set
    assert made.to_dict() == expected.to_dict()
    assert record == before
    made.metadata["changed"] = True
    assert record == before


@pytest.mark.parametrize(
    "data", [{"text_resource": {"text": "new"}}, {"extra_info": {"a": 1}, "text": "old"}]
)
def test_records_of_other_forms_are_read_as_core_reads_them(data: dict[str, object]) -> None:
    """Text under `text_resource`, metadata under `extra_info`."""
    record = {"__type__": "1", "__data__": {"id_": "n", "doc_id": "n", **data}}
    assert decode_node(record) == json_to_doc(record)


def test_a_broken_record_raises() -> None:
    """A wrong value, no kind and an unknown kind raise the errors that core raises."""
    for record, error in (
        ({"__type__": "1", "__data__": {"text": 5}}, ValidationError),
        ({"__data__": {"text": "text"}}, KeyError),
        ({"__type__": "99", "__data__": {"text": "text"}}, ValueError),
    ):
        with pytest.raises(error):
            json_to_doc(record)
        with pytest.raises(error):
            decode_node(record)

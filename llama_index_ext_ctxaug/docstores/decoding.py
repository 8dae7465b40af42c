"""Nodes out of the records that key-value stores keep of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core.constants import DATA_KEY, TYPE_KEY
from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.storage.docstore.utils import json_to_doc

_TEXT = TextNode.get_type()
_OTHER_FORMS = frozenset({"extra_info", "text_resource"})
"""Keys that only records of old versions, or of nodes of the newer kind, have."""


def decode_node(record: dict[str, Any]) -> BaseNode:
    """The node of a record, the same that core's `json_to_doc` makes.

    Nearly all records are of text nodes. Asking each for its kind and form, and handing it through three
    constructors, takes as long as the validation itself: text nodes go to that directly.

    Args:
        record: what `doc_to_json` made of a node; it stays as it is.

    Raises:
        ValueError: the record is of no known kind, or its fields are wrong.
        KeyError: it lacks its kind or its data.
    """
    data: Mapping[str, Any] = record[DATA_KEY]
    if record[TYPE_KEY] != _TEXT or not _OTHER_FORMS.isdisjoint(data):
        return json_to_doc(record)
    node = TextNode.__new__(TextNode)
    TextNode.__pydantic_validator__.validate_python(data, self_instance=node)
    return node

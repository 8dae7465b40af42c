"""Decode key-value records into nodes and document lists."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from json import loads
from typing import Any, TypeVar

from llama_index.core.constants import DATA_KEY, TYPE_KEY
from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.storage.docstore.types import RefDocInfo
from llama_index.core.storage.docstore.utils import json_to_doc
from pydantic_core import from_json

logger = logging.getLogger(__name__)

T = TypeVar("T")

_TEXT = TextNode.get_type()
_OTHER_FORMS = frozenset({"extra_info", "text_resource"})
"""Keys that occur only in records of old versions, or of the newer `Node` class."""


def decode_node(record: dict[str, Any]) -> BaseNode:
    """Return the node of a record, equal to the one that core's `json_to_doc` returns.

    Text nodes, which are nearly all, go straight to validation: core's dispatch and three constructors
    take as long as validation itself.

    Args:
        record: the result of `doc_to_json`; it is not changed.

    Raises:
        ValueError: the record is of no known kind, or its fields are invalid.
        KeyError: it lacks its kind or its data.
    """
    data: Mapping[str, Any] = record[DATA_KEY]
    if record[TYPE_KEY] != _TEXT or not _OTHER_FORMS.isdisjoint(data):
        return json_to_doc(record)
    node = TextNode.__new__(TextNode)
    TextNode.__pydantic_validator__.validate_python(data, self_instance=node)
    return node


def decode_document(record: Mapping[str, Any]) -> RefDocInfo:
    """Return the node list of a source document."""
    node_ids = record.get("node_ids", record.get("doc_ids"))  # the latter in stores of old versions
    return RefDocInfo(node_ids=list(node_ids or ()), metadata=record.get("metadata") or {})


def decoded(decoder: Callable[[Any], T], values: Mapping[str, Any]) -> dict[str, T]:
    """Decode values, JSON text or parsed; invalid ones are logged and left out."""
    found: dict[str, T] = {}
    for id_, value in values.items():
        try:
            found[id_] = decoder(_parsed(value) if isinstance(value, (str, bytes, bytearray)) else value)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            warn_unreadable(id_, error)
    return found


def warn_unreadable(id_: str, error: Exception) -> None:
    """Log that a record counts as missing."""
    logger.warning("The docstore's record %r cannot be decoded and counts as missing: %r", id_, error)


def _parsed(text: str | bytes | bytearray) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return loads(text)  # slower, but accepts the lone surrogates that Python's JSON may hold

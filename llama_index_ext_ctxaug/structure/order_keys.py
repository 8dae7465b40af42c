"""The metadata that gives the document of a node and its place there."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, Literal
from uuid import UUID

from llama_index.core.bridge.pydantic import BaseModel, Field
from llama_index.core.schema import BaseNode

Direction = Literal["previous", "next"]

File = tuple[str, ...]
"""The identity of a file: the values of the document keys, and the owner and place of the file."""

NUMBER_KEYS = ("chunk_id", "split_id", "page_label")
"""Metadata keys under which chunkers number chunks."""

_ABSENT = frozenset({"", "none", "nan", "null", "nat", "<na>"})
"""Text that data frames and JSON leave where there was no value."""

_OWNERS = frozenset(
    {"tenant", "owner", "user", "account", "org", "organization", "organisation", "workspace", "namespace"}
)
"""Words in metadata keys that name the owner of a document."""

_OF_CHUNKS = frozenset({"window", "original_text", "header_path", "tag", "category"})
"""Metadata that LlamaIndex's parsers write for single chunks."""

_MAX_IDENTIFIER = 100
"""Maximum characters of a value that may identify a file."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_WHOLE_NUMBER = re.compile(r"(\d+)(?:\.0+)?")


@dataclass(frozen=True, slots=True)
class OrderKeys:
    """Metadata keys that give the document of a node and its place there.

    Attributes:
        document: keys that make documents with equal values one; empty for off.
        page: key that orders the documents of a file.
        previous_id: key of the id of the node before.
        next_id: key of the id of the node after.
        numbers: keys of chunk numbers; the first that numbers all chunks is used.
        across_parents: True to continue from the last child of a parent to the first of the next.
    """

    document: tuple[str, ...] = ()
    page: str = "page_label"
    previous_id: str = "prev_id"
    next_id: str = "next_id"
    numbers: tuple[str, ...] = NUMBER_KEYS
    across_parents: bool = True

    def file(self, metadata: Mapping[str, Any]) -> File | None:
        """Return the file that metadata names; None unless each of the document keys has a value.

        Files of different owners (a tenant, a user) and at different places (a path or URL that ends with a
        value of a document key) are different ones.
        """
        if not self.document:
            return None
        named = [text for key in self.document if (text := _text(metadata.get(key))) is not None]
        if len(named) < len(self.document):
            return None
        ends = tuple(mark + name for name in named for mark in "/\\")
        apart = (
            f"{key}={text}"
            for key, value in metadata.items()
            if (isinstance(value, str) and value.endswith(ends)) or _names_owner(key)
            if key not in self.document and (text := _text(value)) is not None
        )
        return (*named, *sorted(apart))

    def identifier(self, key: str, value: Any) -> str | None:
        """Return a value as text if it may tell files apart; None for that of a page or chunk."""
        of_page = key in (self.page, self.previous_id, self.next_id, *self.numbers, *_OF_CHUNKS)
        text = None if of_page or "page" in key.lower() or isinstance(value, bool) else _text(value)
        return None if text is None or len(text) > _MAX_IDENTIFIER else text

    def named(self, node: BaseNode, direction: Direction) -> str | None:
        """Return the id that metadata names in a direction; None for none and for the node's own."""
        id_ = _text(node.metadata.get(self.previous_id if direction == "previous" else self.next_id))
        return None if id_ == node.node_id else id_


class OrderParameters(BaseModel):
    """The parameters of whatever orders the nodes of a document."""

    previous_id_key: str = Field(default="prev_id", description="Metadata key of the id of the node before.")
    next_id_key: str = Field(default="next_id", description="Metadata key of the id of the node after.")
    number_keys: list[str] = Field(
        default=list(NUMBER_KEYS),
        description="Metadata keys of chunk numbers; the first that numbers all chunks of a source is used.",
    )
    across_parents: bool = Field(
        default=True, description="Continue from the last child of a parent to the first of the next parent."
    )
    document_key: str | tuple[str, ...] | None = Field(
        default=None,
        description="Metadata key, or several, whose equal values make documents one: file_path, or "
        '("tenant", "file_name").',
    )
    page_key: str = Field(
        default="page_label", description="Metadata key that orders the documents of one file."
    )

    @property
    def order_keys(self) -> OrderKeys:
        """The keys that these parameters name."""
        key = self.document_key
        return OrderKeys(
            document=(key,) if isinstance(key, str) else key or (),
            page=self.page_key,
            previous_id=self.previous_id_key,
            next_id=self.next_id_key,
            numbers=tuple(self.number_keys),
            across_parents=self.across_parents,
        )


def whole_number(value: Any) -> int | None:
    """Return a value as a whole number, from 3, 3.0, "3", "3.0" and numpy scalars; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return int(number) if number.is_integer() else None
    match = _WHOLE_NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
    return int(match[1]) if match else None


@lru_cache(maxsize=1024)
def _names_owner(key: str) -> bool:
    return not _OWNERS.isdisjoint(word.lower() for word in _WORD.findall(key))


def _text(value: Any) -> str | None:
    """Return a value as text; None if it marks a missing one."""
    number = None if isinstance(value, str) else whole_number(value)
    if number is not None:
        return str(number)
    if isinstance(value, str | UUID) or (isinstance(value, Real) and math.isfinite(value)):
        text = str(value)
        return None if text.strip().lower() in _ABSENT else text
    return None

"""The pages of one file as one document: PDF readers make a document of each page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.schema import BaseNode, NodeRelationship

from llama_index_ext_ctxaug.docstores.batch_reader import BatchReader, ReadRequest, Search
from llama_index_ext_ctxaug.structure.relationships import related_id

_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}
_ROMAN_NUMBER = re.compile(r"[ivxlcdm]+")
_DIGITS = re.compile(r"(\d+)")

PageKey = tuple[int, list[tuple[int, int, str]]]


def page_key(label: Any) -> PageKey:
    """A sort key for page labels: roman front matter, then numbers by value, "2a" behind "2", then others."""
    text = str(label).strip().lower()
    if _ROMAN_NUMBER.fullmatch(text):
        return (0, [(0, _roman_value(text), "")])
    parts = [part for part in _DIGITS.split(text) if part]
    return (1, [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts])


def _roman_value(text: str) -> int:
    values = [_ROMAN[letter] for letter in text]
    following = [*values[1:], 0]
    return sum(-value if value < after else value for value, after in zip(values, following, strict=True))


@dataclass
class PageOrder:
    """Which page-document comes before or after another one of the same file.

    Reads the store's list of all documents, once a call and only where expansion reaches the end of a
    page: that one read grows with the store.

    Attributes:
        reader: nodes in hand.
        document_key: metadata key whose equal values make documents one file, for instance `file_path`.
        page_key: metadata key that orders the documents of a file, for instance `page_label`.
    """

    reader: BatchReader
    document_key: str
    page_key: str
    _files: dict[str, list[str]] | None = field(default=None)

    def file(self, node: BaseNode) -> str | None:
        """The file that a node belongs to; None where its metadata does not say."""
        value = node.metadata.get(self.document_key)
        return None if value is None else str(value)

    def page(self, node: BaseNode) -> PageKey:
        """Where the page of a node stands among the pages of its file; equal for pages without a label."""
        return page_key(node.metadata.get(self.page_key, ""))

    def across(self, node: BaseNode, step: int, source: str | None) -> Search[str | None]:
        """The chunk at the near edge of the neighboring page; None where the file ends.

        Args:
            node: the last (step 1) or first (step -1) chunk of its page.
            step: 1 for the following page, -1 for the one before.
            source: id of the page's document.
        """
        file = self.file(node)
        if file is None or source is None:
            return None
        yield ReadRequest(all_documents=True)
        pages = self._pages(file)
        if source not in pages:
            return None
        place = pages.index(source) + step
        while 0 <= place < len(pages):
            yield ReadRequest(documents=(pages[place],))
            order = self.reader.documents.get(pages[place])
            ids = order.ids if order else ()
            yield ReadRequest(nodes=ids)
            edge = self._edge(ids, step)
            if edge is not None:
                return edge
            place += step
        return None

    def _pages(self, file: str) -> list[str]:
        if self._files is None:
            self._files = {}
            documents = self.reader.all_documents or {}
            # A label that is missing counts as "", so pages without labels keep the store's order.
            in_order = sorted(
                documents, key=lambda id_: page_key(documents[id_].metadata.get(self.page_key, ""))
            )
            for id_ in in_order:
                name = documents[id_].metadata.get(self.document_key)
                if name is not None:
                    self._files.setdefault(str(name), []).append(id_)
        return self._files.get(file, [])

    def _edge(self, ids: Sequence[str], step: int) -> str | None:
        """The chunk of a page that no other chunk of the page comes before (step 1) or after (-1)."""
        inward = NodeRelationship.PREVIOUS if step == 1 else NodeRelationship.NEXT
        outward = NodeRelationship.NEXT if step == 1 else NodeRelationship.PREVIOUS
        nodes = [node for id_ in (ids if step == 1 else reversed(ids)) if (node := self.reader.node(id_))]
        named = {related_id(node, outward) for node in nodes}
        for node in nodes:
            if NodeRelationship.PARENT in node.relationships or node.node_id in named:
                continue
            if related_id(node, inward) not in ids:
                return node.node_id
        return None

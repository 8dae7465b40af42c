"""The texts of the chunks of one call, and their places in their documents."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from llama_index.core.schema import BaseNode

from llama_index_ext_ctxaug.docstores.batch_reader import ReadRequest, Search
from llama_index_ext_ctxaug.expansion.expansion import Expansion
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.passages.locating import locate
from llama_index_ext_ctxaug.passages.offsets import (
    TextChunk,
    has_source_offsets,
    offsets_of,
    start_in_document,
    text_of,
)
from llama_index_ext_ctxaug.passages.passage import Chunk, Passage
from llama_index_ext_ctxaug.passages.passage_node import is_text
from llama_index_ext_ctxaug.passages.shared_text import MIN_OVERLAP
from llama_index_ext_ctxaug.passages.span import Span
from llama_index_ext_ctxaug.passages.tables import begins_with_row, open_header

MAX_TABLE_CHUNKS = 50
"""Maximum chunks before a passage that are read to find the header of a table."""


@dataclass
class ChunkTexts:
    """The texts of the chunks of one call, and their places in their documents.

    Attributes:
        expansion: the loaded nodes and their links.
        documents: texts that offsets count in, by id, as far as they are loaded.
    """

    expansion: Expansion
    documents: dict[str, str] = field(default_factory=dict)
    _known: dict[str, TextChunk] = field(default_factory=dict)

    def to_read(self, passages: Sequence[Passage], *, tables: bool = False) -> list[str]:
        """Return the ids of the texts in which chunks of these passages are to be found.

        These are source documents and parents, where more than one chunk of a document goes into the
        output; with `tables` also those of a single chunk that begins with a row.
        """
        chunks = [chunk for passage in passages for chunk in passage.chunks if is_text(chunk.node)]
        known = [self.expansion.links.relations(chunk.node) for chunk in chunks]
        count = Counter(own.document for own in known)
        ids = (
            id_
            for chunk, own in zip(chunks, known, strict=True)
            if count[own.document] > 1 or (tables and begins_with_row(text_of(chunk.node)))
            for id_ in (own.source, own.parent)
        )
        return list(dict.fromkeys(id_ for id_ in ids if id_ is not None))

    def place(self, passages: Sequence[Passage]) -> None:
        """Find the chunks of passages in the texts that are loaded."""
        for id_ in self.to_read(passages, tables=True):
            node = self.expansion.reader.node(id_)
            if node is not None:
                self.documents[id_] = text_of(node)
        for passage in passages:
            chunks = [chunk for chunk in passage.chunks if is_text(chunk.node)]
            texts = locate(self._sectioned([self._noted(chunk) for chunk in chunks], chunks), self.documents)
            self._known |= {chunk.node.id_: text for chunk, text in zip(chunks, texts, strict=True)}

    def read_headers(self, passages: Sequence[Passage]) -> Flow[None]:
        """Find the header of the table that each chunk begins within: in the document or in chunks before."""
        without: list[Passage] = []
        for passage in passages:
            if self._inherit(passage, ""):
                without.append(passage)
        searches = (self._header_before(passage.chunks[0].node) for passage in without)
        headers = yield from self.expansion.reader.advance(searches)
        for passage, header in zip(without, headers, strict=True):
            self._inherit(passage, header)

    def _inherit(self, passage: Passage, header: str) -> bool:
        """Note the headers of a passage's chunks; return True if the first begins with rows without one."""
        unknown = False
        for number, chunk in enumerate(passage.chunks):
            text = self.of(chunk)
            if begins_with_row(text.text):
                if text.checked and text.base is not None:
                    header = open_header(self.documents[text.base], header, text.start)
                unknown = unknown or (number == 0 and not header)
                self._known[chunk.node.id_] = text._replace(header=header)
            header = open_header(text.text, header)
        return unknown

    def _header_before(self, node: BaseNode) -> Search[str]:
        """Search the chunks before a node for the header of the table that it begins within."""
        links = self.expansion.links
        document = links.document(node)
        for _ in range(MAX_TABLE_CHUNKS):
            id_ = (yield from links.beside(node, "previous")).node_id
            if id_ is None:
                break
            yield ReadRequest(nodes=(id_,))
            before = links.reader.node(id_)
            if before is None or links.document(before) != document or self.expansion.refusal(before):
                break
            header = open_header(text_of(before), "open")
            if header != "open":
                return header
            node = before
        return ""

    def of(self, chunk: Chunk) -> TextChunk:
        """Return a chunk's text and its place, as found or else as noted."""
        known = self._known.get(chunk.node.id_)
        if known is None:
            known = self._known[chunk.node.id_] = self._part(chunk, self._noted(chunk))
        return known

    def _part(self, chunk: Chunk, noted: TextChunk) -> TextChunk:
        """Place a part of a chunk by its position in the whole chunk."""
        whole = self._known.get(chunk.cut.node_id) if chunk.cut else None
        place = whole.text.find(noted.text) if whole is not None else -1
        if whole is None or whole.start is None or place < 0:
            return noted
        start, header = whole.start + place, "" if place else whole.header
        return whole._replace(text=noted.text, start=start, end=start + len(noted.text), header=header)

    def span(self, passage: Passage) -> Span | None:
        """Return the characters of the source document that a passage covers; None if a place is unknown."""
        first, last = sys.maxsize, 0
        for chunk in passage.chunks:
            text = self.of(chunk)
            start = text.source_start if text.offsets_fit and is_text(chunk.node) else None
            if start is None:
                return None
            first, last = min(first, start), max(last, start + len(text.text))
        return Span(first, last)

    def share(self, first: Passage, second: Passage) -> bool:
        """Return True if the second passage begins with text of the first, at its place."""
        two = self.of(second.chunks[0])
        for chunk in first.chunks:
            one = self.of(chunk)
            place = (two.source_start or 0) - (one.source_start or 0)
            size = min(len(one.text) - place, len(two.text))
            if place >= 0 and size >= (1 if one.in_document and two.in_document else MIN_OVERLAP):
                return one.text.startswith(two.text[:size], place)
        return False

    def _sectioned(self, texts: list[TextChunk], chunks: Sequence[Chunk]) -> list[TextChunk]:
        """Give up the offset base of chunks parsed from chunks: LlamaIndex sets no NEXT for these."""
        known = [self.expansion.links.relations(chunk.node) for chunk in chunks]
        for (before, one), two in pairwise(zip(chunks, known, strict=True)):
            chained = one.next is None and two[1].previous == before.node.id_
            if chained and not has_source_offsets(before.node):
                return [text._replace(shift=None) for text in texts]
        return texts

    def _noted(self, chunk: Chunk) -> TextChunk:
        links, node = self.expansion.links, chunk.node
        text = text_of(node)
        start, end = offsets_of(node)
        copy = links.reader.copy(node.id_)
        if start is None and copy is not None and text_of(copy) == text:
            start, end = offsets_of(copy)
        own = links.relations(node)
        base = own.parent or own.source
        shift = start_in_document(node, base, own.source, links.reader.node, links.parent)
        return TextChunk(text, start, end, base, shift, document=own.source)

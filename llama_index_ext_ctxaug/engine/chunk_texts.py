"""The texts of the chunks of one call, their offsets, and the texts that these count in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from llama_index_ext_ctxaug.expansion.expansion import Expansion
from llama_index_ext_ctxaug.passages.offsets import TextChunk, offsets_of, start_in_document, text_of
from llama_index_ext_ctxaug.passages.passage import Chunk


@dataclass
class ChunkTexts:
    """The texts of the chunks of one call.

    Attributes:
        expansion: the loaded nodes and their links.
    """

    expansion: Expansion
    _known: dict[str, TextChunk] = field(default_factory=dict)

    def of(self, chunk: Chunk) -> TextChunk:
        """Return a chunk's text and offsets."""
        node_id = chunk.node.id_
        if node_id not in self._known:
            self._known[node_id] = self._read(chunk)
        return self._known[node_id]

    def forget(self) -> None:
        """Read all texts anew, since nodes loaded meanwhile may show where an offset base starts."""
        self._known.clear()

    def bases(self, chunks: Iterable[Chunk]) -> list[str]:
        """Return the ids of the texts that offsets count in: those of parents, else of documents."""
        known = map(self.expansion.links.relations, (chunk.node for chunk in chunks))
        return [id_ for id_ in dict.fromkeys(own.parent or own.source for own in known) if id_ is not None]

    def loaded(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the texts of those ids whose nodes are loaded."""
        nodes = ((id_, self.expansion.reader.node(id_)) for id_ in ids)
        return {id_: text_of(node) for id_, node in nodes if node is not None}

    def place(self, chunk: Chunk) -> tuple[str, int]:
        """Return where a chunk starts: by offset, else in the docstore's list, else unknown."""
        text = self.of(chunk)
        if text.offsets_fit and text.source_start is not None:
            return ("offset", text.source_start)
        links = self.expansion.links
        order = links.reader.documents.get(links.source(chunk.node) or "")
        place = order.places.get(chunk.node.id_) if order else None
        return ("unknown", 0) if place is None else ("list", place)

    def _read(self, chunk: Chunk) -> TextChunk:
        links, node = self.expansion.links, chunk.node
        text = text_of(node)
        start, end = offsets_of(node)
        copy = links.reader.copy(node.id_)
        if start is None and copy is not None and text_of(copy) == text:
            start, end = offsets_of(copy)
        own = links.relations(node)
        base = own.parent or own.source
        shift = start_in_document(base, own.source, links.reader.node, links.parent)
        return TextChunk(text, start, end, base, shift, document=own.source)

"""Windows of text around each chunk in its metadata, for the nodes of any parser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from llama_index.core.bridge.pydantic import ConfigDict, Field
from llama_index.core.schema import BaseNode, RelatedNodeInfo, TransformComponent

from llama_index_ext_ctxaug.ingestion.neighbor_linker import NeighborLinker, warn_of_problems
from llama_index_ext_ctxaug.passages.joining import join_located
from llama_index_ext_ctxaug.passages.locating import locate
from llama_index_ext_ctxaug.passages.offsets import TextChunk, offsets_of, start_in_document, text_of
from llama_index_ext_ctxaug.passages.span import Span
from llama_index_ext_ctxaug.structure.neighbor_links import NeighborLinks
from llama_index_ext_ctxaug.structure.relationships import relations


class WindowExtractor(TransformComponent):
    """Write the text around each chunk into its metadata: small chunks are embedded, large ones read.

    Put it after any parser. At query time `MetadataReplacementPostProcessor` replaces the chunk's text with
    its window and needs no docstore. (`SentenceWindowNodeParser` does this for sentences alone.)

    **Requires**: the chunks of whole documents in one call, with PREVIOUS/NEXT relationships or another
    source of their order (see `NeighborLinker`).

    **Guarantees**: a window never crosses a document or a hole and holds text that chunks share once. It is
    not part of the text for embedding or for the LLM, and not stored again in the relationships of
    neighbors. The nodes of the input are not changed.

    **On failure**: one warning for each call reports links that contradict each other.

    Example:
        ```python
        from llama_index.core.ingestion import IngestionPipeline
        from llama_index.core.node_parser import SentenceSplitter
        from llama_index_ext_ctxaug import WindowExtractor

        pipeline = IngestionPipeline(
            transformations=[SentenceSplitter(chunk_size=128), WindowExtractor(window_size=2)]
        )
        ```
    """

    model_config = ConfigDict(extra="forbid")

    window_size: int = Field(default=3, ge=1, description="Chunks on each side of a chunk.")
    layout: Literal["joined", "sides"] = Field(
        default="joined",
        description='"joined": one text with the chunk in it; "sides": the text before and the text after.',
    )
    window_metadata_key: str = Field(default="window", description='Metadata key of the "joined" text.')
    previous_metadata_key: str = Field(
        default="previous_text", description='Metadata key of the text before the chunk, for "sides".'
    )
    next_metadata_key: str = Field(
        default="next_text", description='Metadata key of the text after the chunk, for "sides".'
    )
    chunk_separator: str | None = Field(
        default=None,
        description="Separator between chunks where nothing shows what is between; None for a line break, a "
        "space or nothing, by script and markup.",
    )
    linker: NeighborLinker = Field(default_factory=NeighborLinker, description="Finds the order of chunks.")

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which the transformation is serialized."""
        return "WindowExtractor"

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """Write windows, as `extract` does; parents and documents among the nodes give their own texts."""
        return self.extract(nodes)

    def extract(self, nodes: Sequence[BaseNode], texts: Mapping[str, str] | None = None) -> list[BaseNode]:
        """Write windows, given the texts of the documents.

        Args:
            nodes: the nodes of whole documents.
            texts: texts of documents by id: they show the white space that a splitter stripped.

        Returns:
            Copies of the nodes with windows in metadata, in the same order.
        """
        links = self.linker.neighbor_links(nodes)
        if links.problems:
            warn_of_problems(self.class_name(), links.problems)
        windows = _Windows(links, self.window_size, self.chunk_separator, dict(texts or {}))
        keys = self._keys()
        return [_with_metadata(node, self._metadata(windows, node), keys) for node in nodes]

    def _keys(self) -> tuple[str, ...]:
        if self.layout == "joined":
            return (self.window_metadata_key,)
        return (self.previous_metadata_key, self.next_metadata_key)

    def _metadata(self, windows: _Windows, node: BaseNode) -> dict[str, str]:
        text, (start, end) = windows.around(node)
        if self.layout == "joined":
            return {self.window_metadata_key: text}
        return {self.previous_metadata_key: text[:start], self.next_metadata_key: text[end:]}


@dataclass
class _Windows:
    """The texts around the nodes of one call."""

    links: NeighborLinks
    size: int
    separator: str | None
    texts: dict[str, str]
    _chunks: dict[str, TextChunk] = field(default_factory=dict)

    def around(self, node: BaseNode) -> tuple[str, Span]:
        """Return the text of a window and the span of the node's own text in it."""
        ids = self._around(node.node_id, self.size)
        chunks = [self._chunk(id_) for id_ in ids]
        joined = join_located(chunks, self.texts, chunk_separator=self.separator)
        return joined.text, joined.spans[ids.index(node.node_id)]

    def _around(self, id_: str, size: int) -> list[str]:
        """Return the ids of at most so many nodes on each side of one, and its own, in order."""
        before = self._side(id_, self.links.chains.preceding, size)
        return [*reversed(before), id_, *self._side(id_, self.links.chains.followers, size)]

    def _side(self, node_id: str, beside: Mapping[str, str], size: int) -> list[str]:
        ids: list[str] = []
        current = beside.get(node_id)
        while current is not None and len(ids) < size:
            ids.append(current)
            current = beside.get(current)
        return ids

    def _chunk(self, id_: str) -> TextChunk:
        if id_ not in self._chunks:
            chain = self._around(id_, len(self.links.nodes))
            located = locate([self._noted(self.links.nodes[link]) for link in chain], self.texts)
            self._chunks.update(zip(chain, located, strict=True))
        return self._chunks[id_]

    def _noted(self, node: BaseNode) -> TextChunk:
        own = relations(node)
        base = own.parent or own.source
        for id_ in (own.source, own.parent):
            if id_ in self.links.nodes and id_ is not None:
                self.texts.setdefault(id_, text_of(self.links.nodes[id_]))
        shift = start_in_document(
            node, base, own.source, self.links.nodes.get, lambda above: relations(above).parent
        )
        return TextChunk(text_of(node), *offsets_of(node), base, shift, document=own.source)


def _with_metadata(node: BaseNode, metadata: Mapping[str, str], keys: Sequence[str]) -> BaseNode:
    """Return a copy with this metadata, hidden from embedding and LLM, and not repeated in relationships."""
    copy = node.model_copy()
    # Values of the right types are set without pydantic's validation of assignments, which is slow.
    fields = copy.__dict__
    fields["metadata"] = {**node.metadata, **metadata}
    for name in ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys"):
        fields[name] = list(dict.fromkeys([*fields[name], *keys]))
    fields["relationships"] = {
        name: [_without(one, keys) for one in info] if isinstance(info, list) else _without(info, keys)
        for name, info in node.relationships.items()
    }
    return copy


def _without(info: RelatedNodeInfo, keys: Sequence[str]) -> RelatedNodeInfo:
    if not any(key in info.metadata for key in keys):
        return info
    metadata = {key: value for key, value in info.metadata.items() if key not in keys}
    return info.model_copy(update={"metadata": metadata})

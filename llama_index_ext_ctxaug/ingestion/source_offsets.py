"""Set character offsets into the source document, whatever parsers made the chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.schema import BaseNode, NodeRelationship, RelatedNodeInfo, TextNode

from llama_index_ext_ctxaug.ingestion.whole_documents import WholeDocuments
from llama_index_ext_ctxaug.passages.locating import locate
from llama_index_ext_ctxaug.passages.offsets import OFFSETS_KEY, TextChunk, offsets_of, text_of
from llama_index_ext_ctxaug.structure.relationships import related_id

_SOURCE, _PARENT = NodeRelationship.SOURCE, NodeRelationship.PARENT


class SourceOffsets(WholeDocuments):
    """Run a chain of parsers, and set the offsets of their chunks to those in the source document.

    LlamaIndex notes offsets in the text that a parser is given: in a chain that is a section, which is
    stored nowhere. Chunks of a hierarchy keep offsets in their parent, as LlamaIndex has them.

    **Requires**: whole documents, as they are read; parsers that give chunks in reading order.

    **Guarantees**: `document.text[start_char_idx:end_char_idx]` is the text of the chunk, or both are None.
    Augmenters then know the place of a chunk even if the docstore does not hold the document.

    **On failure**: errors of the parsers are raised.

    Example:
        ```python
        from llama_index.core.ingestion import IngestionPipeline
        from llama_index.core.node_parser import MarkdownNodeParser, SentenceSplitter
        from llama_index_ext_ctxaug import NeighborLinker, SourceOffsets

        parser = SourceOffsets([MarkdownNodeParser(), SentenceSplitter()])
        pipeline = IngestionPipeline(transformations=[parser, NeighborLinker()])
        ```
    """

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which the transformation is serialized."""
        return "SourceOffsets"

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """Run the parsers on whole documents and set the offsets of their chunks."""
        return _with_offsets(super().__call__(nodes, **kwargs), nodes)

    async def acall(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """Run the parsers through their async methods and set the offsets of their chunks."""
        return _with_offsets(await super().acall(nodes, **kwargs), nodes)


def _with_offsets(nodes: Sequence[BaseNode], documents: Sequence[BaseNode]) -> list[BaseNode]:
    """Return copies of the chunks with offsets in the text of their parent, else of their document."""
    texts = {node.node_id: text_of(node) for node in (*nodes, *documents)}
    by_base: dict[str, list[TextNode]] = {}
    for node in nodes:
        base = related_id(node, _PARENT) or related_id(node, _SOURCE)
        if base in texts and base is not None and isinstance(node, TextNode):
            by_base.setdefault(base, []).append(node)
    changed: dict[str, BaseNode] = {}
    for base, chunks in by_base.items():
        noted = [TextChunk(text_of(node), *offsets_of(node), base=base) for node in chunks]
        for node, chunk in zip(chunks, locate(noted, {base: texts[base]}), strict=True):
            changed[node.node_id] = _with_place(node, chunk)
    return [changed.get(node.node_id, node) for node in nodes]


def _with_place(node: TextNode, chunk: TextChunk) -> BaseNode:
    start, end = (chunk.start, chunk.end) if chunk.checked and chunk.text == node.text else (None, None)
    relationships = dict(node.relationships)
    source = relationships.get(_SOURCE)
    if isinstance(source, RelatedNodeInfo):
        marked = source.metadata | {OFFSETS_KEY: "source"}
        relationships[_SOURCE] = source.model_copy(update={"metadata": marked})
    return node.model_copy(
        update={"start_char_idx": start, "end_char_idx": end, "relationships": relationships}
    )

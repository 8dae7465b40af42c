"""Replace the text of hits by a text in their metadata."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from llama_index.core.bridge.pydantic import Field, field_validator
from llama_index.core.schema import (
    BaseNode,
    MediaResource,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    TextNode,
)

from llama_index_ext_ctxaug.engine.flow_postprocessor import FlowPostprocessor
from llama_index_ext_ctxaug.engine.hits import distinct_hits
from llama_index_ext_ctxaug.flow import Flow, finished
from llama_index_ext_ctxaug.passages.joining import JoinedText
from llama_index_ext_ctxaug.passages.passage import Chunk
from llama_index_ext_ctxaug.passages.passage_node import Surroundings, compose, is_text
from llama_index_ext_ctxaug.passages.pieces import Piece, Provenance
from llama_index_ext_ctxaug.passages.provenance import document_of, own_metadata, with_provenance
from llama_index_ext_ctxaug.passages.separators import stripped_space
from llama_index_ext_ctxaug.passages.span import Span
from llama_index_ext_ctxaug.structure.relationships import related_id
from llama_index_ext_ctxaug.windows.metadata_windows import MetadataWindow, Placed, merge_windows

logger = logging.getLogger(__name__)


class MetadataReplacementPostProcessor(FlowPostprocessor):
    """Replace each hit's text by a text in its metadata, such as the window around a sentence.

    A drop-in replacement for LlamaIndex's postprocessor of the same name: only the import changes. Windows
    are written by `SentenceWindowNodeParser`, `SentenceWindowParser` or `WindowExtractor`. It needs no
    docstore and no query.

    **Requires**: nodes with a text under one of the keys.

    **Guarantees**: distinct hits in input order, each with its id, best score, relationships and metadata;
    the input is not changed; the keys are excluded from the text for the LLM and for embedding, so that no
    window is sent twice. A replaced node has no embedding and no character offsets, since those describe its
    own text. With `merge_overlaps` the windows of one source document that overlap or touch become one node,
    in document order, at the rank of its first hit.

    **On failure**: a hit without a text under the keys (blank text included) is returned as the same object,
    with one warning for each run.

    Example:
        ```python
        from llama_index_ext_ctxaug import MetadataReplacementPostProcessor

        engine = index.as_query_engine(
            node_postprocessors=[MetadataReplacementPostProcessor("window", merge_overlaps=True)]
        )
        ```
    """

    target_metadata_key: str | list[str] = Field(
        description="Metadata key of the text that replaces the node's own, or several keys to try in order."
    )
    merge_overlaps: bool = Field(
        default=False, description="Merge windows that overlap or touch into one node, each sentence once."
    )

    def __init__(self, target_metadata_key: str | list[str], **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "target_metadata_key": target_metadata_key})

    @field_validator("target_metadata_key")
    @classmethod
    def _need_a_key(cls, value: str | list[str]) -> str | list[str]:
        if not value:
            raise ValueError(
                f"MetadataReplacementPostProcessor: target_metadata_key is {value!r}; name a metadata key, "
                'such as "window"'
            )
        return value

    @classmethod
    def class_name(cls) -> str:
        """Name under which the postprocessor is serialized."""
        return "MetadataReplacementPostProcessor"

    def _flow(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> Flow[list[NodeWithScore]]:
        return finished(self._replace_all(nodes))

    def _replace_all(self, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        hits, keys = list(distinct_hits(nodes).values()), self._keys
        windows = {hit.node.node_id: _replacement(hit.node, keys) for hit in hits}
        self._warn([hit.node for hit in hits if windows[hit.node.node_id] is None])
        if self.merge_overlaps:
            return self._merged(hits, windows)
        return [self._emit(hit, windows[hit.node.node_id]) for hit in hits]

    @property
    def _keys(self) -> list[str]:
        keys = self.target_metadata_key
        return [keys] if isinstance(keys, str) else keys

    def _warn(self, nodes: Sequence[BaseNode]) -> None:
        if nodes:
            logger.warning(
                "%s: %d hits have no text under %r and keep their own (first: %r, with the metadata keys %r)",
                self.class_name(),
                len(nodes),
                self.target_metadata_key,
                nodes[0].node_id,
                sorted(nodes[0].metadata),
            )

    def _emit(self, hit: Chunk, window: str | None) -> NodeWithScore:
        if window is None and hit.origin is not None:
            return hit.origin
        return NodeWithScore(node=_replaced(hit.node, window or "", self._keys), score=hit.score)

    def _merged(self, hits: Sequence[Chunk], windows: dict[str, str | None]) -> list[NodeWithScore]:
        """Return a node for each group of windows, by the rank of its first hit."""
        by_source: dict[str, list[Chunk]] = {}
        for hit in hits:
            source = related_id(hit.node, NodeRelationship.SOURCE)
            if source is not None and windows[hit.node.node_id] is not None and is_text(hit.node):
                by_source.setdefault(source, []).append(hit)
        ranked: list[tuple[int, NodeWithScore]] = []
        grouped: set[str] = set()
        for source, chunks in by_source.items():
            described = [_window(chunk.node, windows[chunk.node.node_id] or "") for chunk in chunks]
            for group in merge_windows(described):
                if len(group) > 1:
                    members = [chunks[placed.number] for placed in group]
                    grouped.update(member.node.node_id for member in members)
                    node = self._passage(members, described, group, source)
                    ranked.append((min(member.rank for member in members), node))
        ranked += [
            (hit.rank, self._emit(hit, windows[hit.node.node_id]))
            for hit in hits
            if hit.node.node_id not in grouped
        ]
        return [node for _, node in sorted(ranked, key=lambda pair: pair[0])]

    def _passage(
        self, hits: Sequence[Chunk], windows: Sequence[MetadataWindow], group: Sequence[Placed], source: str
    ) -> NodeWithScore:
        members = [windows[placed.number] for placed in group]
        joined = _joined(members, [placed.start for placed in group])
        others = [replace(hit, role="neighbor") for hit in hits]
        passage = compose([*hits, *others], joined, Surroundings(source))
        node = passage.node
        for key in self._keys:
            node.metadata.pop(key, None)
        return passage


def _replacement(node: BaseNode, keys: Sequence[str]) -> str | None:
    """Return the first text under the keys, if there is one."""
    for key in keys:
        value = node.metadata.get(key)
        if isinstance(value, str) and value and not value.isspace():
            return value
    return None


def _window(node: BaseNode, text: str) -> MetadataWindow:
    # Offsets of the children of a hierarchy count from the start of their parent.
    in_document = NodeRelationship.PARENT not in node.relationships
    return MetadataWindow(
        text=text,
        own=node.get_content(metadata_mode=MetadataMode.NONE),
        node_id=node.node_id,
        start=getattr(node, "start_char_idx", None) if in_document else None,
        previous_id=related_id(node, NodeRelationship.PREVIOUS),
        next_id=related_id(node, NodeRelationship.NEXT),
    )


def _joined(windows: Sequence[MetadataWindow], starts: Sequence[int]) -> JoinedText:
    """Join the windows of a group; the spans are those of the hits' own texts, then of their windows."""
    text = ""
    own_spans: list[Span] = []
    for window, start in zip(windows, starts, strict=True):
        if start > len(text):  # windows that touch, with stripped white space between
            text += stripped_space(start - len(text), text, window.text) or " " * (start - len(text))
        text += window.text[len(text) - start :]
        place, own = window.own_place, window.own.strip()
        inner = Span(0, len(window.text)) if place is None else Span(place, place + len(own))
        own_spans.append(Span(start + inner.start, start + inner.end))
    whole = [Span(start, start + len(window.text)) for window, start in zip(windows, starts, strict=True)]
    sources = [window.own_start if window.own_place is not None else None for window in windows]
    return JoinedText(
        text=text,
        spans=(*own_spans, *whole),
        sources=(*sources, *[None] * len(whole)),
        compared=(False,) * 2 * len(whole),
        span=None,
        exact=False,
    )


def _replaced(node: BaseNode, text: str, keys: Sequence[str]) -> BaseNode:
    """Return a copy of a node with another text."""
    copy = node.model_copy()
    # Past pydantic's validation of assignments: the values are what the fields hold, only extended.
    fields = copy.__dict__
    if isinstance(node, TextNode):
        fields["text"] = text
    else:
        fields["text_resource"] = MediaResource(text=text)
    for name in ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys"):
        excluded = fields[name]
        fields[name] = [*excluded, *[key for key in keys if key not in excluded]]
    for name in ("embedding", "text_embedding", "start_char_idx", "end_char_idx"):
        if name in fields:
            fields[name] = None
    window, hits = _window(node, text), (node.node_id,)
    metadata = {key: value for key, value in own_metadata(node).items() if key not in keys}
    own = Piece(node.node_id, "hit", hits, 0, 0, len(text), document_id=document_of(node), metadata=metadata)
    provenance = Provenance("window", hits, pieces=_pieces(window, own), exact=False)
    return with_provenance(copy, provenance)


def _pieces(window: MetadataWindow, whole: Piece) -> tuple[Piece, ...]:
    """Cut the piece of a window: the hit's own text has its place, the rest is its neighbors'."""
    place, own = window.own_place, window.own.strip()
    if place is None:
        return (whole,)
    cuts = (0, place, place + len(own), len(window.text))
    before, middle, after = (
        whole._replace(start=start, end=end, role="neighbor") for start, end in pairwise(cuts)
    )
    middle = middle._replace(role="hit", source_start=window.own_start)
    return tuple(piece for piece in (before, middle, after) if piece.start < piece.end)

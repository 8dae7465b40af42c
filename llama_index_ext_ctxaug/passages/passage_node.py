"""Compose one node from the chunks of a passage."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from llama_index.core.schema import (
    BaseNode,
    ImageNode,
    IndexNode,
    Node,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)

from llama_index_ext_ctxaug.passages.joining import JoinedText
from llama_index_ext_ctxaug.passages.offsets import text_of
from llama_index_ext_ctxaug.passages.passage import Chunk
from llama_index_ext_ctxaug.passages.pieces import Piece, Provenance
from llama_index_ext_ctxaug.passages.provenance import document_of, own_metadata, with_provenance
from llama_index_ext_ctxaug.passages.scores import PassageScore, best_first, passage_score
from llama_index_ext_ctxaug.passages.span import Span

Marks = tuple[str, str]

_EXCLUDED = ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys")
_TEMPLATES = ("metadata_template", "metadata_separator", "text_template")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings of a passage in its document.

    Attributes:
        source_id: id of the source document.
        previous_id: id of the chunk before the passage.
        next_id: id of the chunk after it.
    """

    source_id: str | None = None
    previous_id: str | None = None
    next_id: str | None = None


def is_text(node: BaseNode) -> bool:
    """Return True if a node of any class is text alone; a node with an image or for an index is not."""
    if type(node) is TextNode:  # the fast path for nearly all nodes
        return True
    if isinstance(node, Node):  # a Document is one
        return not (node.image_resource or node.audio_resource or node.video_resource)
    return isinstance(node, TextNode) and not isinstance(node, ImageNode | IndexNode)


def as_text_node(node: BaseNode) -> TextNode:
    """Return a node for which `is_text` holds as a `TextNode`: a new one if it is of another class."""
    if isinstance(node, TextNode):
        return node
    return TextNode(
        id_=node.node_id,
        text=text_of(node),
        relationships=dict(node.relationships),
        metadata=dict(node.metadata),
        **{name: getattr(node, name) for name in (*_EXCLUDED, *_TEMPLATES)},
    )


def compose(
    chunks: Sequence[Chunk],
    joined: JoinedText,
    around: Surroundings,
    *,
    score: PassageScore = "best",
    marks: Marks | None = None,
) -> NodeWithScore:
    """Make one node of chunks, given their joined text.

    Metadata, templates and excluded keys are those of the best hit; each chunk's own metadata is in its
    piece of the provenance.

    Args:
        chunks: text chunks in reading order, at least one.
        joined: their text.
        around: source document, and the chunks outside.
        score: how to combine the scores of hits.
        marks: opening and closing mark around the text of hits; None for no marks.

    Returns:
        A new node. Its id is derived from source, place and text, so that it is the same in every run.
        `start_char_idx` and `end_char_idx` are set only if the text is certain to be that slice of the
        document.
    """
    found = [chunk.role != "neighbor" for chunk in chunks]
    tiles = joined.tiles(found)
    text, shift = _marked(joined, found, marks)
    span = joined.span if marks is None else None
    first, last = chunks[0], chunks[-1]
    provenance = Provenance(
        role="passage",
        hits=tuple(dict.fromkeys(id_ for chunk in chunks for id_ in chunk.hits)),
        stopped_previous=first.stopped_previous,
        stopped_next=last.stopped_next,
        pieces=tuple(_piece(chunks[number], joined, number, span, shift) for number, span in tiles),
        exact=joined.exact,
    )
    node = TextNode(
        id_=passage_id(
            around.source_id,
            (around.source_id and joined.span) or [chunk.node.node_id for chunk in chunks],
            text,
        ),
        text=text,
        start_char_idx=span.start if span else None,
        end_char_idx=span.end if span else None,
        relationships=_relationships(chunks, around),
        **_settings(chunks),
    )
    return NodeWithScore(node=with_provenance(node, provenance), score=_score(chunks, score))


def draft(
    chunks: Sequence[Chunk], joined: JoinedText, *, score: PassageScore = "best", marks: Marks | None = None
) -> NodeWithScore:
    """Make what a model reads of the node that `compose` makes: no id, relationships and provenance."""
    text, _ = _marked(joined, [chunk.role != "neighbor" for chunk in chunks], marks)
    return NodeWithScore(node=TextNode(text=text, **_settings(chunks)), score=_score(chunks, score))


def _score(chunks: Sequence[Chunk], rule: PassageScore) -> float | None:
    return passage_score([(chunk.score, chunk.rank) for chunk in chunks if chunk.role != "neighbor"], rule)


def _marked(joined: JoinedText, found: Sequence[bool], marks: Marks | None) -> tuple[str, _Shift]:
    """Return the text with marks around hits, and by how much they move it."""
    if marks is None:
        return joined.text, _Shift((), ("", ""))
    regions = _union([span for span, hit in zip(joined.spans, found, strict=True) if hit])
    return _mark(joined.text, regions, marks), _Shift(regions, marks)


def passage_id(source_id: str | None, place: Sequence[Any], text: str) -> str:
    """Derive an id that is the same in every process: a UUID of the SHA-256 of source, place and text."""
    data = json.dumps([source_id, list(place), text], ensure_ascii=True).encode()
    return str(UUID(bytes=hashlib.sha256(data).digest()[:16], version=4))


def _piece(chunk: Chunk, joined: JoinedText, number: int, span: Span, shift: _Shift) -> Piece:
    source = joined.sources[number]
    start = None if source is None else source + span.start - joined.spans[number].start
    moved = shift.at(span)
    return Piece(
        node_id=chunk.cut.node_id if chunk.cut else chunk.node.node_id,
        role=chunk.role,
        hits=chunk.hits,
        hops=chunk.hops,
        start=moved.start,
        end=moved.end,
        source_start=start,
        source_end=None if start is None else start + span.end - span.start,
        exact=start is not None and joined.compared[number],
        document_id=document_of(chunk.node),
        metadata=own_metadata(chunk.node),
    )


def _relationships(chunks: Sequence[Chunk], around: Surroundings) -> dict[NodeRelationship, Any]:
    relationships: dict[NodeRelationship, Any] = {}
    sources = [chunk.node.relationships.get(NodeRelationship.SOURCE) for chunk in chunks]
    source = next((info for info in sources if info is not None), None)
    if source is None and around.source_id is not None:
        source = RelatedNodeInfo(node_id=around.source_id)
    if source is not None:
        relationships[NodeRelationship.SOURCE] = source
    if around.previous_id is not None:
        relationships[NodeRelationship.PREVIOUS] = RelatedNodeInfo(node_id=around.previous_id)
    if around.next_id is not None:
        relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id=around.next_id)
    parents = [chunk.node.relationships.get(NodeRelationship.PARENT) for chunk in chunks]
    if isinstance(parents[0], RelatedNodeInfo) and all(
        isinstance(parent, RelatedNodeInfo) and parent.node_id == parents[0].node_id for parent in parents
    ):
        relationships[NodeRelationship.PARENT] = parents[0]
    return relationships


def _settings(chunks: Sequence[Chunk]) -> dict[str, Any]:
    """Return the best hit's metadata and templates; what any chunk hides of the shared metadata is hidden."""
    nodes = [chunk.node for chunk in chunks]
    best = min([chunk for chunk in chunks if chunk.role != "neighbor"] or chunks, key=best_first).node
    metadata = own_metadata(best)

    def is_shared(key: str) -> bool:
        return key in metadata and all(metadata[key] == node.metadata.get(key, ...) for node in nodes)

    settings: dict[str, Any] = {"metadata": metadata}
    for name in _EXCLUDED:
        others = (key for node in nodes for key in getattr(node, name))
        settings[name] = list(dict.fromkeys([*getattr(best, name), *filter(is_shared, others)]))
    for name in (*_TEMPLATES, "mimetype"):
        if hasattr(best, name):
            settings[name] = getattr(best, name)
    return settings


def _union(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Merge the spans that overlap or touch."""
    regions: list[Span] = []
    for span in sorted(spans):
        if regions and span.start <= regions[-1].end:
            regions[-1] = Span(regions[-1].start, max(regions[-1].end, span.end))
        elif span.start < span.end:
            regions.append(span)
    return tuple(regions)


def _mark(text: str, regions: Sequence[Span], marks: Marks) -> str:
    parts: list[str] = []
    place = 0
    for start, end in regions:
        parts += (text[place:start], marks[0], text[start:end], marks[1])
        place = end
    return "".join([*parts, text[place:]])


@dataclass(frozen=True, slots=True)
class _Shift:
    """Moves spans to their places after marks were put around regions."""

    regions: Sequence[Span]
    marks: Marks

    def at(self, span: Span) -> Span:
        """Return the new place of a span that no mark was put into."""
        if not self.regions:
            return span
        opened = bisect_right(self.regions, span.start, key=lambda region: region.start)
        closed = bisect_right(self.regions, span.start, key=lambda region: region.end)
        moved = opened * len(self.marks[0]) + closed * len(self.marks[1])
        return Span(span.start + moved, span.end + moved)

"""Group the passages of one call into runs, each of which becomes one node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from llama_index_ext_ctxaug.engine.chunk_texts import ChunkTexts
from llama_index_ext_ctxaug.passages.passage import Chunk, Passage
from llama_index_ext_ctxaug.passages.passage_node import is_text
from llama_index_ext_ctxaug.passages.span import Span


class Run(NamedTuple):
    """Chunks that become one node, and for each whether it directly follows the one before it."""

    chunks: list[Chunk]
    follows: list[bool]


def runs_of(
    passages: Sequence[Passage], scope: Literal["run", "document"], texts: ChunkTexts
) -> Iterator[Run]:
    """Group passages into runs of text chunks; a node that is more than text is a run of its own.

    Args:
        passages: the passages, by rank.
        scope: "run" for a run for each passage, "document" for one for all passages of a document.
        texts: the texts of the chunks.
    """
    groups = _overlapping(passages, texts) if scope == "run" else _by_document(passages, texts)
    for group in groups:
        run = Run([], [])
        for passage in group:
            for place, chunk in enumerate(passage.chunks):
                if is_text(chunk.node):
                    run.chunks.append(chunk)
                    run.follows.append(place > 0)
                    continue
                if run.chunks:
                    yield run
                yield Run([chunk], [False])
                run = Run([], [])
        if run.chunks:
            yield run


def _overlapping(passages: Sequence[Passage], texts: ChunkTexts) -> list[list[Passage]]:
    """Group passages that share text of a document though no link joins them; groups by rank."""
    documents: dict[str, dict[int, Span]] = {}
    for number, passage in enumerate(passages):
        document = texts.expansion.links.source(passage.chunks[0].node)
        span = None if document is None else texts.span(passage)
        if document is not None and span is not None:
            documents.setdefault(document, {})[number] = span
    groups = {number: [number] for number in range(len(passages))}
    for spans in documents.values():
        if len(spans) > 1:
            for group in _sharing(spans, passages, texts):
                for number in group:
                    del groups[number]
                groups[min(group)] = group
    return [[passages[number] for number in groups[first]] for first in sorted(groups)]


def _sharing(spans: Mapping[int, Span], passages: Sequence[Passage], texts: ChunkTexts) -> list[list[int]]:
    """Group passages of one document in reading order, each with those that begin before it ends."""
    groups: list[list[int]] = []
    reach = 0  # the passage that ends last in the group
    for number in sorted(spans, key=lambda number: (spans[number].start, -spans[number].end)):
        if groups and texts.share(passages[reach], passages[number]):
            groups[-1].append(number)
            reach = max(reach, number, key=lambda number: spans[number].end)
        else:
            groups.append([number])
            reach = number
    return groups


def _by_document(passages: Sequence[Passage], texts: ChunkTexts) -> list[list[Passage]]:
    """Return the passages of each document in reading order; documents by rank."""
    documents: dict[Any, list[Passage]] = {}
    for passage in passages:
        document = texts.expansion.links.document(passage.chunks[0].node)
        documents.setdefault(document, []).append(passage)
    groups = [group for document in documents.values() for group in _in_order(document, texts)]
    return sorted(groups, key=lambda group: min(passage.rank for passage in group))


def _in_order(document: Sequence[Passage], texts: ChunkTexts) -> list[list[Passage]]:
    """Return the passages of one document in reading order, page by page; by rank where it is unknown.

    Pages that are kept apart are a group each.
    """
    links = texts.expansion.links
    sources: dict[str, list[Passage]] = {}
    for passage in document:
        node = passage.chunks[0].node
        sources.setdefault(links.source(node) or node.node_id, []).append(passage)
    for same_source in sources.values():
        places = {id(passage): _place(passage.chunks[0], texts) for passage in same_source}
        if len({kind for kind, _ in places.values()}) == 1:
            same_source.sort(key=lambda passage: places[id(passage)])
    in_order = list(sources.values())
    pages = links.page_places([same_source[0].chunks[0].node for same_source in in_order])
    if pages is None:
        return in_order
    return [[passage for place in pages for passage in in_order[place]]]


def _place(chunk: Chunk, texts: ChunkTexts) -> tuple[str, int]:
    """Return where a chunk starts: by offset, else in the docstore's list, else unknown."""
    text = texts.of(chunk)
    if text.offsets_fit and text.source_start is not None:
        return ("offset", text.source_start)
    links = texts.expansion.links
    order = links.reader.documents.get(links.source(chunk.node) or "")
    place = order.places.get(chunk.node.id_) if order else None
    return ("unknown", 0) if place is None else ("list", place)

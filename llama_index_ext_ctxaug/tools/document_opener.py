"""Open documents at places and at hits: load the chunks around them and join their text."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core.schema import BaseNode, NodeWithScore

from llama_index_ext_ctxaug.docstores.batch_reader import ReadRequest
from llama_index_ext_ctxaug.engine.chunk_texts import ChunkTexts
from llama_index_ext_ctxaug.engine.docstore_postprocessor import DocstorePostprocessor
from llama_index_ext_ctxaug.engine.grouping import Run, runs_of
from llama_index_ext_ctxaug.engine.hits import distinct_hits
from llama_index_ext_ctxaug.engine.options import OutputOptions
from llama_index_ext_ctxaug.engine.rendering import Renderer
from llama_index_ext_ctxaug.expansion.expansion import Expansion, Reach
from llama_index_ext_ctxaug.expansion.walk import Walk
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.passages.offsets import text_of
from llama_index_ext_ctxaug.passages.passage import Chunk, Passage
from llama_index_ext_ctxaug.passages.passage_node import is_text
from llama_index_ext_ctxaug.passages.pieces import Provenance
from llama_index_ext_ctxaug.passages.provenance import with_provenance
from llama_index_ext_ctxaug.structure.headings import Sections
from llama_index_ext_ctxaug.tools.handles import PassageEdge
from llama_index_ext_ctxaug.tools.open_document import Beyond, OpenDocument

LOOK_AHEAD = 24
"""Chunks to load beyond those asked for, if that costs no further read: they show where the section ends."""

MAX_HOPS = 64
"""Maximum chunks to load on each side, one read after another, if the store lists no chunks of documents."""


class DocumentOpener(DocstorePostprocessor, OutputOptions):
    """Opens documents at places, with the parameters of all augmenters."""

    def open(
        self, edge: PassageEdge, source_id: str | None, sections: Sections, *, before: int, after: int
    ) -> Flow[OpenDocument | None]:
        """Load the chunks around a place: in two reads if the store lists the chunks of documents.

        Args:
            edge: the place; an offset of None is the end of its chunk.
            source_id: id of its document, if known.
            sections: finds headings.
            before: chunks to load before it.
            after: chunks to load after it.

        Returns:
            The document; None if there is no such chunk, it is no text, or `neighbor_filters` refuse it.
        """
        documents = () if source_id is None else (source_id,)
        first = self._new_expansion({}).reader
        yield from first.fetch([ReadRequest(nodes=(edge.node_id,), documents=documents)])
        node = first.node(edge.node_id)
        if node is None or not is_text(node):
            return None
        expansion = self._new_expansion({node.node_id: Chunk(node, "hit", (node.node_id,), rank=0)})
        if expansion.refusal(node) is not None:
            return None
        reader = expansion.reader
        reader.stored.update(first.stored)
        reader.documents.update(first.documents)
        walks = yield from self._walks(expansion, node, before, after)
        return self._opened(expansion, node, edge.offset, walks, sections)

    def open_hits(self, hits: Sequence[NodeWithScore], sections: Sections) -> Flow[list[OpenDocument]]:
        """Open the documents of hits at the hits; hits that touch are in one run.

        Returns:
            The runs by rank, without hits that `neighbor_filters` refuse; each is opened at its start.
        """
        chunks = distinct_hits(hits)
        expansion = self._new_expansion(chunks)
        for id_, chunk in chunks.items():
            if expansion.refusal(chunk.node) is not None:
                del expansion.chunks[id_]
        sources = {expansion.links.source(chunk.node): None for chunk in expansion.chunks.values()}
        listed = [source for source in sources if source is not None]
        yield from expansion.reader.fetch([ReadRequest(nodes=listed, documents=listed)])
        renderer = Renderer(self, ChunkTexts(expansion), _emit)
        passages = expansion.passages()
        renderer.texts.place(passages)
        found = []
        for run in runs_of(passages, "run", renderer.texts):
            first, last = run.chunks[0].node, run.chunks[-1].node
            before = self._beyond(expansion, first, None, -1)
            after = self._beyond(expansion, last, None, 1)
            found.append(OpenDocument(run, renderer.join(run), 0, 0, before, after, renderer, sections))
        return found

    def _walks(self, expansion: Expansion, node: BaseNode, before: int, after: int) -> Flow[list[Walk]]:
        sides = (before + LOOK_AHEAD if before else 0, after + LOOK_AHEAD if after else 0)
        source = expansion.links.source(node)
        if source is not None:
            yield from expansion.reader.fetch([ReadRequest(documents=(source,))])
        ids = self._list_of(expansion, node)
        text = (source,) if source is not None and self.read_source else ()
        if node.node_id in ids:
            place = ids.index(node.node_id)
            around = ids[max(0, place - sides[0]) : place + sides[1] + 1]
            yield from expansion.reader.fetch([ReadRequest(nodes=(*around, *text))])
        else:
            yield from expansion.reader.fetch([ReadRequest(nodes=text)])
            sides = (min(before, MAX_HOPS), min(after, MAX_HOPS))  # each chunk costs a read
        reach = Reach(previous=sides[0], next=sides[1], read_ahead=max(sides))
        return (yield from expansion.walk({node.node_id: reach}))

    def _opened(
        self,
        expansion: Expansion,
        node: BaseNode,
        offset: int | None,
        walks: list[Walk],
        sections: Sections,
    ) -> OpenDocument:
        sides = {walk.direction: walk for walk in walks}
        previous, following = (sides[side].node_ids if side in sides else [] for side in ("previous", "next"))
        found = (expansion.reader.node(id_) for id_ in (*reversed(previous), node.node_id, *following))
        run = Run([], [])
        skipped = True
        for other in found:
            if other is None or not is_text(other):
                skipped = True
                continue
            run.chunks.append(_chunk(other, node.node_id))
            run.follows.append(not skipped)
            skipped = False
        renderer = Renderer(self, ChunkTexts(expansion), _emit)
        renderer.texts.place([Passage(run.chunks)])
        joined = renderer.join(run)
        anchor = next(n for n, chunk in enumerate(run.chunks) if chunk.node.node_id == node.node_id)
        size = len(text_of(node))
        return OpenDocument(
            run,
            joined,
            anchor,
            joined.spans[anchor].end - (0 if offset is None else max(0, size - offset)),
            self._beyond(expansion, node, sides.get("previous"), -1),
            self._beyond(expansion, node, sides.get("next"), 1),
            renderer,
            sections,
        )

    def _beyond(self, expansion: Expansion, node: BaseNode, walk: Walk | None, step: int) -> Beyond:
        """Return what is beyond a walk, by the document's list if that has the walked chunks in a row."""
        if walk is not None and walk.stopped == "document_end":
            return Beyond(0)
        if walk is not None and walk.stopped != "count":
            return Beyond(None, blocked=True)
        ids = self._list_of(expansion, node)
        walked = [node.node_id, *(walk.node_ids if walk else ())]
        if node.node_id not in ids or expansion.links.parent(node) is not None:
            return Beyond(None)
        place = ids.index(node.node_id)
        listed = ids[place : place + len(walked)] if step > 0 else ids[: place + 1][::-1][: len(walked)]
        if list(listed) != walked:
            return Beyond(None)
        return Beyond(len(ids) - place - len(walked) if step > 0 else place + 1 - len(walked))

    def _list_of(self, expansion: Expansion, node: BaseNode) -> tuple[str, ...]:
        order = expansion.reader.documents.get(expansion.links.source(node) or "")
        return order.ids if order else ()


def _chunk(node: BaseNode, anchor_id: str) -> Chunk:
    if node.node_id == anchor_id:
        return Chunk(node, "hit", (anchor_id,), rank=0)
    return Chunk(node, "neighbor", (anchor_id,), rank=0, hops=1)


def _emit(chunk: Chunk) -> NodeWithScore:
    if chunk.origin is not None:
        return chunk.origin
    return NodeWithScore(node=with_provenance(chunk.node, Provenance(chunk.role, chunk.hits, chunk.hops)))

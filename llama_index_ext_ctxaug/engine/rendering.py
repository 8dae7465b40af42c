"""Write runs of chunks as nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from llama_index.core.schema import NodeWithScore

from llama_index_ext_ctxaug.engine.chunk_texts import ChunkTexts
from llama_index_ext_ctxaug.engine.grouping import Run
from llama_index_ext_ctxaug.engine.options import OutputOptions
from llama_index_ext_ctxaug.passages.joining import JoinedText, join_located
from llama_index_ext_ctxaug.passages.passage import Chunk
from llama_index_ext_ctxaug.passages.passage_node import Surroundings, compose, draft


@dataclass
class Renderer:
    """Write runs of chunks as nodes; the text of a run is joined once.

    Attributes:
        options: the parameters of the output.
        texts: the texts of the chunks.
        emit: makes a node from a single chunk.
    """

    options: OutputOptions
    texts: ChunkTexts
    emit: Callable[[Chunk], NodeWithScore]
    _joined: dict[tuple[tuple[str, bool], ...], JoinedText] = field(default_factory=dict)

    def node(self, run: Run) -> NodeWithScore:
        """Write a run as one node."""
        if len(run.chunks) == 1 and not (self.options.table_headers and self.texts.of(run.chunks[0]).header):
            return self.emit(run.chunks[0])
        return compose(
            run.chunks,
            self.join(run),
            self._around(run.chunks),
            score=self.options.passage_score,
            marks=self.options.mark_hits,
        )

    def draft(self, run: Run) -> NodeWithScore:
        """Write what a model reads of a run, without provenance: cheaper, to count its tokens."""
        if len(run.chunks) == 1:
            return self.emit(run.chunks[0])
        options = self.options
        return draft(run.chunks, self.join(run), score=options.passage_score, marks=options.mark_hits)

    def join(self, run: Run) -> JoinedText:
        """Join the text of a run."""
        key = tuple((chunk.node.id_, follows) for chunk, follows in zip(*run, strict=True))
        if key not in self._joined:
            texts = [self.texts.of(chunk) for chunk in run.chunks]
            chunks = [
                text if text.follows == follows else text._replace(follows=follows)
                for text, follows in zip(texts, run.follows, strict=True)
            ]
            options = self.options
            self._joined[key] = join_located(
                chunks, self.texts.documents, options.hole_separator, options.chunk_separator
            )
        return self._joined[key]

    def _around(self, chunks: Sequence[Chunk]) -> Surroundings:
        links = self.texts.expansion.links
        inside = {chunk.node.id_ for chunk in chunks}
        before = links.beside_loaded(chunks[0].node, "previous")
        after = links.beside_loaded(chunks[-1].node, "next")
        return Surroundings(
            source_id=links.source(chunks[0].node),
            previous_id=None if before in inside else before,
            next_id=None if after in inside else after,
        )

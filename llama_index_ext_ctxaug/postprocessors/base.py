"""The engine of all augmenters: distinct hits in, chunks chosen by a policy, output nodes."""

from __future__ import annotations

import logging
from dataclasses import replace

from llama_index.core.bridge.pydantic import Field
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index_ext_ctxaug.budget.fit import BudgetFit, Parts, keep, mark_cuts
from llama_index_ext_ctxaug.budget.tokenizer import budget_details, report_budget
from llama_index_ext_ctxaug.docstores.batch_reader import ReadRequest
from llama_index_ext_ctxaug.engine.docstore_postprocessor import DocstorePostprocessor
from llama_index_ext_ctxaug.engine.hits import distinct_hits
from llama_index_ext_ctxaug.engine.instrumentation import current_report
from llama_index_ext_ctxaug.engine.options import OutputOptions
from llama_index_ext_ctxaug.engine.output import Writer
from llama_index_ext_ctxaug.errors import ContextAugmentationError, MissingNodeError, RefusedNodeError
from llama_index_ext_ctxaug.expansion.expansion import Expansion
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.passages.passage import Chunk, Passage
from llama_index_ext_ctxaug.passages.pieces import Provenance
from llama_index_ext_ctxaug.passages.provenance import with_provenance
from llama_index_ext_ctxaug.passages.scores import NeighborScore, neighbor_score
from llama_index_ext_ctxaug.windows.chunk_parts import marked_part

logger = logging.getLogger(__name__)


class ContextAugmenter(DocstorePostprocessor, OutputOptions):
    """The base class of augmenters that read a docstore; a subclass is one policy.

    A subclass implements `expand`: it calls `expansion.expand(...)` or edits `expansion.chunks`. The engine
    does the rest: distinct hits, reading, order, scores, warnings, events, output.

    **Guarantees**: every distinct hit is in the output exactly once with its own (best) score, as the same
    object, unchanged. Chunks of a document that touch are in document order. Input and stored nodes are
    never changed. No neighbor is of another document or refused by the filters. With `output="passages"`
    chunks that touch become one node, without repeated text; a hit without neighbors stays the same object.
    With `token_budget` the output text is within it, unless the best hit alone exceeds it (never with
    `budget_unit="sentence"`); hits that do not fit are dropped, the worst first, with a warning. A node
    that an augmenter added or made does not expand again.

    **On failure**: an error of the docstore is raised, unless `on_store_error="return_hits"`. A neighbor
    that is not in the docstore ends the expansion there, with one warning per call, unless `strict=True`.
    """

    neighbor_score: NeighborScore = Field(
        default="none",
        description="Score of added nodes: none, inherit (that of the nearest hit), decay (less each hop).",
    )
    score_decay: float = Field(
        default=0.5, gt=0, le=1, description='Factor per hop with neighbor_score="decay".'
    )

    def expand(self, expansion: Expansion, query: QueryBundle | None) -> Flow[None]:
        """Choose the output chunks: expand hits, or edit the chunks.

        Args:
            expansion: the chunks of this call, at first the hits.
            query: the query, if there is one.

        Returns:
            A flow that reads what it needs; a policy without reads may be a plain method returning None.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement expand")

    def _flow(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> Flow[list[NodeWithScore]]:
        hits = distinct_hits(nodes)
        expansion = self._new_expansion(hits)
        writer = Writer(self, expansion, self._emit)
        try:
            choosing: Flow[None] | None = self.expand(expansion, query)
            if choosing is not None:
                yield from choosing
            yield from self._report_missing(expansion)
            passages = self._passages(expansion)
            yield from writer.place(passages)
        except Exception as error:
            if error is not expansion.reader.error or self.on_store_error == "raise":
                raise
            logger.error("%s: the docstore failed, returning hits only: %r", self.class_name(), error)  # noqa: TRY400
            expansion.chunks = dict(hits)
            passages = self._passages(expansion)
        yield from writer.prepare()
        query_str = query.query_str if query else None
        found = writer.fit(passages, query_str, lambda kept: self._output(kept, writer))
        if found is not None:
            passages = self._cut(expansion, passages, *found)
        self._add_figures(expansion, found[0] if found else None)
        output = self._output(passages, writer)
        for warning in expansion.links.warnings():
            logger.warning("%s: %s", self.class_name(), warning)
        return output

    def _passages(self, expansion: Expansion) -> list[Passage]:
        """Return the chunks in reading order, those that touch joined."""
        return expansion.passages()

    def _output(self, passages: list[Passage], writer: Writer) -> list[NodeWithScore]:
        """Return the output nodes of the passages that are within the budget."""
        return writer.write(passages)

    def _cut(
        self, expansion: Expansion, passages: list[Passage], filling: BudgetFit, parts: Parts
    ) -> list[Passage]:
        """Keep what fits the budget; warn of dropped hits."""
        # A policy with priorities drops hits on purpose: that is no reason to warn.
        reported = filling if expansion.priority is None else replace(filling, dropped_hits=())
        report_budget(self.class_name(), self.token_budget, reported)
        sides = mark_cuts(passages, filling.kept, parts)
        if sides:
            expansion.stops["budget"] += sides
        return keep(passages, filling.kept, parts)

    def _add_figures(self, expansion: Expansion, filling: BudgetFit | None) -> None:
        report = current_report()
        report.reads += expansion.reader.reads
        report.round_trips += expansion.reader.round_trips
        report.stop_reasons.update(expansion.stops)
        if filling is not None:
            report.tokens = filling.tokens
            report.details |= budget_details(filling)

    def _emit(self, chunk: Chunk) -> NodeWithScore:
        if chunk.origin is not None:
            return chunk.origin
        score = chunk.score
        if chunk.role == "neighbor":
            score = neighbor_score(score, chunk.hops, self.neighbor_score, self.score_decay)
        if chunk.cut is not None:
            return NodeWithScore(node=marked_part(chunk), score=score)
        provenance = Provenance(
            chunk.role, chunk.hits, chunk.hops, chunk.stopped_previous, chunk.stopped_next
        )
        return NodeWithScore(node=with_provenance(chunk.node, provenance), score=score)

    def _report_missing(self, expansion: Expansion) -> Flow[None]:
        """Warn once, or raise if `strict`, of all nodes that are missing or could not be taken."""
        reader, hits = expansion.reader, expansion.hits
        if reader.stored and all(node is None for node in reader.stored.values()):
            yield from reader.fetch([ReadRequest(copies=list(hits))])
            if all(reader.copy(id_) is None for id_ in hits):
                self._complain(
                    f"0 of {len(hits)} hits are in this docstore, so no neighbor can be found. A vector "
                    "store that keeps the text leaves the docstore empty, and the docstore of an ingestion "
                    "pipeline holds documents, not their chunks: call docstore.add_documents(nodes)"
                )
                return
        problems = []
        if expansion.missing:
            first = next(iter(expansion.missing))
            problems.append(
                f"{len(expansion.missing)} linked nodes are not in the docstore (the first is {first!r}); "
                "expansion ended there"
            )
        if expansion.refused:
            first, reason = next(iter(expansion.refused.items()))
            problems.append(
                f"{len(expansion.refused)} linked nodes could not be taken (the first is {first!r}: {reason})"
            )
        if problems:
            self._complain("; ".join(problems), MissingNodeError if expansion.missing else RefusedNodeError)

    def _complain(self, message: str, error: type[ContextAugmentationError] = MissingNodeError) -> None:
        if self.strict:
            raise error(f"{self.class_name()}: {message}")
        logger.warning("%s: %s", self.class_name(), message)

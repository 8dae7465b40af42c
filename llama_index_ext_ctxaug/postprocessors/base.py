"""What all augmenters share: hits in, passages chosen by the policy, nodes out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from llama_index.core.bridge.pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    field_serializer,
    field_validator,
)
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.vector_stores import MetadataFilters

from llama_index_ext_ctxaug.budget.fit import BudgetFit, keep, mark_cuts
from llama_index_ext_ctxaug.budget.tokenizer import budget_details, report_budget
from llama_index_ext_ctxaug.docstores.batch_reader import BatchReader, ReadRequest
from llama_index_ext_ctxaug.engine.options import OutputOptions
from llama_index_ext_ctxaug.engine.output import Writer
from llama_index_ext_ctxaug.errors import ContextAugmentationError, MissingNodeError, RefusedNodeError
from llama_index_ext_ctxaug.events import (
    ContextAugmentationEndEvent,
    ContextAugmentationStartEvent,
    has_listeners,
)
from llama_index_ext_ctxaug.expansion.expansion import Expansion
from llama_index_ext_ctxaug.expansion.filters import NeighborFilter, node_filter
from llama_index_ext_ctxaug.expansion.walk import Filter
from llama_index_ext_ctxaug.flow import Flow, arun, run
from llama_index_ext_ctxaug.passages.passage import Chunk, Passage
from llama_index_ext_ctxaug.passages.provenance import Provenance, read_provenance, with_provenance
from llama_index_ext_ctxaug.passages.scores import NeighborScore, neighbor_score, score_key
from llama_index_ext_ctxaug.structure.adjacency import Adjacency
from llama_index_ext_ctxaug.structure.pages import PageOrder

logger = logging.getLogger(__name__)
dispatcher = get_dispatcher(__name__)


class FlowPostprocessor(BaseNodePostprocessor):
    """A postprocessor whose algorithm is written once, as a flow, and runs sync and async alike."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    @classmethod
    def class_name(cls) -> str:
        """Name under which the postprocessor is serialized: that of the class."""
        return cls.__name__

    # Not an abstract method: LlamaIndex wraps the implementation of those in a span, which ends before
    # a generator has begun, and costs as much as reading ten nodes from memory.
    def _flow(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> Flow[list[NodeWithScore]]:
        """The algorithm: hits in, nodes out; it yields steps for all I/O."""
        raise NotImplementedError(f"{type(self).__name__} does not say what to do: it has no _flow")

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return run(self._flow(nodes, query_bundle))

    @dispatcher.span
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return await arun(self._flow(nodes, query_bundle))


def _explain_wrong_docstore(value: Any) -> Any:
    if isinstance(value, BaseDocumentStore):
        return value
    kind = type(value).__name__
    if isinstance(getattr(value, "docstore", None), BaseDocumentStore):
        hint = f"the docstore of this {kind} is its attribute: pass docstore=....docstore"
    elif isinstance(value, Sequence) and not isinstance(value, str):
        hint = "put the nodes into a store: docstore = SimpleDocumentStore(); docstore.add_documents(nodes)"
    else:
        hint = "pass index.docstore, storage_context.docstore, or another store that holds the nodes"
    raise ValueError(f"docstore must be a BaseDocumentStore, got {kind}; {hint}")


class ContextAugmenter(FlowPostprocessor, OutputOptions):
    """The engine of all augmenters that read a docstore; a subclass is one policy.

    A subclass implements `expand`: it calls `expansion.expand(...)` or edits `expansion.chunks`, and the
    engine does the rest: distinct hits, reading, order, scores, warnings, events, output.

    **Guarantees**: every distinct hit goes out exactly once with its own (best) score, as the very
    object that came in; chunks of a document that touch stand in document order; nothing that came in,
    nor what the store holds, is changed; no neighbor of another document or refused by the filters. With
    `output="passages"` chunks that touch become one node, text that they share standing once; a hit to
    which nothing is added is still the object that came in. With `token_budget` the text that goes out is
    within it, except that the best hit is kept where it alone is over it; hits that do not fit are dropped,
    the worst first, with a warning. A node that an augmenter added or made does not grow again.

    **On failure**: what the docstore raises is raised, unless `on_store_error="return_hits"`; a neighbor
    that is not in the docstore ends the expansion there, with one warning a call, unless `strict=True`.
    """

    docstore: Annotated[BaseDocumentStore, BeforeValidator(_explain_wrong_docstore)] = Field(
        description="The document store that holds the nodes.", exclude=True
    )
    neighbor_score: NeighborScore = Field(
        default="none",
        description="Score of added nodes: none, inherit (that of the nearest hit), decay (less each hop).",
    )
    score_decay: float = Field(
        default=0.5, gt=0, le=1, description='Factor for each hop under neighbor_score="decay".'
    )
    neighbor_filters: MetadataFilters | NeighborFilter | None = Field(
        default=None, description="Which nodes may be added: LlamaIndex's MetadataFilters, or a function."
    )
    strict: bool = Field(default=False, description="Raise where a neighbor is not in the docstore.")
    on_store_error: Literal["raise", "return_hits"] = Field(
        default="raise", description="What happens when the docstore raises."
    )
    timeout: float | None = Field(
        default=None,
        gt=0,
        description="Most seconds to wait for one read of the docstore; then it has failed (TimeoutError).",
    )
    max_concurrency: int = Field(
        default=8,
        ge=1,
        description="Most reads at a time where the docstore is slow and reads nodes one by one only.",
    )
    repair_links: bool = Field(
        default=True, description="Look for the neighbors of nodes that lack their own relationships."
    )
    previous_id_key: str = Field(default="prev_id", description="Metadata key of the id of the node before.")
    next_id_key: str = Field(default="next_id", description="Metadata key of the id of the node after.")
    document_key: str | None = Field(
        default=None,
        description="Metadata key (such as file_path) that makes documents of one file count as one.",
    )
    page_key: str = Field(
        default="page_label", description="Metadata key that orders the documents of one file."
    )

    @field_validator("neighbor_filters", mode="before")
    @classmethod
    def _refuse_lost_filter(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(  # noqa: TRY004
                f"neighbor_filters was the function {value!r}, which cannot be saved: "
                "pass it again, from_dict(data, docstore=..., neighbor_filters=...)"
            )
        return value

    @field_serializer("neighbor_filters", when_used="always")
    def _name_function(self, value: Any) -> Any:
        if callable(value):
            return getattr(value, "__qualname__", repr(type(value)))
        return value

    def expand(self, expansion: Expansion, query: QueryBundle | None) -> Flow[None]:
        """The policy: decide which chunks go out, by growing from the hits or by editing the chunks.

        A policy that reads nothing may be a plain method that returns None.
        """
        raise NotImplementedError(f"{type(self).__name__} has no policy: it has no expand")

    def _flow(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> Flow[list[NodeWithScore]]:
        hits = distinct_hits(nodes)
        if not hits:
            return []
        name = self.class_name()
        if observed := has_listeners(dispatcher):
            dispatcher.event(
                ContextAugmentationStartEvent(
                    augmenter=name, num_hits=len(hits), query_str=query.query_str if query else None
                )
            )
        expansion = self._new_expansion(hits)
        writer = Writer(self, expansion, self._emit)
        try:
            choosing: Flow[None] | None = self.expand(expansion, query)
            if choosing is not None:
                yield from choosing
            yield from self._report_missing(expansion)
            passages = self._passages(expansion)
            yield from expansion.reader.fetch([ReadRequest(nodes=writer.texts_to_read(passages))])
        except Exception as error:
            if error is not expansion.reader.error or self.on_store_error == "raise":
                raise
            logger.error("%s: the docstore failed, the hits go out alone: %r", name, error)  # noqa: TRY400
            expansion.chunks = dict(hits)
            passages = self._passages(expansion)
        yield from writer.prepare()
        filling = writer.fit(passages)
        if filling is not None:
            passages = self._cut(expansion, passages, filling)
        result = self._output(passages, writer)
        if observed:
            dispatcher.event(
                ContextAugmentationEndEvent(
                    augmenter=name,
                    num_hits=len(hits),
                    num_nodes=len(result),
                    added_node_ids=[
                        c.node.id_ for p in passages for c in p.chunks if c.origin is None and c.role != "hit"
                    ],
                    reads=expansion.reader.reads,
                    round_trips=expansion.reader.round_trips,
                    tokens=filling.tokens if filling else None,
                    stop_reasons=dict(expansion.stops),
                    details=budget_details(filling),
                )
            )
        return result

    def _new_expansion(self, hits: dict[str, Chunk]) -> Expansion:
        reader = BatchReader(
            self.docstore,
            {id_: chunk.node for id_, chunk in hits.items()},
            max_concurrency=self.max_concurrency,
            timeout=self.timeout,
        )
        pages = PageOrder(reader, self.document_key, self.page_key) if self.document_key else None
        links = Adjacency(
            reader,
            repair=self.repair_links,
            previous_key=self.previous_id_key,
            next_key=self.next_id_key,
            pages=pages,
        )
        return Expansion(hits, links, self._filter())

    def _filter(self) -> Filter | None:
        passes = node_filter(self.neighbor_filters)
        if passes is None:
            return None
        return lambda node: None if passes(node) else "filter"

    def _passages(self, expansion: Expansion) -> list[Passage]:
        """The chunks as they go out: in reading order, those that touch joined."""
        return expansion.passages()

    def _output(self, passages: list[Passage], writer: Writer) -> list[NodeWithScore]:
        """The nodes that go out, of the passages that are left after the budget."""
        return writer.write(passages)

    def _cut(self, expansion: Expansion, passages: list[Passage], filling: BudgetFit) -> list[Passage]:
        """Only what the budget holds, with a warning where that is not as wanted."""
        # A policy that says what chunks are worth means to drop hits: that is no reason to warn.
        reported = filling if expansion.priority is None else replace(filling, dropped_hits=())
        report_budget(self.class_name(), self.token_budget, reported)
        sides = mark_cuts(passages, filling.kept)
        if sides:
            expansion.stops["budget"] += sides
        return keep(passages, filling.kept)

    def _emit(self, chunk: Chunk) -> NodeWithScore:
        if chunk.origin is not None:
            return chunk.origin
        provenance = Provenance(
            chunk.role, chunk.hits, chunk.hops, chunk.stopped_previous, chunk.stopped_next
        )
        score = chunk.score
        if chunk.role == "neighbor":
            score = neighbor_score(score, chunk.hops, self.neighbor_score, self.score_decay)
        return NodeWithScore(node=with_provenance(chunk.node, provenance), score=score)

    def _report_missing(self, expansion: Expansion) -> Flow[None]:
        """One warning, or with `strict` an error, for all that is not there or could not be taken."""
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


def distinct_hits(nodes: Sequence[NodeWithScore]) -> dict[str, Chunk]:
    """The hits by node id, in order of rank; of a repeated one the first place and the best score."""
    hits: dict[str, Chunk] = {}
    for rank, hit in enumerate(nodes):
        node_id = hit.node.id_
        known = hits.get(node_id)
        if known is None:
            hits[node_id] = _incoming(hit, rank)
        elif score_key(hit.score) > score_key(known.score):
            hits[node_id] = _incoming(hit, known.rank)
    return hits


def distinct_nodes(nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """The distinct nodes that came in, as `distinct_hits` chooses them."""
    return [chunk.origin for chunk in distinct_hits(nodes).values() if chunk.origin is not None]


def _incoming(hit: NodeWithScore, rank: int) -> Chunk:
    """A node that came in: a hit, or a neighbor where an augmenter before this one added it."""
    provenance = read_provenance(hit.node)
    if provenance is None or provenance.role != "neighbor":
        return Chunk(hit.node, "hit", (hit.node.id_,), rank=rank, score=hit.score, origin=hit)
    return Chunk(hit.node, "neighbor", provenance.hits, rank, provenance.hops, score=hit.score, origin=hit)

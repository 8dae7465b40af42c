"""The ways of giving context that `evidence.py` compares, all over the same chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from evidence_data import Chunks, Span, distinct
from llama_index.core.postprocessor import MetadataReplacementPostProcessor as UpstreamReplacement
from llama_index.core.postprocessor import PrevNextNodePostprocessor as UpstreamPrevNext
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.retrievers import AutoMergingRetriever, BaseRetriever
from llama_index.core.schema import (
    BaseNode,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.storage import StorageContext
from llama_index.core.storage.docstore.types import RefDocInfo

from llama_index_ext_ctxaug import (
    AutoMergingPostprocessor,
    BRSRPostprocessor,
    MetadataReplacementPostProcessor,
    PrevNextNodePostprocessor,
    RelevantSegmentExtractionPostprocessor,
    RelevantSegmentsPostprocessor,
    SectionPostprocessor,
    SlidingWindowPostprocessor,
    TokenBudgetPostprocessor,
    WholeDocumentsPostprocessor,
    WindowExtractor,
    read_provenance,
)
from llama_index_ext_ctxaug.testing import ObservedDocstore, docstore_of

FAMILY = 4
"""Chunks under one parent, and parents under one grandparent, for merging."""

RERANKED_HITS = 10
"""Hits from which a way grows that reranks what it has grown."""

ALL = 10_000
"""More nodes than any pool grows to, where only the budget is to limit the output."""

Call = Callable[[list[NodeWithScore], str, int], list[NodeWithScore]]
Chain = Callable[[list[NodeWithScore], str], list[NodeWithScore]]


class CountingStore(ObservedDocstore):
    """A docstore that counts the keys read, and builds nodes anew only while it is timed."""

    def __init__(self, nodes: Iterable[BaseNode]) -> None:
        self._held = {node.node_id: node for node in nodes}
        self._documents: dict[str, RefDocInfo | None] = {}
        self.timed = False
        super().__init__(docstore_of(list(self._held.values())))

    @property
    def reads(self) -> int:
        """Return the number of keys read so far."""
        return len(self.node_reads) + len(self.document_reads)

    def get_nodes(self, node_ids: list[str], raise_error: bool = True) -> list[BaseNode]:
        """Return nodes by id, without the missing ones."""
        if self.timed:
            return super().get_nodes(node_ids, raise_error)
        return [self._held[id_] for id_ in node_ids if raise_error or id_ in self._held]

    def get_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
        """Return one node."""
        if self.timed:
            return super().get_document(doc_id, raise_error)
        return self._held[doc_id] if raise_error else self._held.get(doc_id)

    def get_ref_doc_info(self, ref_doc_id: str) -> RefDocInfo | None:
        """Return the nodes of a document."""
        if self.timed or ref_doc_id not in self._documents:
            self._documents[ref_doc_id] = super().get_ref_doc_info(ref_doc_id)
        return self._documents[ref_doc_id]


@dataclass
class Way:
    """A way of giving context: hits in, nodes out.

    Attributes:
        call: the hits, the question, the budget in tokens (0 where it does not matter).
        store: the docstore that it reads.
        spans: returns the place of the text of a node.
        budgeted: it takes the whole pool and fills the budget by itself.
        reranked: it embeds the expanded text.
    """

    call: Call
    store: CountingStore
    spans: Callable[[BaseNode], list[Span]]
    budgeted: bool = False
    reranked: bool = False


class Ways:
    """Makes ways over the same chunks, with a method for each kind.

    Args:
        chunks: the chunks.
        scorer: ranks nodes by the question, for ways that rerank.
    """

    def __init__(self, chunks: Chunks, scorer: BaseNodePostprocessor) -> None:
        self.chunks, self.scorer = chunks, scorer
        self.store = CountingStore(chunks.nodes)

    def plain(self) -> Way:
        """Return the hits unchanged."""
        return Way(lambda hits, text, budget: hits, self.store, self._spans)

    def fixed(self, *kinds: Callable[..., BaseNodePostprocessor], **parameters: Any) -> Way:
        """Return an augmenter without a budget, and the steps after it."""
        chain = self._chain(*kinds, **parameters)
        return Way(lambda hits, text, budget: chain(hits, text), self.store, self._spans)

    def budgeted(
        self, kind: Callable[..., BaseNodePostprocessor], of_budget: float = 0.0, **fields: Any
    ) -> Way:
        """Return an augmenter with a token budget, on the pool or on the hits that fill part of it."""

        def call(hits: list[NodeWithScore], text: str, budget: int) -> list[NodeWithScore]:
            chosen = self._first(hits, budget * of_budget) if of_budget else hits
            return self._chain(kind, token_budget=budget, **fields)(chosen, text)

        return Way(call, self.store, self._spans, budgeted=True)

    def rescored(
        self, *kinds: Callable[..., BaseNodePostprocessor], most_hits: int = RERANKED_HITS, **fields: Any
    ) -> Way:
        """Return the output of a chain for the best hits, rescored, and the best of it."""
        scored = self._once(self._chain(*kinds, lambda: self.scorer, **fields))

        def call(hits: list[NodeWithScore], text: str, budget: int) -> list[NodeWithScore]:
            return _best(scored(hits[:most_hits], text), budget)

        return Way(call, self.store, self._spans, budgeted=True, reranked=True)

    def brsr(
        self, hits: int = RERANKED_HITS, window_tokens: int = 512, count: bool = False, **fields: Any
    ) -> Way:
        """Return sections of the best hits, in windows, reranked; as many as fit, or `count` of them."""

        def within(
            found: list[NodeWithScore], text: str, budget: int | None = None, top_n: int = ALL
        ) -> list[NodeWithScore]:
            augmenter = BRSRPostprocessor(
                docstore=self.store,
                reranker=self.scorer,
                top_k=hits,
                top_n=top_n,
                window_tokens=window_tokens,
                max_context_tokens=budget,
                **fields,
            )
            return augmenter.postprocess_nodes(found, query_str=text)

        ranked = self._once(within)

        def call(found: list[NodeWithScore], text: str, budget: int) -> list[NodeWithScore]:
            if count:
                return within(found, text, budget, max(1, budget // window_tokens))
            if budget < window_tokens:  # then the windows are made smaller
                return within(found, text, budget)
            return _best(ranked(found, text), budget)

        return Way(call, self.store, self._spans, budgeted=True, reranked=True)

    def replaced(self, reach: int, upstream: bool = False) -> Way:
        """Return windows in metadata, of the chunks on both sides of each."""
        nodes, inside = self.chunks.nodes, {}
        for place, node in enumerate(nodes):
            around = nodes[max(0, place - reach) : place + reach + 1]
            inside[node.node_id] = [
                self.chunks.spans[one.node_id] for one in around if one.ref_doc_id == node.ref_doc_id
            ]
        windowed = {node.node_id: node for node in WindowExtractor(window_size=reach)(nodes)}
        ours = MetadataReplacementPostProcessor("window", merge_overlaps=True)

        def call(hits: list[NodeWithScore], text: str, budget: int) -> list[NodeWithScore]:
            found = [NodeWithScore(node=windowed[hit.node.node_id], score=hit.score) for hit in hits]
            if not upstream:
                return ours.postprocess_nodes(found)
            copies = [hit.model_copy(deep=True) for hit in found]  # it changes its input nodes
            return UpstreamReplacement(target_metadata_key="window").postprocess_nodes(copies)

        def spans(node: BaseNode) -> list[Span]:
            provenance = read_provenance(node)
            hits = provenance.hits if provenance else (node.node_id,)
            return distinct(span for id_ in hits for span in inside[id_])

        return Way(call, self.store, spans)

    def merged(self) -> tuple[Way, Way]:
        """LlamaIndex's AutoMergingRetriever over parents of 4 chunks and their parents of 4, and ours."""
        everything, members = _tree(self.chunks)
        leaves = {node.node_id: node for node in everything}
        store = CountingStore(everything)
        retriever = Given()
        merger = AutoMergingRetriever(
            retriever, StorageContext.from_defaults(docstore=store), simple_ratio_thresh=0.5
        )
        augmenter = AutoMergingPostprocessor(docstore=store)

        def leaves_of(hits: list[NodeWithScore]) -> list[NodeWithScore]:
            return [NodeWithScore(node=leaves[hit.node.node_id], score=hit.score) for hit in hits]

        def upstream(hits: list[NodeWithScore], text: str, budget: int) -> list[NodeWithScore]:
            retriever.hits = leaves_of(hits)
            return merger.retrieve(text)

        def ours(hits: list[NodeWithScore], text: str, budget: int) -> list[NodeWithScore]:
            return augmenter.postprocess_nodes(leaves_of(hits), query_str=text)

        def spans(node: BaseNode) -> list[Span]:
            return [self.chunks.spans[id_] for id_ in members.get(node.node_id, [node.node_id])]

        return Way(upstream, store, spans), Way(ours, store, spans)

    def _chain(self, *kinds: Callable[..., BaseNodePostprocessor], **fields: Any) -> Chain:
        """Return the first with the docstore and these fields, followed by the others."""
        steps = [kinds[0](docstore=self.store, **fields), *[kind() for kind in kinds[1:]]]

        def call(hits: list[NodeWithScore], text: str) -> list[NodeWithScore]:
            for step in steps:
                hits = step.postprocess_nodes(hits, query_str=text)
            return hits

        return call

    def _once(self, call: Chain) -> Chain:
        """Return a call made once for the same hits of a question, however many budgets are measured."""
        known: dict[tuple[str, int], list[NodeWithScore]] = {}

        def remembered(hits: list[NodeWithScore], text: str) -> list[NodeWithScore]:
            if self.store.timed or all(text != other for other, _ in known):
                known.clear()  # the previous question is done
            key = (text, len(hits))
            if key not in known:
                known[key] = call(hits, text)
            return known[key]

        return remembered

    def _first(self, hits: list[NodeWithScore], tokens: float) -> list[NodeWithScore]:
        """Return the first hits within this number of tokens, at least one."""
        count = 0
        while count < len(hits) and tokens >= (more := self.chunks.tokens[hits[count].node.node_id]):
            count, tokens = count + 1, tokens - more
        return hits[: max(1, count)]

    def _spans(self, node: BaseNode) -> list[Span]:
        provenance = read_provenance(node)
        if provenance is None or not provenance.pieces:
            return [self.chunks.spans[node.node_id]]
        spans = []
        for piece in provenance.pieces:
            document, start, end = self.chunks.spans[piece.node_id]
            if piece.source_start is not None and piece.source_end is not None:
                start, end = piece.source_start, piece.source_end
            spans.append((document, start, end))
        return spans


def all_ways(chunks: Chunks, scorer: BaseNodePostprocessor) -> dict[str, Way]:
    """Return every way of this package, LlamaIndex and dsRAG, by name."""
    ways = Ways(chunks, scorer)
    upstream_merging, our_merging = ways.merged()
    in_passages = partial(ways.fixed, output="passages")
    windows = partial(SlidingWindowPostprocessor, window_tokens=128, stride_tokens=64)
    segments = partial(ways.budgeted, RelevantSegmentsPostprocessor, output="passages")
    sums = partial(
        ways.budgeted, RelevantSegmentExtractionPostprocessor, output="passages", overall_max_length=400
    )
    return {
        "top-k": ways.plain(),
        "LlamaIndex PrevNext, next 1": ways.fixed(UpstreamPrevNext, num_nodes=1, mode="next"),
        "LlamaIndex PrevNext, both 1": ways.fixed(UpstreamPrevNext, num_nodes=1, mode="both"),
        "LlamaIndex PrevNext, both 2": ways.fixed(UpstreamPrevNext, num_nodes=2, mode="both"),
        "LlamaIndex MetadataReplacement, 1 each side": ways.replaced(1, upstream=True),
        "LlamaIndex MetadataReplacement, 2 each side": ways.replaced(2, upstream=True),
        "LlamaIndex AutoMerging, families of 4": upstream_merging,
        "dsRAG's sums (balanced)": sums(),
        "dsRAG's sums (find_all)": sums(preset="find_all"),
        "dsRAG's sums (penalty 0.2, no minimum)": sums(irrelevant_chunk_penalty=0.2, minimum_value=0.0),
        "PrevNext, next 1": in_passages(PrevNextNodePostprocessor, num_nodes=1, mode="next"),
        "PrevNext, both 1": in_passages(PrevNextNodePostprocessor, num_nodes=1, mode="both"),
        "PrevNext, both 2": in_passages(PrevNextNodePostprocessor, num_nodes=2, mode="both"),
        "PrevNext, both 1, token_budget": ways.budgeted(
            PrevNextNodePostprocessor, of_budget=0.5, num_nodes=1, mode="both", output="passages"
        ),
        "PrevNext, both 2, token_budget": ways.budgeted(
            PrevNextNodePostprocessor, of_budget=0.25, num_nodes=2, mode="both", output="passages"
        ),
        "MetadataReplacement, 1 each side": ways.replaced(1),
        "MetadataReplacement, 2 each side": ways.replaced(2),
        "AutoMerging, families of 4": our_merging,
        "Section, 256 a side": in_passages(SectionPostprocessor),
        "Section, 64 a side": in_passages(SectionPostprocessor, expansion_tokens=64),
        "Section, windows 128/64": in_passages(SectionPostprocessor, windows),
        "Section, windows 128/64, rescored": ways.rescored(SectionPostprocessor, windows, output="passages"),
        "PrevNext, both 1, chunks rescored": ways.rescored(
            PrevNextNodePostprocessor, most_hits=20, num_nodes=1, mode="both"
        ),
        "PrevNext, both 1, passages rescored": ways.rescored(
            PrevNextNodePostprocessor, most_hits=20, num_nodes=1, mode="both", output="passages"
        ),
        "BRSR, windows 512/128": ways.brsr(),
        "BRSR, windows 128/64": ways.brsr(window_tokens=128, stride_tokens=64),
        "WholeDocuments": ways.budgeted(WholeDocumentsPostprocessor, of_budget=0.5, output="passages"),
        "RelevantSegments, whole chunks": segments(budget_unit="chunk"),
        "RelevantSegments": segments(),
    }


def _best(ranked: list[NodeWithScore], budget: int) -> list[NodeWithScore]:
    return TokenBudgetPostprocessor(token_budget=budget, priority="score").postprocess_nodes(ranked)


class Given(BaseRetriever):
    """Returns the hits that it was given."""

    hits: list[NodeWithScore] = []  # noqa: RUF012

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.hits


def _tree(chunks: Chunks) -> tuple[list[TextNode], dict[str, list[str]]]:
    """Return leaves, parents and grandparents, and the ids of the chunks under each parent."""
    members: dict[str, list[str]] = {}
    level = [node.model_copy(deep=True) for node in chunks.nodes]
    everything = list(level)
    for depth in range(2):
        parents: list[TextNode] = []
        for family in _families(level):
            parent = TextNode(
                id_=f"parent-{depth}-{family[0].node_id}", text=" ".join(n.text for n in family)
            )
            parent.relationships[NodeRelationship.SOURCE] = family[0].relationships[NodeRelationship.SOURCE]
            parent.relationships[NodeRelationship.CHILD] = [
                RelatedNodeInfo(node_id=n.node_id) for n in family
            ]
            for node in family:
                node.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id=parent.node_id)
            members[parent.node_id] = [
                id_ for node in family for id_ in members.get(node.node_id, [node.node_id])
            ]
            parents.append(parent)
        everything += parents
        level = parents
    return everything, members


def _families(nodes: Sequence[TextNode]) -> list[list[TextNode]]:
    """Yield neighbors of one document, four at a time."""
    families: list[list[TextNode]] = []
    for node in nodes:
        last = families[-1] if families else []
        if last and len(last) < FAMILY and last[0].ref_doc_id == node.ref_doc_id:
            last.append(node)
        else:
            families.append([node])
    return families


def text_of(hit: NodeWithScore) -> str:
    """Return the text of a node that a model gets."""
    return str(hit.node.get_content(metadata_mode=MetadataMode.LLM))

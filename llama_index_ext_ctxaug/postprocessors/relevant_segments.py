"""Choose, from a wide pool of hits, the chunks that fill a token budget with the most evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal

from llama_index.core.bridge.pydantic import Field
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle
from typing_extensions import override

from llama_index_ext_ctxaug.engine.inner_postprocessor import apply
from llama_index_ext_ctxaug.expansion.expansion import Expansion, Reach
from llama_index_ext_ctxaug.expansion.sections import SectionSide
from llama_index_ext_ctxaug.expansion.walk import StopCondition
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.passages.passage import Chunk, Passage
from llama_index_ext_ctxaug.postprocessors.base import ContextAugmenter
from llama_index_ext_ctxaug.selection.relevance import (
    normalized_scores,
    pool_scores,
    query_terms,
    spread,
    term_shares,
)
from llama_index_ext_ctxaug.structure.heading_lines import TextHeadingKind
from llama_index_ext_ctxaug.structure.headings import Sections
from llama_index_ext_ctxaug.structure.order_keys import Direction


class RelevantSegmentsPostprocessor(ContextAugmenter):
    """Choose the chunks of the hits' documents that fill a token budget with the most evidence.

    Retrieve widely (`similarity_top_k=30`) and let this choose. Every hit competes with the chunks beside
    it; the more relevant the hit, the more of them. The relevance of a chunk is the square of its score,
    normalized within the pool, plus the square of its share of the query's words. Each chunk lends
    relevance to the chunks around it, within its section. The most relevant chunks fill `token_budget`. So
    where hits lie close, the chunks between and around them are taken before the neighbors of a lone hit.

    **Requires**: a docstore that holds the chunks, and PREVIOUS/NEXT relationships or anything else that
    gives their order. A query improves the choice and is not needed. Scores may be of any scale, or None.

    **Guarantees**: the final text fits into `token_budget`. A chunk that does not fit gives way to smaller
    ones, and the first of them gives the sentences that still fit, those with words of the query or beside
    a kept chunk first. Two batched reads where the store knows the order of its
    documents, three where hits have lost their relationships, else one for each step of `reach`. Unlike
    with other augmenters, dropping hits is the purpose: they are named in the end event, without a warning.

    **On failure**: as `ContextAugmenter`; an error of the reranker is raised.

    Example:
        ```python
        from llama_index_ext_ctxaug import RelevantSegmentsPostprocessor

        augmenter = RelevantSegmentsPostprocessor(docstore=index.docstore, token_budget=1000)
        engine = index.as_query_engine(similarity_top_k=30, node_postprocessors=[augmenter])
        ```
    """

    token_budget: int | None = Field(
        default=2000, ge=0, description="Maximum tokens of the final text; None for all candidates."
    )
    reach: int = Field(
        default=6,
        ge=0,
        description="Chunks on each side of the most relevant hit that compete; for other hits in "
        "proportion to the square root of their relevance.",
    )
    budget_unit: Literal["chunk", "sentence"] = Field(
        default="sentence",
        description='"sentence": the first chunk that does not fit, and one that alone exceeds the budget, '
        'is cut between sentences, rows of tables or lines of code; "chunk": whole chunks only.',
    )
    reranker: BaseNodePostprocessor | None = Field(
        default=None,
        exclude=True,
        description="Scores all candidates, neighbors included, in place of the retriever's scores; what its "
        "own top_n drops counts as least relevant. None for the retriever's scores.",
    )
    heading_kinds: tuple[TextHeadingKind, ...] = Field(
        default=("markdown", "underlined"),
        description="Kinds of headings in the text of chunks that end a section. Relevance is not lent over "
        "the end of a section, nor over a change of the section that metadata names.",
    )

    @override
    def expand(self, expansion: Expansion, query: QueryBundle | None) -> Flow[None]:
        sections = Sections(kinds=self.heading_kinds)
        scores = pool_scores(expansion.hits)
        terms = query_terms(query.query_str) if query else []
        own = _own_relevance(list(expansion.hits.values()), scores, terms)
        best = max(own)
        reaches: dict[str, Reach] = {}
        for (id_, hit), value in zip(expansion.hits.items(), own, strict=True):
            hops = round(self.reach * math.sqrt(value / best))
            reaches[id_] = Reach(hops, hops, _within_section(sections, hit.node))
        yield from expansion.expand(reaches)
        runs = expansion.passages()
        chunks = [chunk for run in runs for chunk in run.chunks]
        if self.reranker is not None and query is not None:
            scores = yield from self._reranked(self.reranker, chunks, query)
        own = _own_relevance(chunks, scores, terms)
        lent = chain.from_iterable(spread(part) for part in _in_sections(runs, own, sections))
        expansion.priority = {chunk.node.node_id: value for chunk, value in zip(chunks, lent, strict=True)}

    def _reranked(
        self, reranker: BaseNodePostprocessor, chunks: Sequence[Chunk], query: QueryBundle
    ) -> Flow[dict[str, float]]:
        """Return the reranker's scores of all candidates, normalized; one that it drops gets the lowest."""
        nodes = [NodeWithScore(node=chunk.node, score=chunk.score) for chunk in chunks]
        answer = yield from apply(reranker, nodes, query, self.callback_manager)
        scores: dict[str, float | None] = {hit.node.node_id: hit.score for hit in answer}
        for chunk in chunks:
            scores.setdefault(chunk.node.node_id, None)
        return dict(zip(scores, normalized_scores(list(scores.values())), strict=True))


def _own_relevance(chunks: Sequence[Chunk], scores: Mapping[str, float], terms: Sequence[str]) -> list[float]:
    """Return the relevance of each chunk by its own score and text: above 0 for hits."""
    texts = [chunk.node.get_content(metadata_mode=MetadataMode.NONE) for chunk in chunks]
    shares = term_shares(texts, terms)
    return [
        scores.get(chunk.node.node_id, 0.0) ** 2 + share**2
        for chunk, share in zip(chunks, shares, strict=True)
    ]


def _within_section(sections: Sections, hit: BaseNode) -> Callable[[Direction], StopCondition]:
    """Stop the expansion of a hit where its section ends."""
    return lambda direction: SectionSide(sections, lambda node: 0, 0, direction, hit)


def _in_sections(
    runs: Sequence[Passage], values: Sequence[float], sections: Sections
) -> Iterator[Sequence[float]]:
    """Split the values of the chunks of all runs where a run or a section ends."""
    start = place = 0
    for run in runs:
        for before, chunk in zip((None, *run.chunks), run.chunks, strict=False):
            if before is not None and sections.border(before.node, chunk.node) is not None:
                yield values[start:place]
                start = place
            place += 1
        yield values[start:place]
        start = place

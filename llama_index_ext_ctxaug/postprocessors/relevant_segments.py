"""The segments of the documents that are worth a number of tokens, from a wide pool of hits."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Literal

from llama_index.core.bridge.pydantic import Field
from llama_index.core.schema import BaseNode, MetadataMode, QueryBundle
from typing_extensions import override

from llama_index_ext_ctxaug.budget.tokenizer import tokenizer_or_default
from llama_index_ext_ctxaug.expansion.expansion import UNBOUNDED, Expansion, Reach
from llama_index_ext_ctxaug.expansion.sections import SectionSide
from llama_index_ext_ctxaug.expansion.walk import StopCondition
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.passages.passage import Chunk, Passage
from llama_index_ext_ctxaug.postprocessors.base import ContextAugmenter
from llama_index_ext_ctxaug.selection.relevance import (
    RSEParameters,
    normalized_scores,
    query_terms,
    rse,
    rse_preset,
    rse_value,
    spread,
    term_shares,
)
from llama_index_ext_ctxaug.structure.adjacency import Direction
from llama_index_ext_ctxaug.structure.heading_lines import TextHeadingKind
from llama_index_ext_ctxaug.structure.headings import Sections

logger = logging.getLogger(__name__)

MAX_WHOLE_DOCUMENTS = 2
"""From how many documents hits may come to be given whole (QAnything's number)."""


class RelevantSegmentsPostprocessor(ContextAugmenter):
    """Chooses, for a number of tokens, the chunks of the hits' documents that hold most of the evidence.

    Retrieve widely (`similarity_top_k=100`) and let this choose. Every hit and the chunks beside it
    compete, the more chunks the more relevant the hit. A chunk is as relevant as its place in the range of
    the pool's scores and the share of the query's words in its text say, each squared, and it lends
    relevance to the chunks around it (`passages.segments.spread`), within its section. The most relevant go
    out until `token_budget` is full. So where hits lie close, what is between and around them comes along,
    before the neighbors of a lone hit as good.

    `method="rse"` is relevant segment extraction as dsRAG has it: runs of chunks with the greatest sums of
    score less penalty. `method="documents"` is QAnything's rule: hits of at most two documents are given
    as whole documents where these fit, else from the first to the last hit of each.

    **Requires**: a docstore that holds the chunks, and PREVIOUS/NEXT relationships or anything else that
    tells their order. A query makes it better and is not needed. Scores may be of any scale, or None.

    **Guarantees**: the text that goes out is within `token_budget`, unless the best chunk alone is over it;
    chunks that do not fit are passed over for smaller ones. Two batched reads where the store knows the
    order of its documents, three where hits have lost theirs, else one for each step of `reach`.
    Unlike with other augmenters, dropping hits is the purpose: those that do not go out are named in the end
    event's details, without a warning.

    **On failure**: as `ContextAugmenter`.

    Example:
        ```python
        from llama_index_ext_ctxaug import RelevantSegmentsPostprocessor

        augmenter = RelevantSegmentsPostprocessor(docstore=index.docstore, token_budget=1000)
        engine = index.as_query_engine(similarity_top_k=100, node_postprocessors=[augmenter])
        ```
    """

    token_budget: int | None = Field(
        default=2000, ge=0, description="Most tokens of the text that goes out; None for all candidates."
    )
    method: Literal["spread", "rse", "documents"] = Field(
        default="spread",
        description='"spread": relevance lent to neighbors; "rse": dsRAG\'s rule; "documents": QAnything\'s.',
    )
    reach: int = Field(
        default=6,
        ge=0,
        description="Chunks on each side of the most relevant hit that are candidates; of other hits in "
        "proportion to the root of their relevance (for method='rse' of every hit that may end a segment).",
    )
    heading_kinds: tuple[TextHeadingKind, ...] = Field(
        default=("markdown", "underlined"),
        description="Kinds of headings to look for in the text of chunks: relevance is not spread over them, "
        "nor over a change of the section that metadata names.",
    )
    preset: Literal["balanced", "precision", "find_all"] = Field(
        default="balanced", description="dsRAG's parameters under this name, for method='rse'."
    )
    irrelevant_chunk_penalty: float | None = Field(
        default=None, ge=0, description="RSE: taken off each chunk's value; None for the preset's."
    )
    decay_rate: float | None = Field(
        default=None, gt=0, description="RSE: ranks after which a score counts 1/e of itself."
    )
    max_length: int | None = Field(default=None, ge=1, description="RSE: most chunks of one segment.")
    overall_max_length: int | None = Field(
        default=None, ge=0, description="RSE: most chunks of all segments."
    )
    minimum_value: float | None = Field(default=None, description="RSE: least value of a segment.")
    query_key: str | None = Field(
        default=None,
        description="RSE: metadata key of hits that tells by which of several queries a hit was found.",
    )

    @override
    def expand(self, expansion: Expansion, query: QueryBundle | None) -> Flow[None]:
        if self.method == "documents":
            yield from self._whole_documents(expansion)
            return
        # What an augmenter before this one added is a candidate, and no hit beside those that it came with.
        hits = [hit for hit in expansion.hits.values() if hit.role == "hit"] or list(expansion.hits.values())
        heights = dict(
            zip([hit.node.id_ for hit in hits], normalized_scores([hit.score for hit in hits]), strict=True)
        )
        if self.method == "spread":
            yield from self._spread(expansion, heights, query_terms(query.query_str) if query else [])
        else:
            yield from self._rse(expansion, heights)

    def _spread(self, expansion: Expansion, heights: dict[str, float], terms: Sequence[str]) -> Flow[None]:
        """Grow hits by what they are worth alone; then what each candidate is worth beside the others."""
        sections = Sections(kinds=self.heading_kinds)
        own = _own_relevance(list(expansion.hits.values()), heights, terms)
        most = max(own)
        reaches: dict[str, Reach] = {}
        for (id_, hit), value in zip(expansion.hits.items(), own, strict=True):
            hops = round(self.reach * math.sqrt(value / most))
            reaches[id_] = Reach(hops, hops, _within_section(sections, hit.node))
        yield from expansion.expand(reaches)
        runs = expansion.passages()
        chunks = [chunk for run in runs for chunk in run.chunks]
        own = _own_relevance(chunks, heights, terms)
        priority = chain.from_iterable(spread(part) for part in _in_sections(runs, own, sections))
        expansion.priority = {
            chunk.node.node_id: value for chunk, value in zip(chunks, priority, strict=True)
        }

    def _rse(self, expansion: Expansion, heights: dict[str, float]) -> Flow[None]:
        """Only the chunks of the chosen segments are left: those of the segment taken first, first."""
        parameters = self._rse_parameters()
        hits = [expansion.hits[id_] for id_ in heights]
        scores = _relevance(hits, heights, parameters)
        queries = _ranks(hits, self.query_key)

        def values(chunks: Sequence[Chunk]) -> list[list[float]]:
            return [[_value(chunk, ranks, scores, parameters) for chunk in chunks] for ranks in queries]

        # Segments begin and end with chunks that are not worth less than nothing: others need no neighbors.
        best = map(max, zip(*values(hits), strict=True))
        ends = [id_ for id_, value in zip(heights, best, strict=True) if value >= 0]
        yield from expansion.expand(dict.fromkeys(ends, Reach(self.reach, self.reach)))
        runs = expansion.passages()
        chunks = [chunk for run in runs for chunk in run.chunks]
        segments = rse(
            values(chunks),
            accumulate(len(run.chunks) for run in runs),
            max_length=parameters.max_length,
            overall_max_length=parameters.overall_max_length
            + (len(queries) - 1) * parameters.overall_max_length_extension,
            minimum_value=parameters.minimum_value,
        )
        if not segments:
            logger.warning(
                "%s: nothing goes out, since no segment is worth minimum_value=%s. Relevance from 0 to 1 is "
                "expected, such as a reranker's: lower minimum_value or irrelevant_chunk_penalty, or use "
                "preset='find_all'",
                self.class_name(),
                parameters.minimum_value,
            )
        expansion.priority = {
            chunk.node.node_id: -float(turn)
            for turn, segment in enumerate(segments)
            for chunk in chunks[segment.start : segment.end]
        }
        expansion.chunks = {
            id_: chunk for id_, chunk in expansion.chunks.items() if id_ in expansion.priority
        }

    def _rse_parameters(self) -> RSEParameters:
        preset = rse_preset(self.preset)
        return RSEParameters(
            **{
                name: getattr(preset, name) if getattr(self, name, None) is None else getattr(self, name)
                for name in RSEParameters.__dataclass_fields__
            }
        )

    def _whole_documents(self, expansion: Expansion) -> Flow[None]:
        documents = {expansion.links.document(hit.node) for hit in expansion.hits.values()}
        if len(documents) > MAX_WHOLE_DOCUMENTS:
            return
        yield from expansion.expand(dict.fromkeys(expansion.hits, Reach(UNBOUNDED, UNBOUNDED)))
        if self.token_budget is None:
            return
        tokenizer = yield from tokenizer_or_default(self.tokenizer)
        if sum(len(tokenizer(_text(chunk))) for chunk in expansion.chunks.values()) > self.token_budget:
            for run in expansion.passages():
                places = [place for place, chunk in enumerate(run.chunks) if chunk.role == "hit"]
                for place, chunk in enumerate(run.chunks):
                    # Contradicting links can leave a run without a hit: nothing of it is between hits.
                    if not places or not places[0] <= place <= places[-1]:
                        del expansion.chunks[chunk.node.node_id]


def _own_relevance(chunks: Sequence[Chunk], heights: dict[str, float], terms: Sequence[str]) -> list[float]:
    """The relevance of each chunk by its own score and text: more than 0 for hits."""
    shares = term_shares([_text(chunk) for chunk in chunks], terms)
    return [
        heights.get(chunk.node.node_id, 0.0) ** 2 + share**2
        for chunk, share in zip(chunks, shares, strict=True)
    ]


def _within_section(sections: Sections, hit: BaseNode) -> Callable[[Direction], StopCondition]:
    """Expansion of a hit ends where its section does."""
    return lambda direction: SectionSide(sections, lambda node: 0, 0, direction, hit)


def _in_sections(
    runs: Sequence[Passage], values: Sequence[float], sections: Sections
) -> Iterator[Sequence[float]]:
    """The values of the chunks of all runs, in lists that end where a run or a section ends."""
    start = place = 0
    for run in runs:
        for before, chunk in zip((None, *run.chunks), run.chunks, strict=False):
            if before is not None and sections.border(before.node, chunk.node) is not None:
                yield values[start:place]
                start = place
            place += 1
        yield values[start:place]
        start = place


def _text(chunk: Chunk) -> str:
    return chunk.node.get_content(metadata_mode=MetadataMode.NONE)


def _relevance(
    hits: Sequence[Chunk], heights: dict[str, float], parameters: RSEParameters
) -> dict[str, float]:
    """Relevance from 0 to 1, as RSE expects it; scores that cannot be that are replaced by their standing."""
    scores = {hit.node.node_id: hit.score for hit in hits}
    known = [score for score in scores.values() if score is not None and 0 <= score <= 1]
    if len(known) == len(hits) and max(known) > parameters.irrelevant_chunk_penalty:
        return {id_: score for id_, score in scores.items() if score is not None}
    return heights


def _ranks(hits: Sequence[Chunk], query_key: str | None) -> list[dict[str, int]]:
    """For each query the ranks of the hits that it found, by node id; without a key there is one query."""
    queries: dict[str, dict[str, int]] = {}
    for hit in hits:
        ranks = queries.setdefault(str(hit.node.metadata.get(query_key)) if query_key else "", {})
        ranks[hit.node.node_id] = len(ranks)
    return list(queries.values())


def _value(chunk: Chunk, ranks: dict[str, int], scores: dict[str, float], parameters: RSEParameters) -> float:
    id_ = chunk.node.node_id
    if id_ not in ranks:
        return rse_value(None, 0, 0, parameters)
    return rse_value(scores[id_], ranks[id_], len(_text(chunk)), parameters)

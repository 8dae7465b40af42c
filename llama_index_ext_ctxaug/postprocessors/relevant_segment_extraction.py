"""Relevant segment extraction, as in dsRAG."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import accumulate

from llama_index.core.bridge.pydantic import Field
from llama_index.core.schema import MetadataMode, QueryBundle
from typing_extensions import override

from llama_index_ext_ctxaug.expansion.expansion import Expansion, Reach
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.passages.passage import Chunk
from llama_index_ext_ctxaug.postprocessors.base import ContextAugmenter
from llama_index_ext_ctxaug.selection.relevance import pool_scores
from llama_index_ext_ctxaug.selection.rse import RSE_PRESETS, RSEParameters, RSEPreset, rse, rse_value

logger = logging.getLogger(__name__)


class RelevantSegmentExtractionPostprocessor(ContextAugmenter):
    """Choose the runs of chunks with the greatest sums of relevance less a penalty for each chunk.

    A chunk between two good hits belongs to their segment, a poor hit far off does not. The parameters
    are dsRAG's, under its names; None takes the value of `preset`. `RelevantSegmentsPostprocessor` fills a
    budget better; use this one for dsRAG's results.

    **Requires**: a docstore that holds the chunks, and PREVIOUS/NEXT relationships or anything else that
    gives their order. Relevance from 0 to 1 is expected, such as a reranker's; other scores are normalized
    within the pool. No query is needed.

    **Guarantees**: as `ContextAugmenter`, except that hits outside of segments are dropped without a warning.
    Segments that do not fit into `token_budget` lose the chunks of the segment taken last, first.

    **On failure**: as `ContextAugmenter`. Where no segment reaches `minimum_value` the output is empty, with
    a warning.

    Source: dsRAG, relevant segment extraction.

    Example:
        ```python
        from llama_index_ext_ctxaug import RelevantSegmentExtractionPostprocessor

        augmenter = RelevantSegmentExtractionPostprocessor(docstore=index.docstore, preset="find_all")
        engine = index.as_query_engine(similarity_top_k=100, node_postprocessors=[augmenter])
        ```
    """

    token_budget: int | None = Field(
        default=2000, ge=0, description="Maximum tokens of the final text; None for no limit."
    )
    reach: int = Field(
        default=6, ge=0, description="Chunks on each side of every hit that may end a segment."
    )
    preset: RSEPreset = Field(default="balanced", description="dsRAG's parameters under this name.")
    irrelevant_chunk_penalty: float | None = Field(
        default=None, ge=0, description="Subtracted from each chunk's value."
    )
    decay_rate: float | None = Field(
        default=None, gt=0, description="Ranks after which a score counts 1/e of itself."
    )
    max_length: int | None = Field(default=None, ge=1, description="Maximum chunks of one segment.")
    overall_max_length: int | None = Field(default=None, ge=0, description="Maximum chunks of all segments.")
    minimum_value: float | None = Field(default=None, description="Minimum value of a segment.")
    query_key: str | None = Field(
        default=None,
        description="Metadata key that names the query, of several, that found a hit; queries take turns.",
    )

    @override
    def expand(self, expansion: Expansion, query: QueryBundle | None) -> Flow[None]:
        parameters = self._parameters()
        normalized = pool_scores(expansion.hits)
        hits = [expansion.hits[id_] for id_ in normalized]
        scores = _relevance(hits, normalized, parameters)
        queries = _ranks(hits, self.query_key)

        def values(chunks: Sequence[Chunk]) -> list[list[float]]:
            return [[_value(chunk, ranks, scores, parameters) for chunk in chunks] for ranks in queries]

        # A hit of negative value ends no segment, so its neighbors are not needed.
        best = map(max, zip(*values(hits), strict=True))
        ends = [id_ for id_, value in zip(normalized, best, strict=True) if value >= 0]
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
            self._warn_of_nothing(parameters)
        # The chunks of the segment that was taken first have the highest priority.
        expansion.priority = {
            chunk.node.node_id: -float(turn)
            for turn, segment in enumerate(segments)
            for chunk in chunks[segment.start : segment.end]
        }
        expansion.chunks = {
            id_: chunk for id_, chunk in expansion.chunks.items() if id_ in expansion.priority
        }

    def _parameters(self) -> RSEParameters:
        own = {field.name: getattr(self, field.name, None) for field in fields(RSEParameters)}
        given = {name: value for name, value in own.items() if value is not None}
        return replace(RSE_PRESETS[self.preset], **given)

    def _warn_of_nothing(self, parameters: RSEParameters) -> None:
        logger.warning(
            "%s: the output is empty, since no segment reaches minimum_value=%s. Relevance from 0 to 1 is "
            "expected, such as a reranker's: lower minimum_value or irrelevant_chunk_penalty, or use "
            "preset='find_all'",
            self.class_name(),
            parameters.minimum_value,
        )


def _relevance(
    hits: Sequence[Chunk], normalized: Mapping[str, float], parameters: RSEParameters
) -> Mapping[str, float]:
    """Return relevance from 0 to 1, as RSE expects it: the scores where they can be that, else normalized."""
    scores = {hit.node.node_id: hit.score for hit in hits if hit.score is not None and 0 <= hit.score <= 1}
    if len(scores) == len(hits) and max(scores.values()) > parameters.irrelevant_chunk_penalty:
        return scores
    return normalized


def _ranks(hits: Sequence[Chunk], query_key: str | None) -> list[dict[str, int]]:
    """Return for each query the ranks of its hits by node id; without a key there is one query."""
    queries: dict[str, dict[str, int]] = {}
    for hit in hits:
        ranks = queries.setdefault(str(hit.node.metadata.get(query_key)) if query_key else "", {})
        ranks[hit.node.node_id] = len(ranks)
    return list(queries.values())


def _value(
    chunk: Chunk, ranks: Mapping[str, int], scores: Mapping[str, float], parameters: RSEParameters
) -> float:
    id_ = chunk.node.node_id
    if id_ not in ranks:
        return rse_value(None, 0, 0, parameters)
    text = chunk.node.get_content(metadata_mode=MetadataMode.NONE)
    return rse_value(scores[id_], ranks[id_], len(text), parameters)

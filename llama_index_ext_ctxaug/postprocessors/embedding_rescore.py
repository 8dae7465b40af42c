"""New scores for nodes: the similarity to the query by an embedding model."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.settings import Settings

from llama_index_ext_ctxaug.engine.flow_postprocessor import FlowPostprocessor
from llama_index_ext_ctxaug.engine.hits import distinct_nodes
from llama_index_ext_ctxaug.flow import Flow, ask
from llama_index_ext_ctxaug.passages.scores import score_key

logger = logging.getLogger(__name__)

Vector = Sequence[float]


class Embedded(NamedTuple):
    """The vector of the query, and those of the texts in their order."""

    question: Vector
    texts: list[Vector]


@dataclass(frozen=True)
class Embed:
    """The step that embeds a query and texts, in batches of the model's `embed_batch_size`.

    Attributes:
        model: the embedding model.
        query: the query; its own embedding is used if it has one.
        texts: distinct texts.
    """

    model: BaseEmbedding
    query: QueryBundle
    texts: list[str]

    def run(self) -> Embedded:
        """Embed in the calling thread."""
        question = self.query.embedding or self.model.get_agg_embedding_from_queries(
            self.query.embedding_strs
        )
        return Embedded(question, list(self.model.get_text_embedding_batch(self.texts) if self.texts else []))

    async def arun(self) -> Embedded:
        """Embed with the model's async methods, in a worker thread if it has none."""
        kind = type(self.model)
        if (
            kind._aget_text_embedding is BaseEmbedding._aget_text_embedding
            and kind._aget_text_embeddings is BaseEmbedding._aget_text_embeddings
        ):
            return await asyncio.to_thread(self.run)
        question = self.query.embedding or await self.model.aget_agg_embedding_from_queries(
            self.query.embedding_strs
        )
        texts = await self.model.aget_text_embedding_batch(self.texts) if self.texts else []
        return Embedded(question, list(texts))


class EmbeddingRescorePostprocessor(FlowPostprocessor):
    """Scores each node by the cosine similarity of its embedding and the query's, and sorts by it.

    After an augmenter it scores the added nodes too, so that hits and neighbors become one ranking. That is
    the second half of AutoRAG's passage augmenters (https://github.com/Marker-Inc-Korea/AutoRAG).

    **Requires**: a query, and an embedding model: `embed_model`, or `Settings.embed_model`. A node's own
    embedding is used if it has one, so it must be of the same model.

    **Guarantees**: each distinct node is returned once, unchanged, in the order of the new scores, `top_k`
    nodes at most; equal texts are embedded once. A zero vector gives the score None, which ranks last;
    equal scores keep their order.

    **On failure**: errors of the model are raised. Without a query the nodes keep order and scores, with a
    warning.

    Example:
        ```python
        from llama_index_ext_ctxaug import EmbeddingRescorePostprocessor, PrevNextNodePostprocessor

        engine = index.as_query_engine(
            node_postprocessors=[
                PrevNextNodePostprocessor(docstore=index.docstore, mode="both"),
                EmbeddingRescorePostprocessor(top_k=5),
            ]
        )
        ```
    """

    top_k: int | None = Field(default=None, ge=1, description="Maximum nodes to return; None for all.")
    embed_model: BaseEmbedding | None = Field(
        default=None, exclude=True, description="The embedding model; None for Settings.embed_model."
    )
    use_node_embeddings: bool = Field(
        default=True, description="Use a node's own embedding if its length fits."
    )
    metadata_mode: Literal["embed", "none"] = Field(
        default="embed",
        description='Text to embed: "embed" as at indexing, with metadata; "none" text alone.',
    )

    def _flow(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> Flow[list[NodeWithScore]]:
        hits = distinct_nodes(nodes)
        if query is None:
            logger.warning("%s: there is no query; the nodes keep their order and scores", self.class_name())
            return hits[: self.top_k]
        model = self.embed_model or Settings.embed_model
        missing = [self._text(hit.node) for hit in hits if not self._has_embedding(hit.node)]
        question, vectors = yield from _embed(model, query, missing)
        # An embedding of another length comes from another model.
        unfit = [
            self._text(hit.node)
            for hit in hits
            if self._text(hit.node) not in vectors and len(hit.node.embedding or ()) != len(question)
        ]
        if unfit:
            vectors |= (yield from _embed(model, QueryBundle("", embedding=list(question)), unfit))[1]
        scored = [
            NodeWithScore(
                node=hit.node,
                score=cosine(question, self._vector(hit.node, vectors)),
            )
            for hit in hits
        ]
        scored.sort(key=lambda hit: score_key(hit.score), reverse=True)
        return scored[: self.top_k]

    def _has_embedding(self, node: BaseNode) -> bool:
        return self.use_node_embeddings and bool(node.embedding)

    def _text(self, node: BaseNode) -> str:
        mode = MetadataMode.EMBED if self.metadata_mode == "embed" else MetadataMode.NONE
        return node.get_content(metadata_mode=mode)

    def _vector(self, node: BaseNode, vectors: dict[str, Vector]) -> Vector:
        known = vectors.get(self._text(node))
        return known if known is not None else node.embedding or ()


def _embed(
    model: BaseEmbedding, query: QueryBundle, texts: Sequence[str]
) -> Flow[tuple[Vector, dict[str, Vector]]]:
    """Return the vector of the query and those of texts; embed each text once."""
    distinct = list(dict.fromkeys(texts))
    embedded = yield from ask(Embed(model, query, distinct))
    return embedded.question, dict(zip(distinct, embedded.texts, strict=True))


def cosine(first: Vector, second: Vector) -> float | None:
    """Return the cosine similarity of two vectors; None if one of them has no direction."""
    lengths = math.sqrt(math.fsum(x * x for x in first)) * math.sqrt(math.fsum(x * x for x in second))
    if not lengths or math.isnan(lengths) or math.isinf(lengths):
        return None
    product = math.fsum(x * y for x, y in zip(first, second, strict=True))
    return None if math.isnan(product) else product / lengths

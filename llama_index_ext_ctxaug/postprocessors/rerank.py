"""Any reranker, made safe: fallback, top-n over overlapping windows, a limit on its input."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Literal

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode

from llama_index_ext_ctxaug.budget.fit import Tokenizer
from llama_index_ext_ctxaug.budget.tokenizer import tokenizer_or_default
from llama_index_ext_ctxaug.engine.flow_postprocessor import FlowPostprocessor
from llama_index_ext_ctxaug.engine.hits import distinct_nodes
from llama_index_ext_ctxaug.engine.inner_postprocessor import apply
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.passages.passage_node import as_text_node, is_text
from llama_index_ext_ctxaug.passages.provenance import whole_provenance
from llama_index_ext_ctxaug.passages.scores import score_key
from llama_index_ext_ctxaug.postprocessors.embedding_rescore import EmbeddingRescorePostprocessor
from llama_index_ext_ctxaug.selection.suppression import Order, Overlap, choose, in_document_order, merge
from llama_index_ext_ctxaug.windows.slices import cut_node
from llama_index_ext_ctxaug.windows.sliding import sliding_windows

logger = logging.getLogger(__name__)
dispatcher = get_dispatcher(__name__)

EVENT_NODES = 12
"""Maximum nodes in an event of the rerank: tracing makes four attributes of each, and a span holds 128."""


class RerankPostprocessor(FlowPostprocessor):
    """Ranks nodes with any LlamaIndex reranker and keeps the best, whatever the reranker does.

    **Requires**: a query, and a `reranker` (`SentenceTransformerRerank`, `LLMRerank`, Cohere, FlashRank ...)
    or an embedding model.

    **Guarantees**: input nodes are never changed: the reranker gets copies, and its scores are matched by
    id. All nodes are ranked before `top_n` of them are taken. If the reranker returns nodes without new
    scores, its order counts. Nodes that it leaves out are left out. Of overlapping windows only those with
    text of their own are returned (`overlap`).

    **On failure**: if the reranker raises, or returns none of the nodes, the nodes keep their order, with a
    warning, and `min_score` is not applied; the same without a query.

    Example:
        ```python
        from llama_index.core.postprocessor import SentenceTransformerRerank
        from llama_index_ext_ctxaug import RerankPostprocessor

        rerank = RerankPostprocessor(reranker=SentenceTransformerRerank(model="..."), top_n=5)
        engine = index.as_query_engine(node_postprocessors=[rerank])
        ```
    """

    reranker: BaseNodePostprocessor | None = Field(
        default=None,
        exclude=True,
        description="Any reranker (its own top_n is ignored); None for similarity by the embedding model.",
    )
    embed_model: BaseEmbedding | None = Field(
        default=None,
        exclude=True,
        description="Model for similarity if there is no reranker; None for Settings.embed_model.",
    )
    top_n: int = Field(default=10, ge=1, description="Maximum nodes to return.")
    min_score: float | None = Field(
        default=None, description="Drop nodes with a lower new score, or none; None to drop none."
    )
    overlap: Overlap = Field(
        default="suppress",
        description='Overlapping windows: "suppress" those that share more than half of their text with a '
        'better one, "merge" chosen ones that touch or share text of one document, or "keep" all.',
    )
    order: Order = Field(default="score", description='Order of the output: by "score" or by "document".')
    reranker_max_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Maximum tokens that the reranker reads of a node, metadata included; it gets a longer "
        "node in parts, the best of which counts. None for no limit.",
    )
    on_rerank_error: Literal["keep_order", "raise"] = Field(
        default="keep_order", description="What happens if the reranker raises or returns nothing usable."
    )
    tokenizer: Tokenizer | None = Field(
        default=None, exclude=True, description="Counts tokens: text to a list; None for LlamaIndex's."
    )

    def _flow(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> Flow[list[NodeWithScore]]:
        incoming = distinct_nodes(nodes)
        ranked: list[NodeWithScore] | None = None
        if query is None:
            logger.warning("%s: there is no query; the nodes keep their order", self.class_name())
        else:
            ranked = yield from self._ranked(incoming, query)
            if ranked is not None and self.min_score is not None:
                lowest = self.min_score
                ranked = [hit for hit in ranked if hit.score is not None and hit.score >= lowest]
        chosen = choose(incoming if ranked is None else ranked, self.top_n, self.overlap)
        if self.order == "document":
            chosen = in_document_order(chosen, incoming)
        return merge(chosen) if self.overlap == "merge" else chosen

    def _ranked(self, incoming: list[NodeWithScore], query: QueryBundle) -> Flow[list[NodeWithScore] | None]:
        """Return the nodes with their new scores, best first; None if the reranker is of no use."""
        parts, owners = yield from self._readable(incoming)
        reranker = self.reranker or EmbeddingRescorePostprocessor(embed_model=self.embed_model)
        reranker = _without_top_n(reranker, len(parts))
        dispatcher.event(
            ReRankStartEvent(
                query=query,
                nodes=incoming[:EVENT_NODES],
                top_n=self.top_n,
                model_name=_model_name(reranker),
            )
        )
        ranked: list[NodeWithScore] = []
        try:
            answer = yield from apply(reranker, parts, query, self.callback_manager)
            ranked = _match(answer, incoming, owners)
            problem = "none of the nodes came back"
        except Exception as error:
            if self.on_rerank_error == "raise":
                raise
            problem = repr(error)
        finally:
            dispatcher.event(ReRankEndEvent(nodes=(ranked or incoming)[:EVENT_NODES]))
        if ranked:
            return ranked
        name, kind = self.class_name(), type(reranker).__name__
        if self.on_rerank_error == "raise":
            raise ValueError(f"{name}: {kind} returned nothing usable: {problem}")
        logger.warning("%s: %s failed, the order stays: %s", name, kind, problem)
        return None

    def _readable(self, incoming: list[NodeWithScore]) -> Flow[tuple[list[NodeWithScore], dict[str, int]]]:
        """Return copies of the nodes in parts that the reranker can read, and the owner of each part."""
        parts: list[NodeWithScore] = []
        owners: dict[str, int] = {}
        limit = self.reranker_max_tokens
        tokenizer = (yield from tokenizer_or_default(self.tokenizer)) if limit is not None else None
        for number, hit in enumerate(incoming):
            nodes = [hit.node.model_copy(update={"metadata": dict(hit.node.metadata)})]
            if limit is not None and tokenizer is not None and is_text(hit.node):
                nodes = list(_parts(as_text_node(hit.node), limit, tokenizer)) or nodes
            for node in nodes:
                owners[node.node_id] = number
                parts.append(NodeWithScore(node=node, score=hit.score))
        return parts, owners


def _match(
    answer: Sequence[NodeWithScore], incoming: list[NodeWithScore], owners: Mapping[str, int]
) -> list[NodeWithScore]:
    """Return the nodes of the answer with the best score of their parts, sorted if scores are new."""
    found: dict[int, float | None] = {}
    for hit in answer:
        owner = owners.get(hit.node.node_id)
        if owner is not None:
            score = _number(hit.score)
            known = found.setdefault(owner, score)
            found[owner] = max(known, score, key=score_key)
    old = {owner: _number(incoming[owner].score) for owner in found}
    order = found if found == old else sorted(found, key=lambda n: score_key(found[n]), reverse=True)
    return [NodeWithScore(node=incoming[owner].node, score=found[owner]) for owner in order]


def _number(score: float | None) -> float | None:
    return None if score is None or math.isnan(score) else float(score)


def _parts(node: TextNode, limit: int, tokenizer: Tokenizer) -> list[BaseNode]:
    """Return windows of a node that is too long for the reranker; none if it is not."""
    content = node.get_content(metadata_mode=MetadataMode.EMBED)
    if len(tokenizer(content)) <= limit:
        return []
    around = len(tokenizer(content)) - len(tokenizer(node.text))
    room = max(1, limit - max(0, around))
    spans = sliding_windows(
        node.text,
        window_tokens=room,
        stride_tokens=max(1, room * 3 // 4),
        count_tokens=lambda text: len(tokenizer(text)),
    )
    provenance = whole_provenance(node)
    return [cut_node(node, provenance, span.start, span.end) for span in spans]


def _without_top_n(reranker: BaseNodePostprocessor, count: int) -> BaseNodePostprocessor:
    """Return the reranker, or a copy that returns all nodes if its own top_n would drop some."""
    own = getattr(reranker, "top_n", None)
    if isinstance(own, int) and own < count:
        return reranker.model_copy(update={"top_n": count})
    return reranker


def _model_name(reranker: BaseNodePostprocessor) -> str:
    for name in ("model", "model_name"):
        value = getattr(reranker, name, None)
        if isinstance(value, str):
            return value
    return type(reranker).__name__

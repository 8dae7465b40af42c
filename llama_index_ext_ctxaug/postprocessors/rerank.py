"""Any reranker, with what it lacks: fallback, top-n over windows that overlap, a limit of what it reads."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Literal

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import BaseModel, Field
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode

from llama_index_ext_ctxaug.budget.fit import Tokenizer
from llama_index_ext_ctxaug.budget.tokenizer import tokenizer_or_default
from llama_index_ext_ctxaug.engine.inner_postprocessor import apply
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.passages.passage_node import is_text
from llama_index_ext_ctxaug.passages.scores import score_key
from llama_index_ext_ctxaug.postprocessors.base import FlowPostprocessor, distinct_nodes
from llama_index_ext_ctxaug.postprocessors.embedding_rescore import EmbeddingRescorePostprocessor
from llama_index_ext_ctxaug.selection.suppression import Order, Overlap, choose, in_document_order
from llama_index_ext_ctxaug.windows.slices import cut_node, whole_provenance
from llama_index_ext_ctxaug.windows.sliding import sliding_windows

logger = logging.getLogger(__name__)
dispatcher = get_dispatcher(__name__)


class RerankOptions(BaseModel):
    """The parameters of reranking."""

    reranker: BaseNodePostprocessor | None = Field(
        default=None,
        exclude=True,
        description="Any reranker (its own top_n is set aside); None for similarity by the embedding model.",
    )
    embed_model: BaseEmbedding | None = Field(
        default=None,
        exclude=True,
        description="Model for similarity where there is no reranker; None for Settings.embed_model.",
    )
    top_n: int = Field(default=10, ge=1, description="Most nodes that go out.")
    min_score: float | None = Field(
        default=None, description="Nodes with a lower new score, or none, are dropped; None to drop none."
    )
    overlap: Overlap = Field(
        default="suppress",
        description='Windows that overlap: "suppress" those that share more than half of their text with a '
        'better one, "merge" chosen ones that touch, or "keep" all.',
    )
    order: Order = Field(default="score", description='Order of the output: by "score" or by "document".')
    reranker_max_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Most tokens that the reranker reads of a node, metadata included; a longer node is "
        "shown to it in parts, the best of which counts. None for no limit.",
    )
    on_rerank_error: Literal["keep_order", "raise"] = Field(
        default="keep_order", description="What happens when the reranker raises, or answers nothing usable."
    )
    tokenizer: Tokenizer | None = Field(
        default=None, exclude=True, description="Counts tokens: text to a list; None for LlamaIndex's."
    )


class RerankPostprocessor(FlowPostprocessor, RerankOptions):
    """Ranks nodes with any LlamaIndex reranker and keeps the best, whatever the reranker does.

    **Requires**: a query, and a `reranker` (`SentenceTransformerRerank`, `LLMRerank`, Cohere, FlashRank ...)
    or an embedding model.

    **Guarantees**: nodes that came in are not changed: the reranker gets copies, and its scores are matched
    by id. All nodes are ranked before `top_n` of them are taken. A reranker that returns nodes without new
    scores is taken at its order. Nodes that it leaves out are left out. Of windows that overlap only those
    with text of their own go out (`overlap`).

    **On failure**: where the reranker raises, or returns nothing that came in, the nodes keep the order in
    which they came, with a warning, and `min_score` is not applied; so too where there is no query.

    Example:
        ```python
        from llama_index.core.postprocessor import SentenceTransformerRerank
        from llama_index_ext_ctxaug import RerankPostprocessor

        rerank = RerankPostprocessor(reranker=SentenceTransformerRerank(model="..."), top_n=5)
        engine = index.as_query_engine(node_postprocessors=[rerank])
        ```
    """

    def _flow(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> Flow[list[NodeWithScore]]:
        return (yield from rerank(self, nodes, query, self.class_name()))


def rerank(
    options: RerankOptions, nodes: list[NodeWithScore], query: QueryBundle | None, name: str
) -> Flow[list[NodeWithScore]]:
    """Rank nodes and choose the best.

    Args:
        options: reranker and choice.
        nodes: what to rank.
        query: the question; without one the nodes keep their order.
        name: the postprocessor that warnings name.

    Returns:
        The chosen nodes.
    """
    incoming = distinct_nodes(nodes)
    if not incoming:
        return []
    ranked: list[NodeWithScore] | None = None
    if query is None:
        logger.warning("%s: there is no query, so nothing is reranked: the order stays", name)
    else:
        ranked = yield from _ranked(options, incoming, query, name)
        if ranked is not None and options.min_score is not None:
            lowest = options.min_score
            ranked = [hit for hit in ranked if hit.score is not None and hit.score >= lowest]
    chosen = choose(incoming if ranked is None else ranked, options.top_n, options.overlap)
    return in_document_order(chosen, incoming) if options.order == "document" else chosen


def _ranked(
    options: RerankOptions, incoming: list[NodeWithScore], query: QueryBundle, name: str
) -> Flow[list[NodeWithScore] | None]:
    """The nodes with their new scores, the best first; None where the reranker is of no use."""
    parts, owners = yield from _readable(options, incoming)
    reranker = options.reranker or EmbeddingRescorePostprocessor(embed_model=options.embed_model)
    reranker = _without_top_n(reranker, len(parts))
    dispatcher.event(
        ReRankStartEvent(query=query, nodes=incoming, top_n=options.top_n, model_name=_model_name(reranker))
    )
    ranked: list[NodeWithScore] = []
    try:
        answer = yield from apply(reranker, parts, query)
        ranked = _match(answer, incoming, owners)
        problem = "none of the nodes came back"
    except Exception as error:
        if options.on_rerank_error == "raise":
            raise
        problem = repr(error)
    finally:
        dispatcher.event(ReRankEndEvent(nodes=ranked or incoming))
    if ranked:
        return ranked
    if options.on_rerank_error == "raise":
        raise ValueError(f"{name}: {type(reranker).__name__} answered nothing usable: {problem}")
    logger.warning("%s: %s failed, the order stays: %s", name, type(reranker).__name__, problem)
    return None


def _match(
    answer: Sequence[NodeWithScore], incoming: list[NodeWithScore], owners: Mapping[str, int]
) -> list[NodeWithScore]:
    """The nodes that came back, with the best new score of their parts; sorted where there are new scores."""
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


def _readable(
    options: RerankOptions, incoming: list[NodeWithScore]
) -> Flow[tuple[list[NodeWithScore], dict[str, int]]]:
    """What the reranker gets, copies in parts that it can read, and whose part each is, by id."""
    parts: list[NodeWithScore] = []
    owners: dict[str, int] = {}
    limit = options.reranker_max_tokens
    tokenizer = (yield from tokenizer_or_default(options.tokenizer)) if limit is not None else None
    for number, hit in enumerate(incoming):
        nodes = [hit.node.model_copy(update={"metadata": dict(hit.node.metadata)})]
        if limit is not None and tokenizer is not None and isinstance(hit.node, TextNode):
            nodes = list(_parts(hit.node, limit, tokenizer)) or nodes
        for node in nodes:
            owners[node.node_id] = number
            parts.append(NodeWithScore(node=node, score=hit.score))
    return parts, owners


def _parts(node: TextNode, limit: int, tokenizer: Tokenizer) -> list[BaseNode]:
    """Windows of a node that is too long for the reranker; none for one that is not."""
    content = node.get_content(metadata_mode=MetadataMode.EMBED)
    if not is_text(node) or len(tokenizer(content)) <= limit:
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
    """The reranker, or a copy that returns all nodes where its own top_n would cut them off."""
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

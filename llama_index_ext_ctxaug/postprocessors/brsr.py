"""BRSR: expand hits to their sections, cut them into windows, rerank the windows, keep the best."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, model_validator
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.settings import Settings
from typing_extensions import Self

from llama_index_ext_ctxaug.budget.fit import JOINT_TOKENS, Tokenizer
from llama_index_ext_ctxaug.budget.tokenizer import tokenizer_or_default
from llama_index_ext_ctxaug.engine.docstore_postprocessor import DocstorePostprocessor
from llama_index_ext_ctxaug.engine.hits import distinct_nodes
from llama_index_ext_ctxaug.engine.inner_postprocessor import apply
from llama_index_ext_ctxaug.engine.options import BudgetOptions
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.postprocessors.rerank import RerankPostprocessor
from llama_index_ext_ctxaug.postprocessors.section import SectionPostprocessor
from llama_index_ext_ctxaug.postprocessors.sliding_window import SlidingWindowPostprocessor
from llama_index_ext_ctxaug.postprocessors.token_budget import TokenBudgetPostprocessor
from llama_index_ext_ctxaug.selection.suppression import Order, Overlap, merge
from llama_index_ext_ctxaug.windows.segmentation import SentenceSplitter
from llama_index_ext_ctxaug.windows.sliding import check_window

PROMPT_TOKENS = 256
"""Tokens of the LLM's context window reserved for the prompt around context and question."""


class BRSRPostprocessor(DocstorePostprocessor, BudgetOptions):
    """Bidirectional recursive semantic reordering: the best windows of the sections around all hits.

    For hits of one retriever or several. Each hit is expanded both ways to a heading or `expansion_tokens`;
    expansions that meet become one passage, in document order. Passages are cut into windows of
    `window_tokens` at `stride_tokens`, the windows are reranked against the query, and the best `top_n` are
    returned. The steps are `SectionPostprocessor`, `SlidingWindowPostprocessor`, `RerankPostprocessor` and
    `TokenBudgetPostprocessor`. Put these into `node_postprocessors` one after another to set a parameter
    that BRSR does not have.

    **Requires**: a docstore that holds the chunks (see `ContextAugmenter`), a query, and a `reranker` or an
    embedding model. Scores of different retrievers may have different scales: before the rerank only the
    order of the hits counts.

    **Guarantees**: windows are slices of passages with provenance back to chunks and document, and their
    ids are the same in every run. The context, metadata included, is at most `max_context_tokens` long,
    unless metadata alone takes more than half of that. Hits may be left out: that is what the rerank is for.

    **On failure**: as the steps. Without a query, or if the reranker fails, the first windows are returned
    in the order of the passages, with a warning.

    Example:
        ```python
        from llama_index_ext_ctxaug import BRSRPostprocessor

        augmenter = BRSRPostprocessor(docstore=index.docstore, top_n=10)
        engine = index.as_query_engine(similarity_top_k=20, node_postprocessors=[augmenter])
        ```
    """

    top_k: int | None = Field(default=None, ge=1, description="Maximum hits to expand; None for all.")
    expansion_tokens: int = Field(default=256, ge=0, description="Maximum tokens added per side of a hit.")
    stop_at: Literal["any", "same_or_higher"] = Field(
        default="any", description="Headings that end a section, as in SectionPostprocessor."
    )
    window_tokens: int = Field(default=512, ge=1, description="Maximum tokens of a window.")
    stride_tokens: int = Field(
        default=128,
        description="Tokens from the start of one window to the start of the next, at most window_tokens.",
    )
    sentence_splitter: SentenceSplitter | None = Field(
        default=None, exclude=True, description="Splits a text into sentences; None for the default rule."
    )
    reranker: BaseNodePostprocessor | None = Field(
        default=None, exclude=True, description="Any reranker; None for similarity by the embedding model."
    )
    embed_model: BaseEmbedding | None = Field(
        default=None,
        exclude=True,
        description="Model for similarity if there is no reranker; None for Settings.embed_model.",
    )
    reranker_max_tokens: int | None = Field(
        default=None, ge=1, description="Maximum tokens that the reranker reads of a node; None for no limit."
    )
    top_n: int = Field(default=10, ge=1, description="Maximum windows to return.")
    min_score: float | None = Field(
        default=None, description="Drop windows with a lower new score, or none; None to drop none."
    )
    overlap: Overlap = Field(
        default="suppress", description="What happens to overlapping windows, as in RerankPostprocessor."
    )
    order: Order = Field(default="score", description='Order of the output: by "score" or by "document".')
    max_context_tokens: Annotated[int, Field(ge=1)] | Literal["llm"] | None = Field(
        default="llm",
        description='Maximum tokens of the output text; "llm" for what the context window of Settings.llm '
        "leaves beside prompt, question and answer (no limit if no LLM is set); None for no limit.",
    )

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        check_window(self.window_tokens, self.stride_tokens)
        return self

    def _flow(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> Flow[list[NodeWithScore]]:
        limit = yield from self._limit(query)
        hits = distinct_nodes(nodes)[: self.top_k]
        step = partial(apply, query=query, callbacks=self.callback_manager)
        passages = yield from step(self._sections(), hits)
        windows = yield from step((yield from self._windows(limit, passages)), passages)
        if limit is None:
            return (yield from step(self._rerank(self.overlap), windows))
        # Windows are merged after the budget: a merged window is longer than any of them and is not cut.
        merges = self.overlap == "merge"
        chosen = yield from step(self._rerank("keep" if merges else self.overlap), windows)
        budget = TokenBudgetPostprocessor(
            token_budget=limit, priority="score", budget_unit=self.budget_unit, tokenizer=self.tokenizer
        )
        kept = yield from step(budget, chosen)
        return merge(kept) if merges else kept

    def _sections(self) -> SectionPostprocessor:
        reading = {name: getattr(self, name) for name in DocstorePostprocessor.model_fields}
        return SectionPostprocessor(
            output="passages",
            expansion_tokens=self.expansion_tokens,
            stop_at=self.stop_at,
            tokenizer=self.tokenizer,
            **reading,
        )

    def _windows(
        self, limit: int | None, passages: Sequence[NodeWithScore]
    ) -> Flow[SlidingWindowPostprocessor]:
        """Make the step that cuts; a window with its metadata is never longer than the whole context."""
        size = self.window_tokens
        if limit is not None:
            tokenizer = yield from tokenizer_or_default(self.tokenizer)
            around = max((_metadata_tokens(hit.node, tokenizer) for hit in passages), default=0)
            # Metadata that leaves little room would make many tiny windows: then the budget warns instead.
            left = limit - around - JOINT_TOKENS if 0 < 2 * around <= limit else limit
            size = max(1, min(size, left))
        return SlidingWindowPostprocessor(
            window_tokens=size,
            stride_tokens=min(self.stride_tokens, size),
            sentence_splitter=self.sentence_splitter,
            tokenizer=self.tokenizer,
        )

    def _rerank(self, overlap: Overlap) -> RerankPostprocessor:
        return RerankPostprocessor(
            reranker=self.reranker,
            embed_model=self.embed_model,
            reranker_max_tokens=self.reranker_max_tokens,
            top_n=self.top_n,
            min_score=self.min_score,
            overlap=overlap,
            order=self.order,
            tokenizer=self.tokenizer,
        )

    def _limit(self, query: QueryBundle | None) -> Flow[int | None]:
        """Return the maximum tokens of the context; None for no limit."""
        if self.max_context_tokens != "llm":
            return self.max_context_tokens
        llm = Settings._llm  # the property would build an OpenAI client if no LLM is set
        if llm is None:
            return None
        tokenizer = yield from tokenizer_or_default(self.tokenizer)
        question = len(tokenizer(query.query_str)) if query is not None else 0
        window = llm.metadata.context_window - max(0, llm.metadata.num_output or 0)
        left = window - question - PROMPT_TOKENS
        return left if left > 0 else None


def _metadata_tokens(node: BaseNode, tokenizer: Tokenizer) -> int:
    """Return the tokens of the metadata that a model sees around a node's text."""
    text, content = (node.get_content(metadata_mode=mode) for mode in (MetadataMode.NONE, MetadataMode.LLM))
    return 0 if content == text else max(0, len(tokenizer(content)) - len(tokenizer(text)))

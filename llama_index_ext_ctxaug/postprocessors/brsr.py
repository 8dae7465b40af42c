"""BRSR: grow hits to their sections, cut them into windows, rerank the windows, keep the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from llama_index.core.bridge.pydantic import Field
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.settings import Settings

from llama_index_ext_ctxaug.budget.fit import JOINT_TOKENS, Tokenizer
from llama_index_ext_ctxaug.budget.tokenizer import tokenizer_or_default
from llama_index_ext_ctxaug.engine.inner_postprocessor import apply
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.postprocessors.base import distinct_nodes
from llama_index_ext_ctxaug.postprocessors.rerank import RerankOptions, rerank
from llama_index_ext_ctxaug.postprocessors.section import SectionPostprocessor
from llama_index_ext_ctxaug.postprocessors.sliding_window import WindowOptions, cut_into_windows
from llama_index_ext_ctxaug.postprocessors.token_budget import TokenBudgetPostprocessor
from llama_index_ext_ctxaug.selection.suppression import choose

PROMPT_TOKENS = 256
"""What the prompt around context and question may need, of the LLM's window."""


class BRSRPostprocessor(SectionPostprocessor, WindowOptions, RerankOptions):
    """Bidirectional recursive semantic reordering: the best windows of the sections around all hits.

    For hits of one retriever or several: each grows both ways to a heading or `expansion_tokens`; expansions
    that meet become one passage, in document order; passages are cut again into windows of `window_tokens`
    at `stride_tokens`; the windows are reranked against the question, and the best `top_n` go out. The steps
    are `SectionPostprocessor`, `SlidingWindowPostprocessor` and `RerankPostprocessor`; their parameters are
    parameters here, under the same names.

    **Requires**: a docstore that holds the chunks (see `ContextAugmenter`), a query, and a `reranker` or an
    embedding model. Scores of different retrievers may have different scales: they decide nothing before
    the rerank, except through the order in which the hits come.

    **Guarantees**: windows are slices of passages with provenance back to chunks and document, ids are the
    same in every run, and the context, metadata included, is at most `max_context_tokens` long, unless
    metadata alone takes more than half of that. The output may leave hits out: that is what the rerank is
    for.

    **On failure**: as the steps; without a query, or where the reranker fails, the first windows go out in
    the order of the passages, with a warning.

    Example:
        ```python
        from llama_index_ext_ctxaug import BRSRPostprocessor

        augmenter = BRSRPostprocessor(docstore=index.docstore, top_n=10)
        engine = index.as_query_engine(similarity_top_k=20, node_postprocessors=[augmenter])
        ```
    """

    output: Literal["passages"] = Field(
        default="passages", description="Expansions that meet become one passage, which is cut into windows."
    )
    top_k: int | None = Field(default=None, ge=1, description="Most hits to grow from; None for all.")
    max_context_tokens: Annotated[int, Field(ge=1)] | Literal["llm"] | None = Field(
        default="llm",
        description='Most tokens of the text that goes out; "llm" for what the window of Settings.llm leaves '
        "beside prompt, question and answer (no limit where no LLM is set); None for no limit.",
    )

    def _flow(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> Flow[list[NodeWithScore]]:
        name = self.class_name()
        hits = distinct_nodes(nodes)
        if not hits:
            return []
        limit = yield from self._limit(query)
        passages = yield from SectionPostprocessor._flow(self, hits[: self.top_k], query)
        sizes = yield from self._sized(limit, passages)
        windows = yield from cut_into_windows(sizes, passages, query, name)
        if limit is None:
            return (yield from rerank(self, windows, query, name))
        # Windows are merged behind the cap: what they make may be longer than any of them, and is not cut.
        merges = self.overlap == "merge"
        options = self.model_copy(update={"overlap": "keep"}) if merges else self
        chosen = yield from rerank(options, windows, query, name)
        budget = TokenBudgetPostprocessor(token_budget=limit, priority="score", tokenizer=self.tokenizer)
        kept = yield from apply(budget, chosen, query)
        return choose(kept, len(kept), "merge") if merges else kept

    def _sized(self, limit: int | None, passages: Sequence[NodeWithScore]) -> Flow[WindowOptions]:
        """The window parameters; a window with its metadata is no longer than the whole context may be."""
        size = self.window_tokens
        if limit is not None:
            tokenizer = yield from tokenizer_or_default(self.tokenizer)
            around = max((_metadata_tokens(hit.node, tokenizer) for hit in passages), default=0)
            # Metadata that leaves little room would make many tiny windows: then the cap warns instead.
            left = limit - around - JOINT_TOKENS if 0 < 2 * around <= limit else limit
            size = max(1, min(size, left))
        return WindowOptions(
            window_tokens=size,
            stride_tokens=min(self.stride_tokens, size),
            sentence_splitter=self.sentence_splitter,
            tokenizer=self.tokenizer,
        )

    def _limit(self, query: QueryBundle | None) -> Flow[int | None]:
        """Most tokens of the context."""
        if self.max_context_tokens != "llm":
            return self.max_context_tokens
        llm = Settings._llm  # the property would build an OpenAI client where nothing is set
        if llm is None:
            return None
        tokenizer = yield from tokenizer_or_default(self.tokenizer)
        question = len(tokenizer(query.query_str)) if query is not None else 0
        window = llm.metadata.context_window - max(0, llm.metadata.num_output or 0)
        left = window - question - PROMPT_TOKENS
        return left if left > 0 else None


def _metadata_tokens(node: BaseNode, tokenizer: Tokenizer) -> int:
    """Tokens of what stands around a node's text where a model reads it."""
    text, content = (node.get_content(metadata_mode=mode) for mode in (MetadataMode.NONE, MetadataMode.LLM))
    return 0 if content == text else max(0, len(tokenizer(content)) - len(tokenizer(text)))

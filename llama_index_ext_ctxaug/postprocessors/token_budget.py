"""Drop nodes of any list until it fits into a token budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from llama_index.core.bridge.pydantic import Field
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index_ext_ctxaug.budget.costs import ChunkCosts
from llama_index_ext_ctxaug.budget.fit import Tokenizer, fit
from llama_index_ext_ctxaug.budget.priority import hits_first_in_list
from llama_index_ext_ctxaug.budget.token_counter import TokenCounter
from llama_index_ext_ctxaug.budget.tokenizer import budget_details, report_budget, tokenizer_or_default
from llama_index_ext_ctxaug.engine.flow_postprocessor import FlowPostprocessor
from llama_index_ext_ctxaug.engine.hits import distinct_hits
from llama_index_ext_ctxaug.engine.instrumentation import current_report
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.passages.passage import Chunk, Passage


class TokenBudgetPostprocessor(FlowPostprocessor):
    """Drop nodes until the text for the model fits into a token budget.

    Use it last, after a reranker or a similarity cutoff. Tokens are counted on the LLM content of the nodes
    (text, and the metadata that is not excluded), joined by blank lines as LlamaIndex's response
    synthesizers join it; the prompt around it is not counted.

    **Requires**: nothing; no docstore and no query.

    **Guarantees**: kept nodes are the same objects, whole and in their order. Hits are kept first, the best
    score first; then nodes that an augmenter added, the nearest to a hit first. A node that does not fit
    leaves its tokens to the next one. A repeated node is kept once, with its best score.

    **On failure**: the best node is kept whole even where it alone exceeds the budget. That, and hits that
    do not fit, are logged as warnings and named in the end event.

    Example:
        ```python
        from llama_index_ext_ctxaug import PrevNextNodePostprocessor, TokenBudgetPostprocessor

        engine = index.as_query_engine(
            node_postprocessors=[
                PrevNextNodePostprocessor(docstore=index.docstore, mode="both"),
                TokenBudgetPostprocessor(token_budget=2000),
            ]
        )
        ```
    """

    token_budget: int = Field(ge=0, description="Maximum tokens of the final text.")
    priority: Literal["hits_first", "score"] = Field(
        default="hits_first",
        description='"hits_first": added nodes rank below hits; "score": the score alone counts.',
    )
    tokenizer: Tokenizer | None = Field(
        default=None, exclude=True, description="Counts tokens: text to a list; None for LlamaIndex's."
    )

    def _flow(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> Flow[list[NodeWithScore]]:
        chunks = list(distinct_hits(nodes).values())
        tokenizer = yield from tokenizer_or_default(self.tokenizer)
        costs = ChunkCosts(
            [Passage([chunk]) for chunk in chunks],
            TokenCounter(tokenizer),
            write=lambda kept: [hit for passage in kept for hit in _origins(passage.chunks)],
        )
        ranked = [replace(chunk, role="hit") for chunk in chunks] if self.priority == "score" else chunks
        fitted = fit(ranked, self.token_budget, hits_first_in_list(ranked), costs)
        report_budget(self.class_name(), self.token_budget, fitted)
        result = _origins(chunk for chunk in chunks if chunk.node.node_id in fitted.kept)
        report = current_report()
        report.tokens = fitted.tokens
        report.details |= budget_details(fitted)
        if len(result) < len(chunks):
            report.stop_reasons["budget"] += len(chunks) - len(result)
        return result


def _origins(chunks: Iterable[Chunk]) -> list[NodeWithScore]:
    return [chunk.origin for chunk in chunks if chunk.origin is not None]

"""Drop nodes of any list until it fits into a token budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from llama_index.core.bridge.pydantic import Field
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index_ext_ctxaug.budget.costs import ChunkCosts
from llama_index_ext_ctxaug.budget.fit import NO_PARTS, fit, keep, mark_cuts
from llama_index_ext_ctxaug.budget.priority import hits_first_in_list
from llama_index_ext_ctxaug.budget.token_counter import TokenCounter
from llama_index_ext_ctxaug.budget.tokenizer import budget_details, report_budget, tokenizer_or_default
from llama_index_ext_ctxaug.engine.flow_postprocessor import FlowPostprocessor
from llama_index_ext_ctxaug.engine.hits import distinct_hits
from llama_index_ext_ctxaug.engine.instrumentation import current_report
from llama_index_ext_ctxaug.engine.options import BudgetOptions
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.passages.passage import Passage
from llama_index_ext_ctxaug.selection.relevance import query_terms
from llama_index_ext_ctxaug.selection.sentences import fit_sentences
from llama_index_ext_ctxaug.windows.chunk_parts import marked_part


class TokenBudgetPostprocessor(FlowPostprocessor, BudgetOptions):
    """Drop nodes until the text for the model fits into a token budget.

    Use it last, after a reranker or a similarity cutoff. Tokens are counted on the LLM content of the nodes
    (text, and the metadata that is not excluded), joined by blank lines as LlamaIndex's response
    synthesizers join it; the prompt around it is not counted.

    **Requires**: nothing; no docstore and no query.

    **Guarantees**: kept nodes are the same objects, whole and in their order. Hits are kept first, the best
    score first; then nodes that an augmenter added, the nearest to a hit first. A node that does not fit
    leaves its tokens to the next one. A repeated node is kept once, with its best score.

    With `budget_unit="sentence"` the first node that does not fit gives the sentences that do, as nodes of
    their own: those with words of the query first.

    **On failure**: the best node is kept whole even if it alone exceeds the budget; with
    `budget_unit="sentence"` it is cut, and the budget is never exceeded. A whole node over the budget, and
    hits that do not fit, are logged as warnings and named in the end event.

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

    def _flow(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> Flow[list[NodeWithScore]]:
        chunks = list(distinct_hits(nodes).values())
        passages = [Passage([chunk]) for chunk in chunks]
        counter = TokenCounter((yield from tokenizer_or_default(self.tokenizer)))
        costs = ChunkCosts(passages, counter, write=_nodes)
        ranked = [replace(chunk, role="hit") for chunk in chunks] if self.priority == "score" else chunks
        fitted, parts = fit(ranked, self.token_budget, hits_first_in_list(ranked), costs), NO_PARTS
        if self.budget_unit == "sentence":
            terms = query_terms(query.query_str) if query else []
            fitted, parts = fit_sentences(fitted, self.token_budget, costs, terms)
        report_budget(self.class_name(), self.token_budget, fitted)
        mark_cuts(passages, fitted.kept, parts)
        report = current_report()
        report.tokens = fitted.tokens
        report.details |= budget_details(fitted)
        if cut := len(chunks) - len(fitted.kept):
            report.stop_reasons["budget"] += cut
        return _nodes(keep(passages, fitted.kept, parts))


def _nodes(passages: Sequence[Passage]) -> list[NodeWithScore]:
    chunks = [chunk for passage in passages for chunk in passage.chunks]
    return [chunk.origin or NodeWithScore(node=marked_part(chunk), score=chunk.score) for chunk in chunks]

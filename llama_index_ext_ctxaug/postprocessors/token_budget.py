"""Any list of nodes, cut down to a number of tokens."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

from llama_index.core.bridge.pydantic import Field
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from llama_index_ext_ctxaug.budget.fit import NODE_SEPARATOR, Tokenizer, final_text, fit_list
from llama_index_ext_ctxaug.budget.tokenizer import budget_details, report_budget, tokenizer_or_default
from llama_index_ext_ctxaug.events import (
    ContextAugmentationEndEvent,
    ContextAugmentationStartEvent,
    has_listeners,
)
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.postprocessors.base import FlowPostprocessor, distinct_hits

dispatcher = get_dispatcher(__name__)


class TokenBudgetPostprocessor(FlowPostprocessor):
    """Leaves out nodes until the text that goes to the model has no more than a number of tokens.

    Made to stand last, after a reranker or a similarity cutoff. Tokens are counted on the LLM content of
    the nodes (text, and the metadata that is not excluded), joined by blank lines as LlamaIndex's response
    synthesizers join it; the prompt around it is not counted.

    **Requires**: nothing; no docstore and no query.

    **Guarantees**: nodes go out whole, in the order in which they came, as the very objects that came in.
    Hits are kept first, the best score first; then nodes that an augmenter added, the nearest to a hit
    first. What a node that does not fit leaves unused goes to the next one. A node that came twice goes
    out once, with its best score.

    **On failure**: the best node is kept whole even where it alone is over the budget. That, and hits that
    do not fit, are warned of and named in the end event.

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

    token_budget: int = Field(ge=0, description="Most tokens of the text that goes out.")
    priority: Literal["hits_first", "score"] = Field(
        default="hits_first",
        description='"hits_first": what an augmenter added comes after hits; "score": score alone counts.',
    )
    tokenizer: Tokenizer | None = Field(
        default=None, exclude=True, description="Counts tokens: text to a list; None for LlamaIndex's."
    )

    def _flow(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> Flow[list[NodeWithScore]]:
        chunks = list(distinct_hits(nodes).values())
        if not chunks:
            return []
        name = self.class_name()
        if observed := has_listeners(dispatcher):
            dispatcher.event(
                ContextAugmentationStartEvent(
                    augmenter=name, num_hits=len(chunks), query_str=query.query_str if query else None
                )
            )
        origins = {chunk.node.node_id: chunk.origin for chunk in chunks if chunk.origin is not None}
        tokenizer = yield from tokenizer_or_default(self.tokenizer)
        separator = len(tokenizer(NODE_SEPARATOR))

        def cost(id_: str, kept: Collection[str]) -> int:
            content = origins[id_].node.get_content(metadata_mode=MetadataMode.LLM)
            return len(tokenizer(content)) + separator

        def chosen(kept: Collection[str]) -> list[NodeWithScore]:
            return [hit for id_, hit in origins.items() if id_ in kept]

        filling = fit_list(
            [replace(chunk, role="hit") for chunk in chunks] if self.priority == "score" else chunks,
            self.token_budget,
            cost=cost,
            measure=lambda kept: len(tokenizer(final_text(chosen(kept)))),
        )
        report_budget(name, self.token_budget, filling)
        result = chosen(filling.kept)
        if observed:
            dispatcher.event(
                ContextAugmentationEndEvent(
                    augmenter=name,
                    num_hits=len(chunks),
                    num_nodes=len(result),
                    added_node_ids=[],
                    reads=0,
                    round_trips=0,
                    tokens=filling.tokens,
                    stop_reasons={"budget": len(chunks) - len(result)} if len(result) < len(chunks) else {},
                    details=budget_details(filling),
                )
            )
        return result

"""Replace the hits of one or two documents by the whole documents."""

from __future__ import annotations

from llama_index.core.bridge.pydantic import Field
from llama_index.core.schema import MetadataMode, QueryBundle
from typing_extensions import override

from llama_index_ext_ctxaug.budget.tokenizer import tokenizer_or_default
from llama_index_ext_ctxaug.expansion.expansion import UNBOUNDED, Expansion, Reach
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.passages.passage import Passage
from llama_index_ext_ctxaug.postprocessors.base import ContextAugmenter

MAX_DOCUMENTS = 2
"""Maximum documents that are given whole (QAnything's number)."""


class WholeDocumentsPostprocessor(ContextAugmenter):
    """Give whole documents if all hits are from at most two, and these fit into `token_budget`.

    If they do not fit, each document is given from its first hit to its last. Hits of three documents
    or more stay unchanged. Use it where documents are short, such as notes or questions with answers.

    **Requires**: a docstore that holds the chunks, and PREVIOUS/NEXT relationships or anything else that
    gives their order. No query is needed.

    **Guarantees**: as `ContextAugmenter`. Hits of three documents or more cause no read.

    **On failure**: as `ContextAugmenter`.

    Source: QAnything.

    Example:
        ```python
        from llama_index_ext_ctxaug import WholeDocumentsPostprocessor

        augmenter = WholeDocumentsPostprocessor(docstore=index.docstore, token_budget=1000)
        engine = index.as_query_engine(node_postprocessors=[augmenter])
        ```
    """

    token_budget: int | None = Field(
        default=2000, ge=0, description="Maximum tokens of the final text; None for no limit."
    )

    @override
    def expand(self, expansion: Expansion, query: QueryBundle | None) -> Flow[None]:
        documents = {expansion.links.document(hit.node) for hit in expansion.hits.values()}
        if len(documents) > MAX_DOCUMENTS:
            return
        yield from expansion.expand(dict.fromkeys(expansion.hits, Reach(UNBOUNDED, UNBOUNDED)))
        if self.token_budget is None:
            return
        tokenizer = yield from tokenizer_or_default(self.tokenizer)
        texts = (c.node.get_content(metadata_mode=MetadataMode.NONE) for c in expansion.chunks.values())
        if sum(len(tokenizer(text)) for text in texts) > self.token_budget:
            between = {id_ for run in expansion.passages() for id_ in _first_hit_to_last(run)}
            expansion.chunks = {id_: chunk for id_, chunk in expansion.chunks.items() if id_ in between}


def _first_hit_to_last(run: Passage) -> list[str]:
    """Return the ids of the chunks between hits; none where contradicting links leave a run without a hit."""
    places = [place for place, chunk in enumerate(run.chunks) if chunk.role == "hit"]
    return [chunk.node.node_id for chunk in run.chunks[places[0] : places[-1] + 1]] if places else []

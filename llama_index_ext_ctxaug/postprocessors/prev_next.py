"""A fixed number of chunks before and after each hit."""

from __future__ import annotations

from typing import ClassVar, Literal

from llama_index.core.bridge.pydantic import Field
from llama_index.core.schema import QueryBundle
from typing_extensions import override

from llama_index_ext_ctxaug.expansion.expansion import Expansion, Reach
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.postprocessors.base import ContextAugmenter


class PrevNextNodePostprocessor(ContextAugmenter):
    """Adds a fixed number of chunks before and after each hit.

    Name, parameters and defaults are those of LlamaIndex's postprocessor: change the import, nothing else.

    **Requires**: a docstore that holds the chunks, and PREVIOUS/NEXT relationships or anything else that
    shows their order (see `ContextAugmenter`). No query is needed.

    **Guarantees**: windows that overlap or touch become one run in document order; runs keep the rank of
    their first hit.

    Example:
        ```python
        from llama_index_ext_ctxaug import PrevNextNodePostprocessor

        augmenter = PrevNextNodePostprocessor(docstore=index.docstore, num_nodes=1, mode="both")
        engine = index.as_query_engine(node_postprocessors=[augmenter])
        ```
    """

    _ignored: ClassVar[frozenset[str]] = frozenset({"service_context", "verbose"})

    num_nodes: int = Field(default=1, ge=0, description="Chunks to add on each side that `mode` names.")
    mode: Literal["previous", "next", "both"] = Field(
        default="next", description='Sides to add chunks on: "previous", "next" or "both".'
    )
    num_previous: int | None = Field(
        default=None, ge=0, description="Chunks to add before each hit; overrides `num_nodes` and `mode`."
    )
    num_next: int | None = Field(
        default=None, ge=0, description="Chunks to add after each hit; overrides `num_nodes` and `mode`."
    )

    @override
    def expand(self, expansion: Expansion, query: QueryBundle | None) -> Flow[None]:
        reach = Reach(
            previous=self._count(self.num_previous, "previous"), next=self._count(self.num_next, "next")
        )
        yield from expansion.expand(dict.fromkeys(expansion.hits, reach))

    def _count(self, count: int | None, side: Literal["previous", "next"]) -> int:
        if count is not None:
            return count
        return self.num_nodes if self.mode in (side, "both") else 0

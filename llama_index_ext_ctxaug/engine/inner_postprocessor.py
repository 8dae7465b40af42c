"""One postprocessor as a step of another."""

from __future__ import annotations

from dataclasses import dataclass

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index_ext_ctxaug.flow import Flow, ask
from llama_index_ext_ctxaug.postprocessors.base import FlowPostprocessor


@dataclass(frozen=True)
class Postprocess:
    """The step that calls any postprocessor.

    Attributes:
        postprocessor: what to call.
        nodes: what it gets.
        query: the question.
    """

    postprocessor: BaseNodePostprocessor
    nodes: list[NodeWithScore]
    query: QueryBundle | None

    def run(self) -> list[NodeWithScore]:
        """Call it in the calling thread."""
        return self.postprocessor.postprocess_nodes(self.nodes, query_bundle=self.query)

    async def arun(self) -> list[NodeWithScore]:
        """Call its async method; LlamaIndex runs one that has none in a worker thread."""
        return await self.postprocessor.apostprocess_nodes(self.nodes, query_bundle=self.query)


def apply(
    postprocessor: BaseNodePostprocessor, nodes: list[NodeWithScore], query: QueryBundle | None
) -> Flow[list[NodeWithScore]]:
    """Run a postprocessor inside a flow: a flow of this package as part of it, any other as one step."""
    if isinstance(postprocessor, FlowPostprocessor):
        return (yield from postprocessor._flow(nodes, query))
    return (yield from ask(Postprocess(postprocessor, nodes, query)))

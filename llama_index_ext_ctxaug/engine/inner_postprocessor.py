"""A postprocessor as a step of another one."""

from __future__ import annotations

from dataclasses import dataclass

from llama_index.core.callbacks import CallbackManager
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index_ext_ctxaug.engine.flow_postprocessor import FlowPostprocessor, first_overrides
from llama_index_ext_ctxaug.flow import Flow, ask


@dataclass(frozen=True)
class Postprocess:
    """The step that calls any postprocessor.

    Attributes:
        postprocessor: the postprocessor to call.
        nodes: its input.
        query: the query, if there is one.
    """

    postprocessor: BaseNodePostprocessor
    nodes: list[NodeWithScore]
    query: QueryBundle | None

    def run(self) -> list[NodeWithScore]:
        """Call it in the calling thread."""
        return self.postprocessor.postprocess_nodes(self.nodes, query_bundle=self.query)

    async def arun(self) -> list[NodeWithScore]:
        """Call its async method; LlamaIndex runs a sync-only postprocessor in a worker thread."""
        return await self.postprocessor.apostprocess_nodes(self.nodes, query_bundle=self.query)


def apply(
    postprocessor: BaseNodePostprocessor,
    nodes: list[NodeWithScore],
    query: QueryBundle | None,
    callbacks: CallbackManager,
) -> Flow[list[NodeWithScore]]:
    """Run a postprocessor inside a flow: one of this package as part of the flow, any other as a step.

    Args:
        postprocessor: the postprocessor to run.
        nodes: its input.
        query: the query, if there is one.
        callbacks: the callback manager of the outer postprocessor, which engines set; an inner one without
            handlers gets it.

    Returns:
        Its output.
    """
    if not nodes:
        return []
    if callbacks.handlers and not postprocessor.callback_manager.handlers:
        postprocessor = postprocessor.model_copy(update={"callback_manager": callbacks})
    if isinstance(postprocessor, FlowPostprocessor) and not first_overrides(type(postprocessor)):
        return (yield from postprocessor._flow(nodes, query))
    return (yield from ask(Postprocess(postprocessor, nodes, query)))

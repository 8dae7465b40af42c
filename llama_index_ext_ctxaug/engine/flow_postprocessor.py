"""The base of all postprocessors: one algorithm, written as a flow, driven sync and async."""

from __future__ import annotations

from functools import cache

from llama_index.core.bridge.pydantic import ConfigDict
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index_ext_ctxaug.engine.instrumentation import observed_call
from llama_index_ext_ctxaug.flow import Flow, arun, run

dispatcher = get_dispatcher(__name__)


class FlowPostprocessor(BaseNodePostprocessor):
    """A postprocessor with one flow as its algorithm, for the sync and the async path."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid", validate_assignment=True)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which the postprocessor is serialized: that of the class."""
        return cls.__name__

    # Not abstract: LlamaIndex wraps implementations of abstract methods in a span, which ends before a
    # generator has begun and costs as much as reading ten nodes from memory.
    def _flow(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> Flow[list[NodeWithScore]]:
        """Turn hits, at least one, into output nodes; yield a step for each I/O."""
        raise NotImplementedError(f"{type(self).__name__} must implement _flow")

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if not nodes:
            return []
        with observed_call(self.class_name(), nodes, query_bundle) as report:
            report.result = run(self._flow(nodes, query_bundle))
        return report.result

    @dispatcher.span
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if not nodes:
            return []
        if first_overrides(type(self)) == {"_postprocess_nodes"}:
            return await super()._apostprocess_nodes(nodes, query_bundle)  # the override, in a thread
        with observed_call(self.class_name(), nodes, query_bundle) as report:
            report.result = await arun(self._flow(nodes, query_bundle))
        return report.result


@cache
def first_overrides(kind: type[FlowPostprocessor]) -> frozenset[str]:
    """Return which of LlamaIndex's two methods the most derived class with an override overrides."""
    methods = {"_postprocess_nodes", "_apostprocess_nodes"}
    below = kind.__mro__[: kind.__mro__.index(FlowPostprocessor)]
    return next((frozenset(found) for base in below if (found := methods & vars(base).keys())), frozenset())

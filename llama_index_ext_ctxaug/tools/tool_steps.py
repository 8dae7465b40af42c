"""What the tools wait for: a retriever's answer, and failures that name nothing."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore

from llama_index_ext_ctxaug.errors import ContextAugmentationError
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.tools.reading import Reading

logger = logging.getLogger(__name__)


class ReadingError(ContextAugmentationError):
    """A document store or a retriever failed; the message names nothing that was read."""


@dataclass(frozen=True)
class Retrieve:
    """The step that calls a retriever.

    Attributes:
        retriever: what to ask.
        query: what to look for.
    """

    retriever: BaseRetriever
    query: str

    def run(self) -> list[NodeWithScore]:
        """Retrieve in the calling thread."""
        return self.retriever.retrieve(self.query)

    async def arun(self) -> list[NodeWithScore]:
        """Retrieve by the retriever's async method."""
        return await self.retriever.aretrieve(self.query)


def guarded(flow: Flow[Reading]) -> Flow[Reading]:
    """Run a flow; an error of one of its steps becomes a `ReadingError` that names nothing."""
    failed: Exception | None = None
    try:
        step = next(flow)
        while True:
            try:
                result = yield step
            except Exception as error:
                failed = error
                step = flow.throw(error)
            else:
                step = flow.send(result)
    except StopIteration as stop:
        reading: Reading = stop.value
        return reading
    except Exception as error:
        if error is not failed:
            raise
        logger.warning("ReadAroundToolSpec: reading failed: %r", error)
        raise ReadingError("The documents cannot be read at the moment. Try again later.") from error

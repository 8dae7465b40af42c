"""Errors of the tools, which name nothing that was read."""

from __future__ import annotations

import logging

from llama_index_ext_ctxaug.errors import ContextAugmentationError
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.tools.reading import Reading

logger = logging.getLogger(__name__)


class ReadingError(ContextAugmentationError):
    """A document store or a retriever failed; the message names nothing that was read."""


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

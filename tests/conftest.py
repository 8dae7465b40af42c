"""Settings and fixtures of all tests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Iterator

import pytest
from blockbuster import blockbuster_ctx
from helpers import Postprocess, recorded
from hypothesis import HealthCheck, settings
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore

from llama_index_ext_ctxaug import ContextAugmentationEndEvent

pytest_plugins = ["servers", "databases"]

# Health checks and deadlines would measure how busy the machine is, not the package. CI draws the same
# examples in each run, so a failure comes from the change; local runs explore.
# CTXAUG_EXAMPLES=10 makes a quick run.
settings.register_profile(
    "here",
    max_examples=int(os.environ.get("CTXAUG_EXAMPLES", "80")),
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("here")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail skipped tests if CTXAUG_NO_SKIPS is set: a skipped check proves nothing."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CTXAUG_NO_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and CTXAUG_NO_SKIPS is set: {report.longrepr}"
    return report


@pytest.fixture(params=["sync", "async"])
def postprocess(request: pytest.FixtureRequest) -> Postprocess:
    """Call `postprocess(augmenter, nodes, query_str=...)`: sync in one run of the test, async in the other.

    An async call that blocks the event loop fails the test.
    """

    def run_sync(augmenter: BaseNodePostprocessor, nodes: list[NodeWithScore], **kw: object) -> list:
        return augmenter.postprocess_nodes(nodes, **kw)

    def run_async(augmenter: BaseNodePostprocessor, nodes: list[NodeWithScore], **kw: object) -> list:
        async def call() -> list:
            with blockbuster_ctx():
                return await augmenter.apostprocess_nodes(nodes, **kw)

        return asyncio.run(call())

    return run_sync if request.param == "sync" else run_async


@pytest.fixture
def ends() -> Iterator[list[ContextAugmentationEndEvent]]:
    """Collect the end events of the test."""
    with recorded(ContextAugmentationEndEvent) as events:
        yield events

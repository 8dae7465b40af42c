"""Fixtures that all tests share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator

import pytest
from blockbuster import blockbuster_ctx
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore

Postprocess = Callable[..., list[NodeWithScore]]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where CTXAUG_NO_SKIPS is set, a test that skips has failed: a check that does not run is none."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CTXAUG_NO_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and CTXAUG_NO_SKIPS is set: {report.longrepr}"
    return report


@pytest.fixture(params=["sync", "async"])
def postprocess(request: pytest.FixtureRequest) -> Postprocess:
    """Calls a postprocessor: `postprocess(augmenter, nodes, query_str=...)`; each test runs both ways.

    In the async way a call that blocks the event loop fails the test.
    """

    def run_sync(augmenter: BaseNodePostprocessor, nodes: list[NodeWithScore], **kw: object) -> list:
        return augmenter.postprocess_nodes(nodes, **kw)

    def run_async(augmenter: BaseNodePostprocessor, nodes: list[NodeWithScore], **kw: object) -> list:
        async def call() -> list:
            with blockbuster_ctx():
                return await augmenter.apostprocess_nodes(nodes, **kw)

        return asyncio.run(call())

    return run_sync if request.param == "sync" else run_async

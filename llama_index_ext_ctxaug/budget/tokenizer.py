"""Load the tokenizer without blocking the event loop, and report what a budget left out."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from llama_index.core.utils import get_tokenizer

from llama_index_ext_ctxaug.budget.fit import BudgetFit, Tokenizer
from llama_index_ext_ctxaug.flow import Flow, ask

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadTokenizer:
    """The step that loads LlamaIndex's tokenizer, which reads files the first time in a process."""

    def run(self) -> Tokenizer:
        """Load it in the calling thread."""
        return get_tokenizer()

    async def arun(self) -> Tokenizer:
        """Load it in a worker thread."""
        return await asyncio.to_thread(get_tokenizer)


def tokenizer_or_default(tokenizer: Tokenizer | None) -> Flow[Tokenizer]:
    """Return the given tokenizer, else the current one of LlamaIndex's settings."""
    if tokenizer is not None:
        return tokenizer
    return (yield from ask(LoadTokenizer()))


def budget_details(fitted: BudgetFit | None) -> dict[str, Any]:
    """Return what the end event says of a budget that could not hold all hits."""
    details: dict[str, Any] = {}
    if fitted is not None and fitted.over_budget is not None:
        details["over_budget_id"] = fitted.over_budget
    if fitted is not None and fitted.dropped_hits:
        details["dropped_hit_ids"] = list(fitted.dropped_hits)
    return details


def report_budget(name: str, budget: int | None, fitted: BudgetFit) -> None:
    """Warn of a hit that alone exceeds the budget, and of hits that did not fit."""
    if fitted.over_budget is not None:
        logger.warning(
            "%s: the best hit %r alone has more than token_budget=%s tokens; it is %s",
            name,
            fitted.over_budget,
            budget,
            f"kept whole ({fitted.tokens} tokens)" if fitted.kept else "left out, since no word of it fits",
        )
    if fitted.dropped_hits:
        logger.warning(
            "%s: %d hits do not fit into token_budget=%s and are left out (the first is %r)",
            name,
            len(fitted.dropped_hits),
            budget,
            fitted.dropped_hits[0],
        )

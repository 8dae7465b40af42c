"""The tokenizer that counts, brought without blocking the event loop, and what a budget has to report."""

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
    """The step that brings LlamaIndex's tokenizer: the first time in a process it is read from files."""

    def run(self) -> Tokenizer:
        """Bring it in the calling thread."""
        return get_tokenizer()

    async def arun(self) -> Tokenizer:
        """Bring it in a worker thread."""
        return await asyncio.to_thread(get_tokenizer)


def tokenizer_or_default(tokenizer: Tokenizer | None) -> Flow[Tokenizer]:
    """The tokenizer that was given, else the one that LlamaIndex's settings hold at this moment."""
    if tokenizer is not None:
        return tokenizer
    return (yield from ask(LoadTokenizer()))


def budget_details(filling: BudgetFit | None) -> dict[str, Any]:
    """What the end event says of a budget that could not hold all hits."""
    details: dict[str, Any] = {}
    if filling is not None and filling.over_budget is not None:
        details["over_budget_id"] = filling.over_budget
    if filling is not None and filling.dropped_hits:
        details["dropped_hit_ids"] = list(filling.dropped_hits)
    return details


def report_budget(name: str, budget: int | None, filling: BudgetFit) -> None:
    """Warn of a hit that is over the budget by itself, and of hits that did not fit."""
    if filling.over_budget is not None:
        logger.warning(
            "%s: the best hit %r alone has more than token_budget=%s tokens (%d); it is kept whole",
            name,
            filling.over_budget,
            budget,
            filling.tokens,
        )
    if filling.dropped_hits:
        logger.warning(
            "%s: %d hits do not fit into token_budget=%s and are left out (the first is %r)",
            name,
            len(filling.dropped_hits),
            budget,
            filling.dropped_hits[0],
        )

"""Measuring one way for `evidence.py`: the share of the pool that a budget holds, and the cost."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

from evidence_data import Evidence, Span, distinct, length
from evidence_ways import Way, text_of
from llama_index.core import set_global_tokenizer
from llama_index.core.schema import NodeWithScore
from llama_index.core.utils import get_tokenizer

BUDGETS = (250, 500, 1000, 2000, 4000)
MIDDLE = 1000
TIMED = 3
"""Questions at which the time and the reads of a way are taken, on the whole pool."""

_real_tokenizer = get_tokenizer()


@lru_cache(maxsize=50_000)
def count_tokens(text: str) -> int:
    """Count the tokens of a text once."""
    return len(_real_tokenizer(text))


def _counted(text: str) -> range:
    return range(count_tokens(text))  # only the length of a token list is used


@dataclass
class Result:
    """The results of a way, question by question.

    Attributes:
        places: positions of the measured questions among those asked.
        share: evidence covered, questions by budgets.
        precision: share of the text's characters that are evidence.
        repeated: share of the text's characters that repeat others.
        parts: pieces of evidence of each question.
        reads: keys read from the docstore, for each timed call.
        seconds: CPU time of each timed call.
    """

    places: list[int]
    share: list[list[float]] = field(default_factory=list)
    precision: list[list[float]] = field(default_factory=list)
    repeated: list[list[float]] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def try_way(
    way: Way,
    pools: Sequence[list[NodeWithScore]],
    texts: Sequence[str],
    evidence: Sequence[Evidence],
    places: Sequence[int],
) -> Result:
    """Run one way on every question at every budget, and time it on the first ones."""
    set_global_tokenizer(_counted)
    result = Result(list(places))
    for pool, text, wanted in zip(pools, texts, evidence, strict=True):
        calls = Calls(way, pool, text)
        rows = [wide(calls, budget) if way.budgeted else narrow(calls, budget) for budget in BUDGETS]
        unique = [distinct(row) for row in rows]
        covered = [wanted.covered(row) for row in unique]
        sizes = [max(1, length(row)) for row in rows]
        result.share.append([one / wanted.total for one in covered])
        result.precision.append([one / size for one, size in zip(covered, sizes, strict=True)])
        result.repeated.append(
            [1 - length(once) / size if once else 0.0 for once, size in zip(unique, sizes, strict=True)]
        )
        result.parts.append(wanted.parts)
    with timing(way):
        for pool, text in list(zip(pools, texts, strict=True))[:TIMED]:
            way.store.reset()
            started = time.thread_time()
            way.call(pool, text, MIDDLE)
            result.seconds.append(time.thread_time() - started)
            result.reads.append(way.store.reads)
    return result


@contextmanager
def timing(way: Way) -> Iterator[None]:
    """Count tokens and build nodes in the block as often as the way requests them."""
    set_global_tokenizer(_real_tokenizer)
    way.store.timed = True
    try:
        yield
    finally:
        way.store.timed = False


@dataclass(frozen=True)
class Output:
    """The output of a call: the place of each node's text, its tokens, and the total."""

    spans: list[list[Span]]
    tokens: list[int]

    @property
    def total(self) -> int:
        """Return the tokens of the nodes as a synthesizer joins them; each separator is one token."""
        return sum(self.tokens) + max(0, len(self.tokens) - 1)


class Calls:
    """The calls of one question, one for each number of hits."""

    def __init__(self, way: Way, pool: list[NodeWithScore], text: str) -> None:
        self.way, self.pool, self.text = way, pool, text
        self._known: dict[int, Output] = {}

    def output(self, hits: int) -> Output:
        """Return the output for this number of hits."""
        if hits not in self._known:
            self._known[hits] = self._describe(self.way.call(self.pool[:hits], self.text, 0))
        return self._known[hits]

    def most_that_fit(self, budget: int) -> int:
        """Return the maximum number of hits whose output fits, or 0, in few calls: tokens grow with hits."""
        used = {hits: output.total for hits, output in self._known.items()} or {2: self.output(2).total}
        low = max((hits for hits, total in used.items() if total <= budget), default=0)
        high = min((hits - 1 for hits, total in used.items() if total > budget), default=len(self.pool))
        nearest = min(used, key=lambda hits: abs(used[hits] - budget))
        guess = round(nearest * budget / max(1, used[nearest]))
        while low < high:
            guess = min(max(low + 1, guess), high)
            total = self.output(guess).total
            low, high = (guess, high) if total <= budget else (low, guess - 1)
            guess = round(guess * budget / max(1, total))
        return low

    def within(self, budget: int) -> tuple[Output, int]:
        """Return the output for a budget, and the tokens of its text."""
        nodes = self.way.call(self.pool, self.text, budget)
        joined = "\n\n".join(text_of(hit) for hit in nodes)
        return self._describe(nodes), len(_real_tokenizer(joined))

    def _describe(self, nodes: list[NodeWithScore]) -> Output:
        return Output(
            [self.way.spans(hit.node) for hit in nodes], [count_tokens(text_of(hit)) for hit in nodes]
        )


def wide(calls: Calls, budget: int) -> list[Span]:
    """Return the choice of a way with a budget of its own."""
    output, used = calls.within(budget)
    spans = [span for group in output.spans for span in group]
    # Only a single chunk may exceed the budget; it is cut as for the other ways.
    return spans if used <= budget else beginning(spans, budget / used)


def narrow(calls: Calls, budget: int) -> list[Span]:
    """Return the output of as many hits as fit, and as much of the next one as still fits."""
    low = calls.most_that_fit(budget)
    row: list[Span] = []
    left = budget
    if low:
        output = calls.output(low)
        row, left = [span for group in output.spans for span in group], budget - output.total
    if low < len(calls.pool):
        known = set(row)
        following = calls.output(low + 1)
        for group, tokens in zip(following.spans, following.tokens, strict=True):
            new = [span for span in group if span not in known]
            if new and left > 1:
                # An expanded node pays for its new chunks.
                price = 1 + tokens * length(new) / max(1, length(group))
                row += beginning(new, min(1.0, left / price))
                left -= int(price)
    return row


def beginning(spans: Sequence[Span], part: float) -> list[Span]:
    """Return the first part of the text of these spans."""
    left = int(part * length(spans))
    row: list[Span] = []
    for document, start, end in spans:
        if left > 0:
            row.append((document, start, min(end, start + left)))
        left -= end - start
    return row

"""Choose the whole chunks that fit into a token budget."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import NamedTuple, Protocol

from llama_index.core.schema import MetadataMode, NodeWithScore

from llama_index_ext_ctxaug.passages.passage import Chunk, Passage
from llama_index_ext_ctxaug.passages.scores import best_first

Tokenizer = Callable[[str], Sequence[object]]

NODE_SEPARATOR = "\n\n"
"""Separator that LlamaIndex's response synthesizers put between nodes."""

JOINT_TOKENS = 2
"""Tokens by which joining two texts may change their total, since tokens form across the joint."""


def final_text(nodes: Iterable[NodeWithScore]) -> str:
    """Return the text that a model reads: LLM contents, joined as response synthesizers join them."""
    return NODE_SEPARATOR.join(hit.node.get_content(metadata_mode=MetadataMode.LLM) for hit in nodes)


class Tier(NamedTuple):
    """Chunks that compete for the tokens that earlier tiers leave.

    Attributes:
        ids: chunk ids, the highest priority first.
        needs: for each id, the ids of which at least one must be kept before it; no entry if it needs none.
        patience: the tier ends after this many chunks in a row that do not fit; None offers all of them, and
            again until none is taken, since a kept chunk can make others cheaper.
    """

    ids: Sequence[str]
    needs: Mapping[str, Collection[str]] = {}
    patience: int | None = None


Parts = Mapping[str, Sequence[Chunk]]
"""The remaining parts of cut chunks by their ids, in reading order."""

NO_PARTS: Parts = {}

Priority = Callable[[Collection[str]], Iterator[Tier]]
"""Yields tiers in turn; it is given the ids that are kept so far, which grow between two tiers."""


class Costs(Protocol):
    """Token costs of chunks."""

    def cost(self, id_: str, kept: Collection[str]) -> int:
        """Estimate the tokens that a chunk adds to the kept ones."""

    def measure(self, kept: Collection[str]) -> int:
        """Estimate the tokens of the final text of the kept chunks, more closely than the sum of costs."""

    def count(self, kept: Collection[str]) -> int:
        """Count the tokens of the final text of the kept chunks."""


@dataclass(frozen=True, slots=True)
class BudgetFit:
    """The chunks that a budget holds.

    Attributes:
        kept: ids of the kept chunks.
        tokens: tokens of the final text.
        over_budget: id of the first chunk if it alone exceeds the budget; it is still kept.
        dropped_hits: ids of hits (and parents that replace hits) that did not fit, best first.
        refused: ids of chunks that did not fit beside the kept ones, in the order of their priority.
    """

    kept: frozenset[str]
    tokens: int
    over_budget: str | None
    dropped_hits: tuple[str, ...]
    refused: tuple[str, ...] = ()


def fit(chunks: Sequence[Chunk], budget: int, priority: Priority, costs: Costs) -> BudgetFit:
    """Keep chunks in the order of their priority while they fit.

    A chunk that does not fit leaves its tokens to later ones. The first chunk is kept even where it
    alone exceeds the budget.

    Args:
        chunks: all candidates.
        budget: maximum tokens of the final text.
        priority: the order of the candidates.
        costs: their tokens.
    """
    filler = _Filler(budget, costs)
    filler.fill(priority)
    tokens = filler.count()
    if filler.bias < 0:  # the estimates were too high
        filler.fill(priority)
        tokens = filler.count()
    while tokens > budget and len(filler.kept) > 1:
        filler.drop_last()
        tokens = filler.count()
    kept = frozenset(filler.kept)
    hits = sorted((chunk for chunk in chunks if chunk.role != "neighbor"), key=best_first)
    return BudgetFit(
        kept,
        tokens,
        next(iter(kept)) if tokens > budget else None,
        tuple(id_ for chunk in hits if (id_ := chunk.node.node_id) not in kept),
        tuple(id_ for id_ in filler.offered if id_ not in kept),
    )


@dataclass
class _Filler:
    """Takes chunks while they fit: adds up estimated costs, and measures where these are too close."""

    budget: int
    costs: Costs
    kept: dict[str, None] = field(default_factory=dict)
    offered: dict[str, None] = field(default_factory=dict)
    used: int = 0
    drift: int = 0  # tokens by which `used` may be wrong
    bias: int = 0  # tokens that the last count had more than its estimate
    refused: int | None = None  # the lowest cost that was measured and did not fit beside the kept chunks

    def fill(self, priority: Priority) -> None:
        """Take chunks of all tiers."""
        for tier in priority(self.kept):
            before = -1
            while before != len(self.kept):
                before = len(self.kept)
                self._fill_once(tier)
                if tier.patience is not None:
                    break

    def count(self) -> int:
        """Count the tokens of what was taken, and note how wrong the estimate was."""
        tokens = self.costs.count(self.kept) if self.kept else 0
        self.bias += tokens - self.used
        self.used = tokens
        return tokens

    def drop_last(self) -> None:
        """Drop what was taken last, until the rest should fit."""
        while len(self.kept) > 1:
            self.kept.popitem()
            self.used = self._measure(self.kept)
            if self.used <= self.budget:
                break

    def _fill_once(self, tier: Tier) -> None:
        refused = 0
        for id_ in tier.ids:
            if id_ in self.kept or (id_ in tier.needs and self.kept.keys().isdisjoint(tier.needs[id_])):
                continue
            refused = 0 if self._offer(id_) else refused + 1
            if refused == tier.patience:
                break
        self._settle()

    def _offer(self, id_: str) -> bool:
        """Take the chunk if it fits; the first one is taken in any case."""
        self.offered[id_] = None
        if not self.kept:
            return self._take(id_, self._measure([id_]), 0)
        cost = self.costs.cost(id_, self.kept)
        if self.drift and self.used + cost + self.drift + JOINT_TOKENS > self.budget:
            self._settle()
        expected, drift = self.used + cost, self.drift + JOINT_TOKENS
        if expected - drift > self.budget:
            return False
        if expected + drift <= self.budget:
            return self._take(id_, expected, drift)
        if self.refused is not None and cost >= self.refused:
            return False
        expected = self._measure({**self.kept, id_: None})
        if expected > self.budget:
            self.refused = cost
            return False
        return self._take(id_, expected, 0)

    def _take(self, id_: str, used: int, drift: int) -> bool:
        self.kept[id_] = None
        self.used, self.drift, self.refused = used, drift, None
        return True

    def _settle(self) -> None:
        """Measure, and drop what was taken last while the sum of costs proves too low."""
        if self.drift:
            self.used, self.drift = self._measure(self.kept), 0
            if self.used > self.budget:
                self.drop_last()

    def _measure(self, kept: Collection[str]) -> int:
        return self.costs.measure(kept) + self.bias


def keep(passages: Sequence[Passage], kept: Collection[str], parts: Parts = NO_PARTS) -> list[Passage]:
    """Return the passages with only the kept chunks and parts, split where text between them is cut."""
    left: list[Passage] = []
    for passage in passages:
        for is_gap, group in groupby(_left(passage, kept, parts), key=lambda chunk: chunk is None):
            if not is_gap:
                left.append(Passage([chunk for chunk in group if chunk is not None]))
    return sorted(left, key=lambda passage: passage.rank)


def mark_cuts(passages: Sequence[Passage], kept: Collection[str], parts: Parts = NO_PARTS) -> int:
    """Note on kept chunks and parts where the budget cut off what is beside them, and count these sides."""
    sides = 0
    for passage in passages:
        for first, second in pairwise(_left(passage, kept, parts)):
            if first is not None and second is None:
                first.stopped_next = "budget"
            elif first is None and second is not None:
                second.stopped_previous = "budget"
            sides += (first is None) != (second is None)
    return sides


def _left(passage: Passage, kept: Collection[str], parts: Parts) -> Iterator[Chunk | None]:
    """Yield the kept chunks and parts of a passage, and None where text is cut."""
    for chunk in passage.chunks:
        if chunk.node.id_ not in parts:
            yield chunk if chunk.node.id_ in kept else None
            continue
        for part in parts[chunk.node.id_]:
            if part.cut is not None and part.cut.before:
                yield None
            yield part
            if part.cut is not None and part.cut.after:
                yield None

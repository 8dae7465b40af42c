"""Fitting chunks into a number of tokens: hits first, then neighbors, whole chunks only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from llama_index.core.schema import MetadataMode, NodeWithScore

from llama_index_ext_ctxaug.passages.passage import Chunk, Passage
from llama_index_ext_ctxaug.passages.scores import best_first

Tokenizer = Callable[[str], Sequence[object]]

NODE_SEPARATOR = "\n\n"
"""What LlamaIndex's response synthesizers put between the nodes that they show to a model."""

_DRIFT = 2
"""Tokens by which adding one chunk may differ from its estimate, since tokens form across joints."""

_PATIENCE = 8
"""Chunks in a row that do not fit, after which a budget counts as full: counting the rest finds little."""


def final_text(nodes: Iterable[NodeWithScore]) -> str:
    """The text that a model gets of these nodes: their LLM content, joined as response synthesizers do."""
    return NODE_SEPARATOR.join(hit.node.get_content(metadata_mode=MetadataMode.LLM) for hit in nodes)


@dataclass(frozen=True, slots=True)
class BudgetFit:
    """What a budget holds.

    Attributes:
        kept: ids of the chunks that are kept.
        tokens: tokens of the final text.
        over_budget: id of the best hit, where it alone is over the budget; it is kept all the same.
        dropped_hits: ids of hits (and parents that stand for hits) that did not fit, best first.
    """

    kept: frozenset[str]
    tokens: int
    over_budget: str | None
    dropped_hits: tuple[str, ...]


@dataclass
class _Filler:
    """Takes chunks while they fit; estimates, and counts exactly where the estimate is too close to tell."""

    budget: int
    cost: Callable[[str, Collection[str]], int]
    measure: Callable[[Collection[str]], int]
    kept: dict[str, None] = field(default_factory=dict)
    used: int = 0
    drift: int = 0

    def offer(self, id_: str) -> bool:
        """Take the chunk if it fits; the first one is taken in any case."""
        if id_ in self.kept:
            return False
        if not self.kept:
            self.kept[id_] = None
            self.used = self.measure(self.kept)
            return True
        cost = self.cost(id_, self.kept)
        if self.drift and self.used + cost + self.drift + _DRIFT > self.budget:
            self.settle()
        expected, drift = self.used + cost, self.drift + _DRIFT
        if expected - drift > self.budget:
            return False
        if expected + drift > self.budget:
            expected, drift = self.measure({**self.kept, id_: None}), 0
            if expected > self.budget:
                return False
        self.kept[id_] = None
        self.used, self.drift = expected, drift
        return True

    def settle(self) -> None:
        """Count exactly; what was taken last goes first, should the estimates have been too low."""
        while self.drift:
            self.used, self.drift = self.measure(self.kept), 0
            if self.used > self.budget and len(self.kept) > 1:
                self.kept.popitem()
                self.drift = _DRIFT

    def filling(self, dropped: tuple[str, ...]) -> BudgetFit:
        """What has been taken, counted exactly."""
        over = bool(self.kept) and self.used > self.budget
        return BudgetFit(frozenset(self.kept), self.used, next(iter(self.kept)) if over else None, dropped)


def fit(
    passages: Sequence[Passage],
    budget: int,
    *,
    cost: Callable[[str, Collection[str]], int],
    measure: Callable[[Collection[str]], int],
) -> BudgetFit:
    """Choose the chunks that a budget holds.

    Hits come first, the best score first; of neighbors the nearest to a kept hit, then that of the
    better hit. A neighbor is taken only where all chunks between it and a kept hit are: expansion has no
    holes. What a chunk that does not fit leaves unused goes to the ones after it. The best hit is kept
    even where it alone is over the budget.

    Args:
        passages: hits and neighbors in reading order.
        budget: most tokens of the final text.
        cost: an estimate of the tokens that a chunk adds to those kept.
        measure: the exact tokens of the final text of the chunks kept.

    Returns:
        What is kept; the choice does not depend on the order of the passages, except through ranks.
    """
    filler = _Filler(budget, cost, measure)
    found = [chunk for passage in passages for chunk in passage.chunks if chunk.role != "neighbor"]
    dropped = _fill(filler, sorted(found, key=best_first))
    hits = set(filler.kept)
    beside = _beside(passages) if hits else {}
    neighbors = _nearest_first(passages, hits) if hits else _by_rank(passages)
    before = -1
    while before != len(filler.kept):
        before = len(filler.kept)
        for id_ in neighbors:
            if not beside or any(other in filler.kept for other in beside[id_]):
                filler.offer(id_)
        filler.settle()
    return filler.filling(dropped)


def fit_by_priority(
    passages: Sequence[Passage],
    budget: int,
    priority: Mapping[str, float],
    *,
    cost: Callable[[str, Collection[str]], int],
    measure: Callable[[Collection[str]], int],
) -> BudgetFit:
    """Choose the chunks that a budget holds by what they are worth, hits and neighbors alike.

    A chunk that does not fit is passed over for those after it; after 8 in a row the budget counts
    as full. The first chunk is kept even where it alone is over the budget.

    Args:
        passages: hits and neighbors in reading order.
        budget: most tokens of the final text.
        priority: by node id, the most first; of equal ones the first in reading order. A chunk that is not
            named is worth nothing.
        cost: an estimate of the tokens that a chunk adds to those kept.
        measure: the exact tokens of the final text of the chunks kept.
    """
    filler = _Filler(budget, cost, measure)
    chunks = [chunk for passage in passages for chunk in passage.chunks]
    refused = 0
    for chunk in sorted(chunks, key=lambda chunk: -priority.get(chunk.node.id_, 0.0)):
        refused = 0 if filler.offer(chunk.node.id_) else refused + 1
        if refused == _PATIENCE:
            break
    filler.settle()
    found = sorted((chunk for chunk in chunks if chunk.role != "neighbor"), key=best_first)
    return filler.filling(tuple(id_ for c in found if (id_ := c.node.id_) not in filler.kept))


def fit_list(
    chunks: Sequence[Chunk],
    budget: int,
    *,
    cost: Callable[[str, Collection[str]], int],
    measure: Callable[[Collection[str]], int],
) -> BudgetFit:
    """Choose the nodes of a list that a budget holds, whatever their order in it.

    As `fit`, for nodes that no longer stand in runs: hits by score, then neighbors by hops and the
    score of their hit; a neighbor whose hits are in the list and do not fit is left out.

    Args:
        chunks: the nodes.
        budget: most tokens of the final text.
        cost: an estimate of the tokens that a node adds to those kept.
        measure: the exact tokens of the final text of the nodes kept.
    """
    filler = _Filler(budget, cost, measure)
    found = sorted((chunk for chunk in chunks if chunk.role != "neighbor"), key=best_first)
    dropped = _fill(filler, found)
    hits = {chunk.node.id_: chunk for chunk in found}

    def nearness(chunk: Chunk) -> tuple[int, bool, float, int]:
        known = [best_first(hits[id_])[:2] for id_ in chunk.hits if id_ in hits]
        return (chunk.hops, *min(known, default=best_first(chunk)[:2]), chunk.rank)

    def wanted(chunk: Chunk) -> bool:
        known = [id_ for id_ in chunk.hits if id_ in hits]
        return not known or any(id_ in filler.kept for id_ in known)

    neighbors = [chunk for chunk in chunks if chunk.role == "neighbor" and wanted(chunk)]
    _fill(filler, sorted(neighbors, key=nearness))
    return filler.filling(dropped)


def _fill(filler: _Filler, chunks: Sequence[Chunk]) -> tuple[str, ...]:
    """Offer chunks in turn, and once more when it is counted what is left; ids of those that do not fit."""
    ids = [chunk.node.id_ for chunk in chunks]
    for _ in range(2):
        for id_ in ids:
            filler.offer(id_)
        filler.settle()
    return tuple(id_ for id_ in ids if id_ not in filler.kept)


def _by_rank(passages: Sequence[Passage]) -> list[str]:
    chunks = sorted((c for passage in passages for c in passage.chunks), key=lambda c: (c.hops, c.rank))
    return [chunk.node.id_ for chunk in chunks]


def _nearest_first(passages: Sequence[Passage], hits: Collection[str]) -> list[str]:
    """The neighbors of kept hits, by distance to the nearest of them, then by that hit's score and rank."""
    reached = {id_ for p in passages for c in p.chunks if c.node.id_ in hits for id_ in c.hits} | set(hits)
    found: dict[str, tuple[int, bool, float, int, int]] = {}
    for passage in passages:
        for chunks, side in ((passage.chunks, 1), (passage.chunks[::-1], 0)):
            distance, hit = 0, None
            for chunk in chunks:
                id_ = chunk.node.id_
                distance += 1
                if chunk.role != "neighbor":
                    distance, hit = 0, chunk if id_ in hits else None
                elif hit is not None and not reached.isdisjoint(chunk.hits):
                    key = (distance, *best_first(hit), side)
                    found[id_] = min(found.get(id_, key), key)
    return sorted(found, key=lambda id_: found[id_])


def _beside(passages: Sequence[Passage]) -> dict[str, tuple[str, ...]]:
    beside: dict[str, tuple[str, ...]] = {}
    for passage in passages:
        ids = [chunk.node.id_ for chunk in passage.chunks]
        for place, id_ in enumerate(ids):
            beside[id_] = (*ids[max(0, place - 1) : place], *ids[place + 1 : place + 2])
    return beside


def keep(passages: Sequence[Passage], kept: Collection[str]) -> list[Passage]:
    """The passages with only these chunks, parted where a chunk between them is cut."""
    parts: list[Passage] = []
    for passage in passages:
        part = Passage()
        for chunk in passage.chunks:
            if chunk.node.id_ in kept:
                part.chunks.append(chunk)
            elif part.chunks:
                parts.append(part)
                part = Passage()
        if part.chunks:
            parts.append(part)
    return sorted(parts, key=lambda part: part.rank)


def mark_cuts(passages: Sequence[Passage], kept: Collection[str]) -> int:
    """Note on the chunks that are kept where the budget cut off their neighbors; the number of such sides."""
    sides = 0
    for passage in passages:
        for first, second in pairwise(passage.chunks):
            stays, goes = first.node.id_ in kept, second.node.id_ not in kept
            if stays and goes:
                first.stopped_next = "budget"
            elif not stays and not goes:
                second.stopped_previous = "budget"
            sides += stays == goes
    return sides

"""Orders in which chunks are offered to a token budget."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

from llama_index_ext_ctxaug.budget.fit import Priority, Tier
from llama_index_ext_ctxaug.passages.passage import Chunk, Passage
from llama_index_ext_ctxaug.passages.scores import best_first

PATIENCE = 8
"""Chunks in a row that do not fit, after which counting the rest of a pool finds little."""


def hits_first(passages: Sequence[Passage]) -> Priority:
    """Order hits by score, then neighbors by their distance to a kept hit and the score of that hit.

    A neighbor is offered only where all chunks between it and a kept hit are kept: expansion has no holes.
    The order does not depend on the order of the passages, except through ranks.

    Args:
        passages: hits and neighbors in reading order.
    """

    def tiers(kept: Collection[str]) -> Iterator[Tier]:
        chunks = [chunk for passage in passages for chunk in passage.chunks]
        yield Tier(_ids(sorted((c for c in chunks if c.role != "neighbor"), key=best_first)))
        if kept:
            yield Tier(_nearest_first(passages, frozenset(kept)), _beside(passages))
        else:
            yield Tier(_ids(sorted(chunks, key=lambda chunk: (chunk.hops, chunk.rank))))

    return tiers


def hits_first_in_list(chunks: Sequence[Chunk]) -> Priority:
    """Order the nodes of a list, which need not be adjacent: hits by score, then neighbors by hops.

    Of equally near neighbors, the better hit's comes first. A neighbor with hits in the list is
    offered only where one of them is kept.
    """
    hits = {c.node.node_id: c for c in sorted(chunks, key=best_first) if c.role != "neighbor"}
    near = {c.node.node_id: [id_ for id_ in c.hits if id_ in hits] for c in chunks if c.role == "neighbor"}

    def nearness(chunk: Chunk) -> tuple[int, bool, float, int]:
        known = [best_first(hits[id_])[:2] for id_ in near[chunk.node.node_id]]
        return (chunk.hops, *min(known, default=best_first(chunk)[:2]), chunk.rank)

    def tiers(kept: Collection[str]) -> Iterator[Tier]:
        yield Tier(list(hits))
        neighbors = sorted((chunk for chunk in chunks if chunk.role == "neighbor"), key=nearness)
        yield Tier(_ids(neighbors), {id_: near_hits for id_, near_hits in near.items() if near_hits})

    return tiers


def by_value(chunks: Sequence[Chunk], values: Mapping[str, float]) -> Priority:
    """Order hits and neighbors alike by value, until 8 in a row do not fit.

    Args:
        chunks: in reading order, which decides between equal values.
        values: by node id; a chunk that is not named has the value 0.
    """

    def tiers(kept: Collection[str]) -> Iterator[Tier]:
        ordered = sorted(chunks, key=lambda chunk: -values.get(chunk.node.node_id, 0.0))
        yield Tier(_ids(ordered), patience=PATIENCE)

    return tiers


def _ids(chunks: Sequence[Chunk]) -> list[str]:
    return [chunk.node.node_id for chunk in chunks]


def _nearest_first(passages: Sequence[Passage], hits: Collection[str]) -> list[str]:
    """Return the neighbors of kept hits, by distance to the nearest of them, then its score and rank."""
    own = (c.hits for passage in passages for c in passage.chunks if c.node.id_ in hits)
    reached = {*hits, *chain.from_iterable(own)}
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
        ids = _ids(passage.chunks)
        for place, id_ in enumerate(ids):
            beside[id_] = (*ids[max(0, place - 1) : place], *ids[place + 1 : place + 2])
    return beside

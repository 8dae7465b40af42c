"""Choose among ranked windows that overlap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from llama_index.core.schema import NodeWithScore

from llama_index_ext_ctxaug.windows.slices import Place, join_overlapping, place_of

Overlap = Literal["suppress", "merge", "keep"]
Order = Literal["score", "document"]


def choose(ranked: Sequence[NodeWithScore], top_n: int, overlap: Overlap) -> list[NodeWithScore]:
    """Choose the best windows of a ranking.

    Args:
        ranked: windows, the best first; nodes that were not cut overlap with nothing.
        top_n: maximum windows to choose.
        overlap: "suppress" skips a window that shares more than half of its text with a better one;
            "merge" makes those that touch one, after choosing; "keep" takes all.

    Returns:
        The chosen windows, the best first; a merged one has the best score and place of its windows.
    """
    if overlap == "suppress":
        return _distinct(ranked, top_n)
    chosen = list(ranked[:top_n])
    return _merge(chosen) if overlap == "merge" else chosen


def in_document_order(
    chosen: Iterable[NodeWithScore], incoming: Iterable[NodeWithScore]
) -> list[NodeWithScore]:
    """Sort windows by their place in their text, and texts by their first window in the input."""
    order = {
        whole_id: number
        for number, whole_id in enumerate(dict.fromkeys(place_of(hit.node).whole_id for hit in incoming))
    }

    def key(hit: NodeWithScore) -> tuple[int, int]:
        place = place_of(hit.node)
        return (order[place.whole_id], place.start)

    return sorted(chosen, key=key)


def _distinct(ranked: Sequence[NodeWithScore], top_n: int) -> list[NodeWithScore]:
    chosen: list[NodeWithScore] = []
    places: dict[str, list[Place]] = {}
    for hit in ranked:
        if len(chosen) == top_n:
            break
        place = place_of(hit.node)
        better = places.setdefault(place.whole_id, [])
        if not any(2 * _shared(place, other) > place.end - place.start for other in better):
            better.append(place)
            chosen.append(hit)
    return chosen


def _shared(one: Place, other: Place) -> int:
    return max(0, min(one.end, other.end) - max(one.start, other.start))


def _merge(chosen: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """Join windows that touch; a joined window takes the rank of its best one."""
    ranks: dict[str, list[tuple[Place, int]]] = {}
    for rank, hit in enumerate(chosen):
        place = place_of(hit.node)
        ranks.setdefault(place.whole_id, []).append((place, rank))
    merged: list[tuple[int, NodeWithScore]] = []
    for windows in ranks.values():
        windows.sort()
        best, current = windows[0][1], chosen[windows[0][1]]
        for place, rank in windows[1:]:
            if place.start <= place_of(current.node).end:
                best, current = min(best, rank), join_overlapping(current, chosen[rank])
            else:
                merged.append((best, current))
                best, current = rank, chosen[rank]
        merged.append((best, current))
    merged.sort(key=lambda ranked: ranked[0])
    return [hit for _, hit in merged]

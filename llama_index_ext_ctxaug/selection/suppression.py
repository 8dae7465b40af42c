"""Choose among ranked windows that overlap."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Literal, NamedTuple

from llama_index.core.schema import BaseNode, NodeWithScore

from llama_index_ext_ctxaug.passages.offsets import offsets_of, text_of
from llama_index_ext_ctxaug.passages.provenance import document_of
from llama_index_ext_ctxaug.structure.document_order import ReadingOrder
from llama_index_ext_ctxaug.structure.order_keys import OrderKeys
from llama_index_ext_ctxaug.structure.relationships import relations
from llama_index_ext_ctxaug.windows.slices import Place, join_overlapping, place_of

Overlap = Literal["suppress", "merge", "keep"]
Order = Literal["score", "document"]


def choose(ranked: Sequence[NodeWithScore], top_n: int, overlap: Overlap) -> list[NodeWithScore]:
    """Choose the best windows of a ranking.

    Args:
        ranked: windows or chunks, the best first.
        top_n: maximum windows to choose.
        overlap: "suppress" skips a window that shares more than half of its text with a better one: by its
            place in the text that it was cut from, or by offsets in one document where the texts agree;
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
    """Sort windows by their place in their document, and documents by their first window in the input.

    Texts of one document are ordered by chunk numbers in metadata or by offsets; otherwise as in the input.
    """
    first: dict[str, BaseNode] = {}
    for hit in incoming:
        first.setdefault(place_of(hit.node).whole_id, hit.node)
    sources = {whole_id: document_of(node) or whole_id for whole_id, node in first.items()}
    documents = {source: number for number, source in enumerate(dict.fromkeys(sources.values()))}
    order = ReadingOrder({node.node_id: node for node in first.values()}, OrderKeys()).positions

    def key(hit: NodeWithScore) -> tuple[int, int, int]:
        place = place_of(hit.node)
        return documents[sources[place.whole_id]], order[first[place.whole_id].node_id], place.start

    return sorted(chosen, key=key)


def _distinct(ranked: Sequence[NodeWithScore], top_n: int) -> list[NodeWithScore]:
    chosen: list[NodeWithScore] = []
    better: dict[Hashable, list[_Stretch]] = {}
    for hit in ranked:
        if len(chosen) == top_n:
            break
        stretches = _stretches(hit.node)
        if not any(
            2 * one.shared(other) > len(one.text) for one in stretches for other in better.get(one.base, ())
        ):
            for one in stretches:
                better.setdefault(one.base, []).append(one)
            chosen.append(hit)
    return chosen


class _Stretch(NamedTuple):
    """A text at its place in a longer one: that which it was cut from, or that its offsets count in."""

    base: Hashable
    start: int
    text: str

    def shared(self, other: _Stretch) -> int:
        """Return the number of characters that two stretches share; 0 if their texts differ there."""
        start = max(self.start, other.start)
        end = min(self.start + len(self.text), other.start + len(other.text))
        mine = self.text[start - self.start : end - self.start]
        return end - start if end > start and mine == other.text[start - other.start :][: len(mine)] else 0


def _stretches(node: BaseNode) -> list[_Stretch]:
    text, place, own = text_of(node), place_of(node), relations(node)
    stretches = [_Stretch(place.whole_id, place.start, text)]
    start, end = offsets_of(node)
    if own.source is not None and start is not None and end == start + len(text):
        stretches.append(_Stretch((own.source, own.parent), start, text))
    return stretches


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

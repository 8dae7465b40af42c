"""Choose among ranked windows that overlap."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Literal, NamedTuple

from llama_index.core.schema import BaseNode, NodeWithScore

from llama_index_ext_ctxaug.passages.offsets import may_be_of_section, noted_span, text_of
from llama_index_ext_ctxaug.passages.passage_node import is_text
from llama_index_ext_ctxaug.passages.provenance import document_of
from llama_index_ext_ctxaug.passages.shared_text import MIN_OVERLAP
from llama_index_ext_ctxaug.structure.document_order import ReadingOrder
from llama_index_ext_ctxaug.structure.order_keys import OrderKeys
from llama_index_ext_ctxaug.structure.relationships import relations
from llama_index_ext_ctxaug.windows.slices import join_overlapping, place_of

Overlap = Literal["suppress", "merge", "keep"]
Order = Literal["score", "document"]


def choose(ranked: Sequence[NodeWithScore], top_n: int, overlap: Overlap) -> list[NodeWithScore]:
    """Choose the best windows of a ranking.

    Args:
        ranked: windows or chunks, the best first.
        top_n: maximum windows to choose.
        overlap: "suppress" skips a window that shares more than half of its text with a better one: by its
            place in the text that it was cut from, or by offsets in one document where the texts agree;
            "merge" and "keep" take all.

    Returns:
        The chosen windows, the best first.
    """
    if overlap != "suppress":
        return list(ranked[:top_n])
    chosen: list[NodeWithScore] = []
    better: dict[Hashable, list[_Stretch]] = {}
    for hit in ranked:
        if len(chosen) == top_n:
            break
        stretches = [_cut(hit.node), *_noted(hit.node)]
        if not any(
            2 * one.shared(other) > len(one.text) for one in stretches for other in better.get(one.base, ())
        ):
            for one in stretches:
                better.setdefault(one.base, []).append(one)
            chosen.append(hit)
    return chosen


def merge(chosen: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """Join windows that touch in the text that they were cut from, or share text of one document.

    Text of one document is shared where offsets say so and at least `MIN_OVERLAP` characters agree.

    Args:
        chosen: windows or chunks, in the order of the output.

    Returns:
        The windows; a joined one has the best score of its windows and the place of the first of them.
    """
    joined = _joined(chosen, lambda node: [_cut(node)], least=0)
    return _joined(joined, _noted, least=MIN_OVERLAP)


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


class _Stretch(NamedTuple):
    """A text at its place in a longer one: that which it was cut from, or that its offsets count in."""

    base: Hashable
    start: int
    text: str

    @property
    def end(self) -> int:
        """End in the longer text, exclusive."""
        return self.start + len(self.text)

    def shared(self, other: _Stretch) -> int:
        """Return the number of characters that two stretches share; 0 if their texts differ there."""
        start = max(self.start, other.start)
        end = min(self.end, other.end)
        mine = self.text[start - self.start : end - self.start]
        return end - start if end > start and mine == other.text[start - other.start :][: len(mine)] else 0


def _cut(node: BaseNode) -> _Stretch:
    """Return the place of a node in the text that it was cut from."""
    place = place_of(node)
    return _Stretch(place.whole_id, place.start, text_of(node))


def _noted(node: BaseNode) -> list[_Stretch]:
    """Return the place of a node in its document or parent, if its offsets count there."""
    own, span = relations(node), noted_span(node)
    if own.source is None or span is None or may_be_of_section(node) or not is_text(node):
        return []
    return [_Stretch((own.source, own.parent), span.start, text_of(node))]


def _joined(
    hits: Sequence[NodeWithScore], places: Callable[[BaseNode], list[_Stretch]], least: int
) -> list[NodeWithScore]:
    """Join windows that share at least this many characters at their places in one text."""
    texts: dict[Hashable, list[tuple[_Stretch, int]]] = {}
    for number, hit in enumerate(hits):
        for place in places(hit.node):
            texts.setdefault(place.base, []).append((place, number))
    joined = dict(enumerate(hits))
    for windows in texts.values():
        windows.sort(key=lambda window: (window[0].start, window[1]))
        reach, first = windows[0]
        for place, number in windows[1:]:
            shared = min(reach.end - place.start, len(place.text))
            if shared >= least and reach.shared(place) == shared:
                node = join_overlapping(joined.pop(first), joined.pop(number), place.start - reach.start)
                reach, first = _Stretch(reach.base, reach.start, text_of(node.node)), min(first, number)
                joined[first] = node
            else:
                reach, first = place, number
    return [joined[number] for number in sorted(joined)]

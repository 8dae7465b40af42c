"""Fill what whole chunks leave of a budget with sentences of a chunk that does not fit."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from llama_index_ext_ctxaug.budget.costs import ChunkCosts
from llama_index_ext_ctxaug.budget.fit import NO_PARTS, BudgetFit, Parts
from llama_index_ext_ctxaug.budget.priority import PATIENCE
from llama_index_ext_ctxaug.passages.offsets import text_of
from llama_index_ext_ctxaug.passages.passage import Chunk
from llama_index_ext_ctxaug.passages.passage_node import is_text
from llama_index_ext_ctxaug.passages.span import Span
from llama_index_ext_ctxaug.selection.relevance import spread, term_shares
from llama_index_ext_ctxaug.windows.chunk_parts import cut_chunk
from llama_index_ext_ctxaug.windows.segmentation import cluster_spans, word_spans
from llama_index_ext_ctxaug.windows.text_units import Unit, text_units

_WORD = re.compile(r"\w")


def fit_sentences(
    fitted: BudgetFit, budget: int, costs: ChunkCosts, terms: Sequence[str]
) -> tuple[BudgetFit, Parts]:
    """Add, to the whole chunks that fit, sentences of the first chunk that does not.

    A chunk that alone exceeds the budget gives the sentences that fit, or else words. So the budget is
    never exceeded: where not even a word fits, nothing is kept.

    Args:
        fitted: the whole chunks that fit.
        budget: maximum tokens of the final text.
        costs: the tokens of the chunks.
        terms: words of the query; sentences with them are preferred.

    Returns:
        What fits, and the parts of the chunk that was cut.
    """
    alone = fitted.over_budget
    kept = fitted.kept if alone is None else frozenset[str]()
    candidates = fitted.refused[:PATIENCE] if alone is None else (alone,)
    used = fitted.tokens if alone is None else 0
    for id_ in candidates if used < budget else ():
        cutter = _Cutter(costs, kept, budget, id_)
        if is_text(cutter.chunk.node) and (found := cutter.sentences(terms, used, words=id_ == alone)):
            dropped = tuple(other for other in fitted.dropped_hits if other != id_)
            tokens = costs.count(kept, {id_: found})
            return replace(fitted, kept=kept, tokens=tokens, over_budget=None, dropped_hits=dropped), {
                id_: found
            }
    return (fitted if alone is None else replace(fitted, kept=kept, tokens=0)), NO_PARTS


def preferred(
    text: str, units: Sequence[Unit], terms: Sequence[str], *, before: bool, after: bool
) -> list[int]:
    """Order the units of a chunk that have words by relevance.

    A unit has relevance by its share of the query's words, and units lend it to those around them, as
    chunks do. So does a kept chunk before or after the text.

    Args:
        text: the chunk's text.
        units: its units.
        terms: words of the query, in lower case.
        before: True if the chunk before is kept.
        after: True if the chunk after is kept.
    """
    shares = term_shares([text[unit.span.start : unit.span.end] for unit in units], terms)
    values = spread([float(before), *(share**2 for share in shares), float(after)])[1:-1]
    from_end = after and not before
    found = [n for n, unit in enumerate(units) if _WORD.search(text, unit.span.start, unit.span.end)]
    return sorted(found, key=lambda number: (-values[number], -number if from_end else number))


@dataclass
class _Cutter:
    """Cuts one chunk to what fits beside the kept ones."""

    costs: ChunkCosts
    kept: Collection[str]
    budget: int
    id_: str

    def __post_init__(self) -> None:
        self.before, self.chunk, self.after = self.costs.beside(self.id_)
        self.text = text_of(self.chunk.node)

    def sentences(self, terms: Sequence[str], used: int, *, words: bool) -> list[Chunk]:
        """Return the parts that fit, or with `words`, where the best sentence does not fit, a part of it."""
        units = text_units(self.text)
        before, after = self._is_kept(self.before), self._is_kept(self.after)
        order = preferred(self.text, units, terms, before=before, after=after)
        shared = self._shared(units)
        sizes = [0 if n in shared else self._size(unit) for n, unit in enumerate(units)]
        left, refused, chosen = self.budget - used, 0, list[int]()
        for number in order:
            size = sum(sizes[each] for each in {number, *units[number].header}.difference(chosen))
            if number not in shared and size <= left:
                chosen.append(number)
                left -= size
            elif number not in shared and (refused := refused + 1) == PATIENCE:
                break
        if words and order and order[0] not in chosen:  # the best sentence, cut, says more than a worse one
            return self._words(units[order[0]].span)
        while chosen:
            parts = cut_chunk(self.chunk, self._spans(units, chosen, shared))
            over = self._over(parts)
            if over <= 0:
                return parts
            while chosen and over > 0:
                over -= sizes[chosen.pop()]
        return self._words(units[order[0]].span) if words and order else []

    def _words(self, span: Span) -> list[Chunk]:
        """Return the beginning of a part of the text, up to a word or, of a longer word, a character."""
        for cut in (word_spans, cluster_spans):
            ends = [each.end for each in cut(self.text, span)]
            count = len(ends)
            while count:
                parts = cut_chunk(self.chunk, [Span(span.start, ends[count - 1])])
                over = self._over(parts)
                if over <= 0:
                    return parts
                count = min(count - 1, count * self.budget // (self.budget + over))
            span = Span(span.start, ends[0]) if ends else span
        return []

    def _over(self, parts: Sequence[Chunk]) -> int:
        """Return by how many tokens the final text with these parts exceeds the budget."""
        over = self.costs.measure(self.kept, {self.id_: parts}) - self.budget
        return over if over > 0 else self.costs.count(self.kept, {self.id_: parts}) - self.budget

    def _size(self, unit: Unit) -> int:
        return self.costs.counter.estimate(self.text[unit.span.start : unit.span.end])

    def _is_kept(self, chunk: Chunk | None) -> bool:
        return chunk is not None and chunk.node.id_ in self.kept

    def _shared(self, units: Sequence[Unit]) -> set[int]:
        """Return the units that kept chunks before and after have too."""
        start, end = 0, len(self.text)
        if self.before is not None and self._is_kept(self.before):
            start = self.costs.shared(self.before, self.chunk)
        if self.after is not None and self._is_kept(self.after):
            end -= self.costs.shared(self.chunk, self.after)
        return {n for n, unit in enumerate(units) if not self._rest(unit.span, start, end).strip()}

    def _rest(self, span: Span, start: int, end: int) -> str:
        return self.text[max(span.start, start) : min(span.end, end)]

    def _spans(self, units: Sequence[Unit], chosen: Collection[int], shared: Collection[int]) -> list[Span]:
        """Return the parts of the text that units and their headers make, those that touch made one."""
        wanted = {*chosen, *(number for each in chosen for number in units[each].header)}
        for numbers in (range(len(units)), range(len(units) - 1, -1, -1)):
            # Text shared with a kept chunk joins that chunk to the unit beside it.
            edge = list(takewhile(shared.__contains__, numbers))
            if edge and len(edge) < len(units) and numbers[len(edge)] in wanted:
                wanted.update(edge)
        spans: list[Span] = []
        for number in sorted(wanted):
            span = units[number].span
            if spans and spans[-1].end == span.start:
                span = Span(spans.pop().start, span.end)
            spans.append(span)
        return [self._stripped(span) for span in spans]

    def _stripped(self, span: Span) -> Span:
        """Return a span without white space at its end, unless the text ends there."""
        if span.end == len(self.text):
            return span
        return Span(span.start, span.start + len(self.text[span.start : span.end].rstrip()))

"""Find chunks in the text of their document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, islice, pairwise

from llama_index_ext_ctxaug.passages.offsets import TextChunk, squeezed
from llama_index_ext_ctxaug.passages.shared_text import MIN_OVERLAP
from llama_index_ext_ctxaug.passages.span import Span

_ANCHORS = 8
"""Longest chunks of a run that are looked for in the whole text, so that the rarest is found first."""

_OCCURRENCES = 16
"""Occurrences of that chunk that are tried until its neighbors are found beside it."""

_REACH = 10_000
"""Characters behind a chunk in which the next one is looked for."""

_SHORT_REACH = 100
"""The same for a text so short that it may be there by chance."""

_LOOSE_REACH = 500
"""The same for a text whose white space a splitter changed."""

_SPACE = re.compile(r"\s*")


def locate(chunks: Sequence[TextChunk], texts: Mapping[str, str]) -> list[TextChunk]:
    """Find chunks in the texts of their documents; linear in the characters of both.

    Offsets that a parser noted are claims: they count where the text has the chunks there and each
    touches the next. Otherwise the chunks are looked for by their text, in order, whatever white space a
    splitter changed; their neighbors show which of several places is meant.

    Args:
        chunks: the chunks in reading order.
        texts: texts of source documents, or of parents, by id.

    Returns:
        The chunks, those found with the text of the document and its offsets. Where there is a text, one
        that is not found keeps its own text and has no offsets; where there is none, what a parser noted
        stays, unless the next chunk contradicts it.
    """
    located: list[TextChunk] = []
    cursors: dict[str, int] = {}
    for base, group in groupby(chunks, key=lambda chunk: _known_base(chunk, texts)):
        if base is None:
            located += _uncontradicted(list(group))
            continue
        search = _Search(texts[base])
        for run in _linked(group):
            cursor = cursors.get(base, 0)
            places = search.places(run, [_claim(chunk, base) for chunk in run], cursor)
            cursors[base] = max((span.end for span in places if span), default=cursor)
            located += [chunk.at(span, base, search.text) for chunk, span in zip(run, places, strict=True)]
    return located


def _known_base(chunk: TextChunk, texts: Mapping[str, str]) -> str | None:
    return next((id_ for id_ in (chunk.document, chunk.base) if id_ in texts), None)


def _linked(chunks: Iterable[TextChunk]) -> Iterator[list[TextChunk]]:
    run: list[TextChunk] = []
    for chunk in chunks:
        if run and not chunk.follows:
            yield run
            run = []
        run.append(chunk)
    yield run


def _claim(chunk: TextChunk, base: str) -> Span | None:
    """Return the offsets in a base that a parser noted."""
    start = chunk.start if chunk.base == base else chunk.source_start
    if start is None or not chunk.offsets_fit:
        return None
    return Span(start, start + len(chunk.text))


def _uncontradicted(chunks: Sequence[TextChunk]) -> list[TextChunk]:
    """Correct offsets that no text can check.

    Parsers search for a chunk from the start of the one before, so they note a short sentence that
    repeats the end of that one inside it. The next chunk shows whether it belongs behind it.
    """
    corrected: list[TextChunk] = []
    base, first, reach = None, 0, 0
    for chunk, after in zip(chunks, [*chunks[1:], None], strict=True):
        new = chunk
        if chunk.offsets_fit and chunk.start is not None and chunk.end is not None:
            if chunk.base != base or not chunk.follows or chunk.start <= first:
                base, reach = chunk.base, chunk.end
            elif chunk.end <= reach:
                new = _behind(chunk, reach, after)
            first, reach = chunk.start, max(reach, new.end or 0)
        corrected.append(new)
    return corrected


def _behind(chunk: TextChunk, reach: int, after: TextChunk | None) -> TextChunk:
    """Return a chunk that is noted inside the text before with offsets behind it, or without offsets."""
    moved = reach + len(chunk.text)
    if after is not None and after.offsets_fit and after.base == chunk.base and after.start is not None:
        if after.start == moved:
            return chunk._replace(start=reach, end=moved)
        unknown = after.start > moved
    else:
        unknown = len(chunk.text) < MIN_OVERLAP
    return chunk._replace(start=None, end=None) if unknown else chunk


Places = Sequence[Span | None]


@dataclass
class _Search:
    """Searches in one text.

    Attributes:
        text: the text.
    """

    text: str

    @cached_property
    def mirrored(self) -> _Search:
        """Searches in the reversed text: what comes before is behind there."""
        return _Search(self.text[::-1])

    @cached_property
    def letters(self) -> str:
        """The text without white space."""
        return squeezed(self.text)

    def places(self, chunks: Sequence[TextChunk], claims: Places, cursor: int) -> Places:
        """Return where chunks that follow one another are in the text.

        Args:
            chunks: the chunks.
            claims: where parsers noted them.
            cursor: where to begin, if they may be in several places.
        """
        pieces = [chunk.text for chunk in chunks]
        if self._agree(pieces, claims):
            return claims
        best: Places = [None] * len(pieces)
        anchor, occurrences = self._rarest(pieces, claims, cursor)
        for span in occurrences:
            best = self._better(best, self._around(pieces, claims, anchor, span))
            if not self._apart(best):
                return best
        for number in self._apart(best)[:1]:  # from there back, the piece before it may be another one
            if (found := best[number]) is not None:
                best = self._better(best, self._around(pieces, claims, number, found))
        return best

    def _better(self, one: Places, two: Places) -> Places:
        """Return the places of more pieces and with fewer joints that do not touch; the first of equals."""
        found = [
            sum(place is not None for place in places) - len(self._apart(places)) for places in (one, two)
        ]
        return two if found[1] > found[0] else one

    def _apart(self, places: Places) -> list[int]:
        """Return the numbers of the pieces that do not touch the one before."""
        return [number for number, pair in enumerate(pairwise(places), 1) if not self._touch(*pair)]

    def _rarest(self, pieces: Sequence[str], claims: Places, cursor: int) -> tuple[int, list[Span]]:
        """Return the piece that is in the fewest places, and these."""
        rarest: tuple[int, list[Span]] = (0, [])
        for number in sorted(range(len(pieces)), key=lambda number: -len(pieces[number]))[:_ANCHORS]:
            found = list(islice(self._occurrences(pieces[number], claims[number], cursor), _OCCURRENCES))
            if found and not 0 < len(rarest[1]) <= len(found):
                rarest = (number, found)
            if len(found) == 1:
                break
        return rarest

    def _agree(self, pieces: Sequence[str], claims: Places) -> bool:
        """Return True if the text has the pieces where they are claimed to be, each touching the next.

        A claimed overlap is in doubt where the text has the next piece behind the last one too.
        """
        if not all(map(self._holds, pieces, claims)):
            return False
        return all(
            self._touch(one, two)
            and one is not None
            and two is not None
            and (two.start >= one.end or not self.text.startswith(piece, self._space_end(one.end)))
            for piece, (one, two) in zip(pieces[1:], pairwise(claims), strict=True)
        )

    def _holds(self, piece: str, span: Span | None) -> bool:
        return span is not None and self.text.startswith(piece, span.start)

    def _touch(self, one: Span | None, two: Span | None) -> bool:
        if one is None or two is None or one.end >= two.end:
            return False
        return two.start <= one.end or self.text[one.end : two.start].isspace()

    def _occurrences(self, piece: str, claim: Span | None, cursor: int) -> Iterator[Span]:
        """Yield places of a piece: the claimed one, those from the cursor on, then those before it."""
        known = claim if self._holds(piece, claim) else None
        if known is not None:
            yield known
        found = known is not None
        for start, end in ((cursor, len(self.text)), (0, cursor + len(piece) - 1)):
            place = self.text.find(piece, start, end)
            while place >= 0:
                found = True
                if known is None or place != known.start:
                    yield Span(place, place + len(piece))
                place = self.text.find(piece, place + 1, end)
        if not found and (span := self._loosely(piece, 0, len(self.text))):
            yield span

    def _around(self, pieces: Sequence[str], claims: Places, anchor: int, span: Span) -> Places:
        """Return the places of all pieces, starting from that of one of them."""
        size = len(self.text)
        before = self.mirrored._follow(
            [piece[::-1] for piece in pieces[anchor::-1]],
            [_mirror(claim, size) for claim in claims[anchor::-1]],
            Span(size - span.end, size - span.start),
        )
        behind = self._follow(pieces[anchor:], claims[anchor:], span)
        return [*(_mirror(place, size) for place in before[:0:-1]), *behind]

    def _follow(self, pieces: Sequence[str], claims: Places, first: Span) -> list[Span | None]:
        """Return the places of pieces, given the place of the first."""
        places: list[Span | None] = [first]
        last, claimed = first, claims[0]
        for piece, claim in zip(pieces[1:], claims[1:], strict=True):
            hint = last.start + claim.start - claimed.start if claim and claimed else None
            place = self._next(piece, last, hint)
            if place is None and claim and claim.start >= last.start and self._holds(piece, claim):
                place = claim
            places.append(place)
            if place is not None and place.end > last.end:
                last, claimed = place, claim
        return places

    def _next(self, piece: str, last: Span, hint: int | None) -> Span | None:
        """Return where a piece is that follows another: behind it, as hinted, over its end, or further on."""
        size = len(piece)
        start = self.text.find(piece, last.end, self._space_end(last.end) + size)
        if start < 0 and hint is not None and hint >= 0 and self.text.startswith(piece, hint):
            hinted = Span(hint, hint + size)
            if self._touch(last, hinted):
                return hinted
        if start < 0:
            start = self.text.find(piece, max(0, last.end - size + 1), last.end + size - 1)
        reach = last.end + size + (_REACH if size >= MIN_OVERLAP else _SHORT_REACH)
        if start < 0:
            start = self.text.find(piece, last.end, reach)
        if start >= 0:
            return Span(start, start + size)
        near = last.end + 2 * size + _LOOSE_REACH
        span = self._loosely(piece, max(last.start + 1, last.end - 2 * size), near)
        if span is not None and span.end <= last.end:
            span = self._loosely(piece, last.end, near)
        if span is None and size >= MIN_OVERLAP:  # overlap of two parsers may hold all of it
            start = self.text.rfind(piece, max(0, min(last.start, last.end - 2 * size)), last.end)
            span = Span(start, start + size) if start >= 0 else None
        return span

    def _loosely(self, piece: str, start: int, end: int) -> Span | None:
        """Return where a piece is in a part of the text, whatever white space either has."""
        letters = squeezed(piece)
        whole = start == 0 and end >= len(self.text)
        part = self.letters if whole else squeezed(self.text[start:end])
        place = part.find(letters) if letters else -1
        if place < 0:
            return None
        first = self._letter(start, place)
        return Span(first, self._letter(first, len(letters) - 1) + 1)

    def _letter(self, start: int, count: int) -> int:
        """Return the place of the letter after this many others, white space not counted."""
        while count:
            part = self.text[start : start + count]
            start += count
            count -= len(squeezed(part))
        return self._space_end(start)

    def _space_end(self, start: int) -> int:
        space = _SPACE.match(self.text, start)
        return space.end() if space else start


def _mirror(span: Span | None, size: int) -> Span | None:
    return None if span is None else Span(size - span.end, size - span.start)

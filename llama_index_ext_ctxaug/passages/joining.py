"""Join the texts of chunks into one: overlap once, every character accounted for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from llama_index_ext_ctxaug.passages.locating import locate
from llama_index_ext_ctxaug.passages.offsets import TextChunk
from llama_index_ext_ctxaug.passages.separators import (
    HOLE_SEPARATOR,
    MAX_LEFT_OUT,
    MAX_STRIPPED,
    has_words,
    is_headings,
    is_space,
    separator,
    stripped_space,
)
from llama_index_ext_ctxaug.passages.shared_text import common_length
from llama_index_ext_ctxaug.passages.span import Span
from llama_index_ext_ctxaug.passages.tables import leading_header, open_header


@dataclass(frozen=True, slots=True)
class JoinedText:
    """Chunks as one text.

    Attributes:
        text: the text.
        spans: for each chunk, the characters of the text that are its own; overlapping chunks share some.
        sources: for each chunk, the first of these characters in the source document; None if unknown.
        compared: for each chunk, True if that place was compared with the document's text.
        span: the characters of the source document that the text equals; None if unknown.
        exact: True if the text was compared with the document's and equals it at `span`; False if span and
            sources are what parsers noted, which nothing contradicts.
    """

    text: str
    spans: tuple[Span, ...]
    sources: tuple[int | None, ...]
    compared: tuple[bool, ...]
    span: Span | None
    exact: bool

    def tiles(self, preferred: Sequence[bool] = ()) -> list[tuple[int, Span]]:
        """Give each character of the text to one chunk; characters of separators belong to none.

        Args:
            preferred: for each chunk, whether it owns the text that it shares with others (hits do);
                among equals the earlier one owns it.

        Returns:
            Chunk number and span, in order of the text; spans neither overlap nor are empty.
        """
        if all(one.end <= two.start for one, two in pairwise(self.spans)):
            return [(number, span) for number, span in enumerate(self.spans) if span.start < span.end]
        preferred = preferred or [False] * len(self.spans)
        cuts = sorted({edge for span in self.spans for edge in span})
        order = sorted(range(len(self.spans)), key=lambda number: self.spans[number])
        tiles: list[tuple[int, Span]] = []
        active: list[int] = []
        coming = 0
        for start, end in pairwise(cuts):
            while coming < len(order) and self.spans[order[coming]].start <= start:
                active.append(order[coming])
                coming += 1
            active = [number for number in active if self.spans[number].end > start]
            if not active:
                continue
            owner = min(active, key=lambda number: (not preferred[number], number))
            if tiles and tiles[-1][0] == owner and tiles[-1][1].end == start:
                tiles[-1] = (owner, Span(tiles[-1][1].start, end))
            else:
                tiles.append((owner, Span(start, end)))
        return tiles


def join_texts(
    chunks: Sequence[TextChunk | str],
    *,
    hole_separator: str = HOLE_SEPARATOR,
    chunk_separator: str | None = None,
    texts: Mapping[str, str] | None = None,
) -> JoinedText:
    """Join chunks in reading order into one text; linear in the characters of chunks and documents.

    Chunks are found in their document's text, if it is given (`locate`); what is between them is then
    the document's. Otherwise noted offsets count where the texts agree with them character by character.
    Where no offsets show what two chunks share, text of at least `MIN_OVERLAP` characters that is the end
    of one and the start of the next is overlap, and a table's header that the last chunk has is not
    repeated. Text that is the whole of a chunk is never taken for overlap.

    Args:
        chunks: the chunks; a plain string is a chunk without offsets that follows the one before.
        hole_separator: separator where text of the document is missing.
        chunk_separator: separator between chunks that follow one another and share no text, where nothing
            shows what is between; None for a line break, a space or nothing, by script and markup.
        texts: texts of source documents and parent chunks by id.

    Returns:
        The text, and the place of each chunk in it.
    """
    given = [TextChunk(chunk) if isinstance(chunk, str) else chunk for chunk in chunks]
    return join_located(locate(given, texts or {}), texts or {}, hole_separator, chunk_separator)


def join_located(
    chunks: Iterable[TextChunk],
    texts: Mapping[str, str],
    hole_separator: str = HOLE_SEPARATOR,
    chunk_separator: str | None = None,
) -> JoinedText:
    """Join chunks as `join_texts` does, after `locate` has found them in these texts."""
    chunks = list(chunks)
    if (joined := _slice(chunks, texts)) is not None:
        return joined
    joiner = _Joiner(hole_separator, chunk_separator, texts)
    for chunk in chunks:
        joiner.add(chunk)
    return joiner.result()


def _slice(chunks: Sequence[TextChunk], texts: Mapping[str, str]) -> JoinedText | None:
    """Return the slice of a document that chunks cover; None if they do not cover one without a hole."""
    base = chunks[0].base if chunks else None
    if base is None or chunks[0].header:
        return None
    if not all(chunk.in_document and chunk.base == base for chunk in chunks):
        return None
    text, reach = texts[base], None
    spans = [Span(chunk.start or 0, chunk.end or 0) for chunk in chunks]
    for start, end in sorted(spans):
        if reach is not None and start > reach and not is_space(text[reach:start]):
            return None
        reach = max(end, reach or 0)
    first, last = min(spans).start, reach or 0
    return JoinedText(
        text=text[first:last],
        spans=tuple(Span(start - first, end - first) for start, end in spans),
        sources=tuple(span.start for span in spans),
        compared=(True,) * len(spans),
        span=Span(first, last),
        exact=True,
    )


class _Joint(NamedTuple):
    """The joint before a chunk: what comes before it, and how much of the chunk is not added.

    Attributes:
        separator: text between.
        shared: characters of the chunk that the text already ends with.
        dropped: characters before those that the chunk repeats and that are left out.
    """

    separator: str = ""
    shared: int = 0
    dropped: int = 0


@dataclass
class _Joiner:
    """The text so far and, while offsets hold, the place of its end in the document."""

    hole_separator: str
    chunk_separator: str | None
    texts: Mapping[str, str]
    parts: list[str] = field(default_factory=list)
    length: int = 0
    spans: list[Span] = field(default_factory=list)
    chunks: list[TextChunk] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    sliced: bool = True  # the text is a slice of the document's if the offsets are right
    agree: bool = True  # all chunks have offsets, and no joint contradicts them
    cursor: int | None = None  # place of the text's end, in the offset base of `placed`
    placed: TextChunk | None = None  # the chunk whose offset base the cursor counts in
    run_start: int = 0  # from here on, places in the text and in the offset base advance together
    header: str = ""  # of the table that the text ends in

    def add(self, chunk: TextChunk) -> None:
        self.agree = self.agree and chunk.offsets_fit
        cursor = self._cursor_for(chunk)
        joint = None if cursor is None else self._by_offsets(chunk, cursor)
        if joint is None:
            joint = self._by_text(chunk) if self.chunks else _Joint()
            self.agree = self.agree and cursor is None
            self.sliced = not self.chunks and chunk.offsets_fit
            self.run_start = self.length + len(joint.separator) - joint.shared
            self.cursor, self.placed = None, None
        if chunk.header and (not self.chunks or joint.separator == self.hole_separator):
            joint = joint._replace(separator=joint.separator + chunk.header)
            self.sliced = False
            self.run_start += len(chunk.header)
        self._append(joint, chunk)
        if chunk.offsets_fit and self.spans[-1].end == self.length and not joint.dropped:
            self.cursor, self.placed = chunk.end, chunk
        self.header = open_header(chunk.text, chunk.header or self.header)

    def result(self) -> JoinedText:
        exact = self.sliced and all(chunk.in_document for chunk in self.chunks)
        start = self._source(self.chunks[0], 0) if self.chunks and self.sliced else None
        return JoinedText(
            text="".join(self.parts),
            spans=tuple(self.spans),
            sources=tuple(map(self._source, self.chunks, self.dropped)),
            compared=tuple(chunk.in_document for chunk in self.chunks),
            span=None if start is None else Span(start, start + self.length),
            exact=exact and start is not None,
        )

    def _source(self, chunk: TextChunk, dropped: int) -> int | None:
        start = chunk.source_start if chunk.in_document or self.agree else None
        return None if start is None else start + dropped

    def _append(self, joint: _Joint, chunk: TextChunk) -> None:
        added = chunk.text[joint.dropped + joint.shared :]
        self.parts += (joint.separator, added) if joint.separator else (added,)
        start = self.length + len(joint.separator) - joint.shared
        self.length += len(joint.separator) + len(added)
        self.spans.append(Span(start, start + len(chunk.text) - joint.dropped))
        self.chunks.append(chunk)
        self.dropped.append(joint.dropped)

    def _cursor_for(self, chunk: TextChunk) -> int | None:
        """Return the place of the text's end in the offset base of a chunk; None if it is unknown."""
        if self.cursor is None or self.placed is None or not chunk.offsets_fit:
            return None
        if self.placed.base == chunk.base:
            return self.cursor
        if self._of_other_document(chunk) or self.placed.shift is None or chunk.shift is None:
            return None
        return self.cursor + self.placed.shift - chunk.shift

    def _of_other_document(self, chunk: TextChunk) -> bool:
        last = self.chunks[-1].document
        return None not in (last, chunk.document) and last != chunk.document

    def _by_offsets(self, chunk: TextChunk, cursor: int) -> _Joint | None:
        """Join where the offsets say; None if the text contradicts them."""
        shared = cursor - (chunk.start or 0)
        if chunk.follows and not chunk.checked and self._precedes(chunk, self.chunks[-1]):
            return None
        if shared < 0:
            return self._over_gap(chunk, cursor)
        if shared > self.length - self.run_start:
            return None
        known = chunk.text[:shared]
        return _Joint(shared=shared) if self._tail(shared).startswith(known) else None

    def _precedes(self, chunk: TextChunk, last: TextChunk) -> bool:
        """Return True if a chunk is noted before the one that it follows: no parser notes it so."""
        start = last.start if last.base == chunk.base else None
        return start is not None and chunk.start is not None and chunk.start <= start

    def _over_gap(self, chunk: TextChunk, cursor: int) -> _Joint:
        """Join over characters between the text and the chunk: the document's, stripped space, or a hole."""
        start, between = chunk.start or 0, self.hole_separator
        if chunk.checked and self.placed and self.placed.base == chunk.base and chunk.base is not None:
            gap = self.texts[chunk.base][cursor:start]
            if is_space(gap) or (chunk.follows and is_headings(gap)):
                return _Joint(gap)
            if not has_words(gap) or (chunk.follows and len(gap) <= MAX_LEFT_OUT):
                between = self._separator(chunk)
        elif chunk.follows and chunk.shift is None and start - cursor > MAX_STRIPPED:
            between = self._separator(chunk)  # markup, or offsets that count in another section
        elif chunk.follows:
            space = stripped_space(start - cursor, self._tail(1), chunk.text)
            if space is not None:
                self.sliced = False
                return _Joint(space)
        self.sliced = False
        self.run_start = self.length + len(between)
        return _Joint(between)

    def _by_text(self, chunk: TextChunk) -> _Joint:
        if not chunk.follows:
            return _Joint(self.hole_separator)
        if self._of_other_document(chunk):
            # A page begins a line: no parser keeps the line break between two documents.
            return _Joint(self.chunk_separator or ("" if self._tail(1).isspace() else "\n"))
        header = leading_header(chunk.text)
        dropped = len(header) if header and header == self.header else 0
        shared = self._overlap(chunk.text[dropped:])
        if dropped and not shared:
            return _Joint("" if self._tail(1) == "\n" else "\n", dropped=dropped)
        return _Joint("" if shared else self._separator(chunk), shared, dropped)

    def _separator(self, chunk: TextChunk) -> str:
        if self.chunk_separator is not None:
            return self.chunk_separator
        return separator(self.chunks[-1].text, chunk.text)

    def _overlap(self, text: str) -> int:
        """Return how much of a text's start ends the last chunk; 0 where that is the whole of either."""
        last = len(self.chunks[-1].text)
        shared = common_length(self._tail(min(last, len(text))), text)
        return shared if shared < min(last, len(text)) else 0

    def _tail(self, size: int) -> str:
        """Return the last characters of the text."""
        taken: list[str] = []
        missing = size
        for part in reversed(self.parts):
            if missing <= 0:
                break
            taken.append(part[-missing:])
            missing -= len(part)
        return "".join(reversed(taken))

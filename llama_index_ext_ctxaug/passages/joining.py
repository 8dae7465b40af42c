"""One text from many chunks: shared text once, every character accounted for."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from llama_index_ext_ctxaug.passages.offsets import TextChunk
from llama_index_ext_ctxaug.passages.shared_text import MIN_OVERLAP, common_length
from llama_index_ext_ctxaug.passages.span import Span

MAX_STRIPPED = 100
"""Most characters between linked chunks that count as white space stripped by the splitter."""

HOLE_SEPARATOR = "\n\n[...]\n\n"
"""What stands where text of the document is missing."""

_TABLE_RULE = re.compile(r"\|?[ \t]*:?-[-:| \t]*")
_NO_SPACES = re.compile(r"[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")


@dataclass(frozen=True, slots=True)
class JoinedText:
    """Chunks as one text.

    Attributes:
        text: the text.
        spans: for each chunk, where all of it stands in the text; overlapping chunks share characters.
        sources: for each chunk, the first character of it in the source document; None where its offsets
            are missing or wrong.
        span: the characters of the source document that the text equals; None where that is not certain.
        doubtful: ids of bases whose text would settle what could only be guessed at a joint.
    """

    text: str
    spans: tuple[Span, ...]
    sources: tuple[int | None, ...]
    span: Span | None
    doubtful: frozenset[str]

    def tiles(self, preferred: Sequence[bool] = ()) -> list[tuple[int, Span]]:
        """Give each character of the text to one chunk; characters of separators belong to none.

        Args:
            preferred: for each chunk, whether it owns the text that it shares with others (hits do);
                among equals the earlier one owns it.

        Returns:
            Chunk number and span, in order of the text; spans neither overlap nor are empty.
        """
        if not preferred:
            preferred = [False] * len(self.spans)
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
    chunk_separator: str = "",
    texts: Mapping[str, str] | None = None,
) -> JoinedText:
    """Join chunks in reading order into one text; linear in the characters of the chunks.

    Offsets decide where they fit the text: what two chunks share is compared character by character,
    and a chunk whose offsets do not hold keeps all its text. Where offsets tell nothing, text that is
    both the end of what stands and the start of the next chunk, at least `MIN_OVERLAP` characters of it,
    counts as shared; a chunk that lies in the one before adds nothing; a Markdown table's header that
    the splitter repeated, before rows that are shared, is not repeated.

    White space that a splitter stripped between chunks is taken from `texts`, where the text is at
    hand; else the right number of characters is filled in by a guess, and the span is not certain.

    Args:
        chunks: the chunks; a plain string is a chunk without offsets that follows the one before.
        hole_separator: stands where text is missing.
        chunk_separator: stands between chunks that follow one another and share no text, where offsets
            do not tell what the document has there.
        texts: texts that offsets count in, by id: source documents, parent chunks.

    Returns:
        The text, and where each chunk stands in it.
    """
    joiner = _Joiner(hole_separator, chunk_separator, texts or {})
    for chunk in chunks:
        joiner.add(TextChunk(chunk) if isinstance(chunk, str) else chunk)
    return joiner.result()


def doubtful_bases(chunks: Iterable[TextChunk], ids: Collection[str], **options: Any) -> set[str]:
    """Those bases of a text that joining chunks would need, to settle what it can only guess without.

    Args:
        chunks: in reading order; no more of them are looked at than it takes.
        ids: the bases of the chunks that are worth a question.
        **options: the separators and `texts` of `join_texts`.

    Returns:
        Ids out of `ids`, as `JoinedText.doubtful` has them.
    """
    joiner = _Joiner(**options)
    for chunk in chunks:
        joiner.add(chunk)
        if joiner.doubtful.issuperset(ids):
            break
    return joiner.doubtful.intersection(ids)


@dataclass
class _Joiner:
    """The text so far and, while offsets hold, the place in the document that its end has."""

    hole_separator: str
    chunk_separator: str
    texts: Mapping[str, str]
    parts: list[str] = field(default_factory=list)
    length: int = 0
    spans: list[Span] = field(default_factory=list)
    sources: list[int | None] = field(default_factory=list)
    doubtful: set[str] = field(default_factory=set)
    exact: bool = True
    unconfirmed: bool = False
    last: TextChunk | None = None
    cursor: int | None = None  # place of the text's end, in the base of `placed`
    placed: TextChunk | None = None  # the chunk whose base the cursor counts in
    run_start: int = 0  # from here on, places in the text and in the base go in step

    def add(self, chunk: TextChunk) -> None:
        holds = chunk.offsets_fit and self._holds_in_base(chunk)
        if self.last is None:
            self.exact = holds
            self._append("", chunk)
            self._restart(chunk, holds)
        elif not (holds and self._by_offsets(chunk)):
            self.exact = False
            if not chunk.follows:
                self._append(self.hole_separator, chunk)
            elif self._of_other_document(chunk):
                # A page begins a line: no parser keeps the line break between two documents.
                self._append(self.chunk_separator or ("" if self._tail(1).isspace() else "\n"), chunk)
            else:
                self._by_text(chunk)
            self._restart(chunk, holds)
        self.last = chunk

    def result(self) -> JoinedText:
        first = self.sources[0] if self.sources else None
        certain = self.exact and not self.unconfirmed and first is not None
        return JoinedText(
            text="".join(self.parts),
            spans=tuple(self.spans),
            sources=tuple(self.sources),
            span=Span(first, first + self.length) if certain and first is not None else None,
            doubtful=frozenset(self.doubtful),
        )

    def _holds_in_base(self, chunk: TextChunk) -> bool:
        base = self._base_text(chunk)
        return base is None or base[chunk.start : chunk.end] == chunk.text

    def _base_text(self, chunk: TextChunk) -> str | None:
        return self.texts.get(chunk.base) if chunk.base is not None else None

    def _restart(self, chunk: TextChunk, holds: bool) -> None:
        """Count places from this chunk on, after a joint that offsets did not make."""
        self.run_start = self.spans[-1].start
        at_end = self.spans[-1].end == self.length
        self.placed, self.cursor = (chunk, chunk.end) if holds and at_end else (None, None)
        whole = self.spans[-1].end - self.spans[-1].start == len(chunk.text)
        self.sources[-1] = chunk.source_start if holds and whole else None

    def _append(self, separator: str, chunk: TextChunk, skip: int = 0) -> None:
        """Put the chunk's text behind what stands; its first `skip` characters stand there already."""
        self.parts += (separator, chunk.text[skip:]) if separator else (chunk.text[skip:],)
        start = self.length + len(separator) - skip
        self.length += len(separator) + len(chunk.text) - skip
        self._stand(start, chunk)

    def _stand(self, start: int, chunk: TextChunk) -> None:
        self.spans.append(Span(start, start + len(chunk.text)))
        self.sources.append(chunk.source_start)

    def _by_offsets(self, chunk: TextChunk) -> bool:
        """Join where the offsets say; False where they cannot say, or where the text contradicts them."""
        cursor = self._cursor_for(chunk)
        if cursor is None or chunk.start is None or chunk.end is None:
            return False
        shared = cursor - chunk.start
        if shared > self.length - self.run_start:
            return False
        if shared < 0:
            return self._over_gap(chunk, cursor)
        if chunk.end <= cursor and chunk.text:
            return self._inside(chunk, cursor)
        if shared and self._tail(shared) != chunk.text[:shared]:
            return False
        self._append("", chunk, skip=shared)
        self._move(chunk, chunk.end)
        return True

    def _cursor_for(self, chunk: TextChunk) -> int | None:
        """The place of the text's end, in the base of this chunk."""
        if self.cursor is None or self.placed is None:
            return None
        if self.placed.base == chunk.base:
            return self.cursor
        if self._of_other_document(chunk):
            return None
        if self.placed.shift is None or chunk.shift is None:
            return None
        return self.cursor + self.placed.shift - chunk.shift

    def _of_other_document(self, chunk: TextChunk) -> bool:
        last = self.last.document if self.last else None
        return None not in (last, chunk.document) and last != chunk.document

    def _move(self, chunk: TextChunk, cursor: int) -> None:
        self.placed, self.cursor, self.unconfirmed = chunk, cursor, False

    def _over_gap(self, chunk: TextChunk, cursor: int) -> bool:
        """The document has characters between the text and the chunk: stripped white space, or a hole."""
        gap = self._gap(chunk, cursor) if chunk.follows else None
        if gap is None:
            self.exact = False
            self.run_start = self.length + len(self.hole_separator)
        elif self.unconfirmed:
            self.exact = False
        self._append(self.hole_separator if gap is None else gap, chunk)
        self._move(chunk, chunk.end or 0)
        return True

    def _gap(self, chunk: TextChunk, cursor: int) -> str | None:
        start = chunk.start or 0
        base = self._base_text(chunk)
        if base is not None and cursor >= 0:  # what stands before the base, its text does not tell
            between = base[cursor:start]
            return between if between.isspace() else None
        end = self._tail(1)
        size = start - cursor
        if size > MAX_STRIPPED or end.isspace() or chunk.text[:1].isspace():
            return None
        self.exact = False
        self._doubt(chunk)
        return _likely_white_space(size, end + chunk.text[:1])

    def _inside(self, chunk: TextChunk, cursor: int) -> bool:
        """The offsets say that the text has all of the chunk.

        Parsers find a chunk by searching from the start of the one before, so a short sentence that
        repeats the end of the one before is noted inside of it: it is put behind instead, and the chunk
        that follows shows whether it belongs there.
        """
        if len(chunk.text) < MIN_OVERLAP and chunk.follows:
            return self._behind(chunk, cursor)
        return self._within(chunk, cursor)

    def _within(self, chunk: TextChunk, cursor: int) -> bool:
        shared = cursor - (chunk.start or 0)
        if not self._tail(shared).startswith(chunk.text):
            return False
        self._stand(self.length - shared, chunk)
        return True

    def _behind(self, chunk: TextChunk, cursor: int) -> bool:
        base = self._base_text(chunk)
        gap = ""
        if base is not None:
            rest = base[cursor : cursor + MAX_STRIPPED + len(chunk.text)]
            gap = rest[: len(rest) - len(rest.lstrip())] if not chunk.text[:1].isspace() else ""
            if not rest.startswith(chunk.text, len(gap)):  # it repeats nothing: it lies in the text
                return self._within(chunk, cursor)
        start = cursor + len(gap)
        moved = chunk._replace(start=start, end=start + len(chunk.text))
        self._append(gap, moved)
        self._move(moved, start + len(chunk.text))
        if base is None:
            self.unconfirmed = True
            self.sources[-1] = None
            self._doubt(chunk)
        return True

    def _doubt(self, chunk: TextChunk) -> None:
        if chunk.base is not None:
            self.doubtful.add(chunk.base)

    def _by_text(self, chunk: TextChunk) -> None:
        text, last = chunk.text, self.last.text if self.last else ""
        shared = common_length(self._tail(len(text)), text)
        if shared >= MIN_OVERLAP:
            self._append("", chunk, skip=shared)
        elif len(text) >= MIN_OVERLAP and text in last:
            self._stand(self.spans[-1].start + last.index(text), chunk)
        elif len(self.spans) == 1 and len(last) >= MIN_OVERLAP and last in text:
            before = text.index(last)
            self.spans = [Span(before, before + len(last))]
            self.parts, self.length = [], 0
            self._append("", chunk)
        elif (repeated := self._repeated_header(text, last)) > 0:
            self._append("", chunk, skip=repeated)
            self.spans[-1] = Span(self.spans[-1].start + len(_header(text)), self.spans[-1].end)
        else:
            self._append(self.chunk_separator, chunk)

    def _repeated_header(self, text: str, last: str) -> int:
        """Characters of a table's header and of shared rows behind it that stand in the text already."""
        header = _header(text)
        if not header or header not in last:
            return 0
        rows = text[len(header) :]
        shared = common_length(self._tail(len(rows)), rows)
        return len(header) + shared if shared >= MIN_OVERLAP else 0

    def _tail(self, size: int) -> str:
        """The last characters of the text."""
        taken: list[str] = []
        missing = size
        for part in reversed(self.parts):
            if missing <= 0:
                break
            taken.append(part[-missing:])
            missing -= len(part)
        return "".join(reversed(taken))


def _header(text: str) -> str:
    """A Markdown table's first line and the rule below it; "" where the text does not begin with a table."""
    titles, _, below = text.partition("\n")
    rule, end, _ = below.partition("\n")
    if not end or "|" not in titles or not _TABLE_RULE.fullmatch(rule.lstrip(" \t")):
        return ""
    return f"{titles}\n{rule}\n"


def _likely_white_space(size: int, around: str) -> str:
    if size == 1:
        return "\n" if without_spaces(around) else " "
    return "\n\n" + " " * (size - 2)


def without_spaces(text: str) -> bool:
    """Whether any character of a text is of a script that puts no space between sentences."""
    return _NO_SPACES.search(text) is not None

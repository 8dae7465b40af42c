"""The chunks around a place in a document, loaded and joined, so that any stretch of them can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from llama_index.core.schema import BaseNode, NodeWithScore, TextNode

from llama_index_ext_ctxaug.engine.grouping import Run
from llama_index_ext_ctxaug.engine.rendering import Renderer
from llama_index_ext_ctxaug.passages.joining import JoinedText
from llama_index_ext_ctxaug.passages.offsets import text_of
from llama_index_ext_ctxaug.passages.provenance import whole_provenance
from llama_index_ext_ctxaug.passages.span import Span
from llama_index_ext_ctxaug.structure.heading_lines import Heading
from llama_index_ext_ctxaug.structure.headings import Sections, heading_path
from llama_index_ext_ctxaug.tools.handles import PassageEdge, PassageRange
from llama_index_ext_ctxaug.tools.reading import (
    DOCUMENT_END,
    DOCUMENT_START,
    NO_MORE_AFTER,
    NO_MORE_BEFORE,
    Remainder,
)
from llama_index_ext_ctxaug.windows.slices import cut_node


@dataclass(frozen=True, slots=True)
class Beyond:
    """The rest of a document beyond the loaded chunks, on one side.

    Attributes:
        chunks: number of chunks that are not loaded; None if unknown.
        blocked: whether reading ends here for another reason than the edge of the document.
    """

    chunks: int | None
    blocked: bool = False


@dataclass
class OpenDocument:
    """Consecutive chunks of a document as one text, opened at a place in it.

    Attributes:
        run: the chunks in order.
        joined: their text.
        anchor: number of the chunk that the place is in.
        position: the place, a character of the text.
        before: what is beyond the first chunk.
        after: what is beyond the last chunk.
        renderer: makes nodes of the chunks.
        sections: finds headings.
    """

    run: Run
    joined: JoinedText
    anchor: int
    position: int
    before: Beyond
    after: Beyond
    renderer: Renderer
    sections: Sections
    _headings: list[Heading] | None = field(default=None, init=False)

    @property
    def text(self) -> str:
        """The text of the loaded chunks."""
        return self.joined.text

    def start_of(self, chunks: int) -> int:
        """Return where the text of a number of chunks before the place starts."""
        return min(self.joined.spans[max(0, self.anchor - chunks)].start, self.position)

    def end_of(self, chunks: int) -> int:
        """Return where the text of a number of chunks after the place ends."""
        last = min(len(self.joined.spans) - 1, self.anchor + chunks)
        return max(*(span.end for span in self.joined.spans[self.anchor : last + 1]), self.position)

    def first_letter(self) -> int:
        """Return the place of the first character after the place that is no white space."""
        rest = self.text[self.position :]
        return self.position + (len(rest) - len(rest.lstrip()) if rest.strip() else 0)

    def snapped(self, span: Span) -> Span:
        """Move the edges of a stretch into chunks: text between two chunks is left for the next stretch."""
        (first, start), (last, end) = self._edge(span.start), self._edge(span.end)
        place = self._at(first, start)
        if place < span.start and span.start != self.position:
            place = self._at(first + 1, 0)
        return Span(max(place, span.start), max(span.start, self._at(last, end)))

    def excerpt(self, span: Span) -> NodeWithScore:
        """Return a stretch of the text as a node with provenance."""
        run, offset = self._part(span)
        whole = self.renderer.node(run)
        start, end = span.start - offset, span.end - offset
        if not isinstance(whole.node, TextNode) or (start, end) == (0, len(whole.node.text)):
            return whole
        return NodeWithScore(
            node=cut_node(whole.node, whole_provenance(whole.node), start, end), score=whole.score
        )

    def _part(self, span: Span) -> tuple[Run, int]:
        """Return the chunks that a stretch covers, and where their text starts, if it is the same alone."""
        first, last = self._edge(span.start)[0], self._edge(span.end)[0]
        part = Run(self.run.chunks[first : last + 1], [False, *self.run.follows[first + 1 : last + 1]])
        offset = self.joined.spans[first].start
        alone = self.renderer.join(part).text
        return (part, offset) if self.text.startswith(alone, offset) else (self.run, 0)

    def range(self, span: Span) -> PassageRange:
        """Return the range of chunks that a stretch of the text covers."""
        (first, start), (last, end) = self._edge(span.start), self._edge(span.end)
        nodes = [chunk.node for chunk in self.run.chunks]
        return PassageRange(
            first=PassageEdge(nodes[first].node_id, start),
            last=PassageEdge(nodes[last].node_id, None if end == len(text_of(nodes[last])) else end),
            source_id=self.renderer.texts.expansion.links.source(nodes[last]),
        )

    def headings(self) -> list[Heading]:
        """Return the headings of the loaded chunks, with their places in the text."""
        if self._headings is None:
            found = {heading.start: heading for heading in self._find_headings()}
            self._headings = [found[start] for start in sorted(found)]
        return self._headings

    def heading_path(self, position: int) -> tuple[str, ...]:
        """Return the titles of the sections that a place is in, as far as they are loaded."""
        path = self.sections.path(self.run.chunks[self._edge(position)[0]].node)
        return path or heading_path(self.headings(), position + 1)

    def section(self, position: int) -> Span:
        """Return the section that a place is in, from its heading to the next of the same or a higher level.

        Without a heading before the place, the section starts with the loaded text, and any heading ends it.
        """
        own = next((heading for heading in reversed(self.headings()) if heading.start <= position), None)
        ends = (
            heading.start
            for heading in self.headings()
            if heading.start > position and (own is None or heading.level <= own.level)
        )
        return Span(own.start if own else 0, next(ends, len(self.text)))

    def edge_message(self, side: Literal["before", "after"]) -> str:
        """Return the sentence that says why nothing is left to read on a side."""
        if side == "after":
            return NO_MORE_AFTER if self.after.blocked else DOCUMENT_END
        return NO_MORE_BEFORE if self.before.blocked else DOCUMENT_START

    def rest_after(self, position: int, count: Callable[[str], int]) -> Remainder:
        """Return what is left after a place."""
        unread = sum(span.end > position for span in self.joined.spans)
        section_end = self.section(max(0, position - 1)).end
        return self._rest(
            unread, self.text[position:], self.after, count, section=self.text[position:section_end]
        )

    def rest_before(self, position: int, count: Callable[[str], int]) -> Remainder:
        """Return what is left before a place."""
        unread = sum(span.start < position for span in self.joined.spans)
        section_start = self.section(position).start
        return self._rest(
            unread, self.text[:position], self.before, count, section=self.text[section_start:position]
        )

    def _rest(
        self, unread: int, text: str, beyond: Beyond, count: Callable[[str], int], section: str
    ) -> Remainder:
        tokens = count(text)
        inside = count(section) if len(section) < len(text) or beyond.chunks == 0 else None
        if beyond.chunks is None:
            return Remainder(section_tokens=inside, blocked=beyond.blocked and not unread)
        if beyond.chunks:
            mean = count(self.text) / len(self.joined.spans)
            tokens += round(mean * beyond.chunks)
        return Remainder(unread + beyond.chunks, tokens, inside)

    def _find_headings(self) -> Iterator[Heading]:
        before: BaseNode | None = None
        for number, chunk in enumerate(self.run.chunks):
            node, span = chunk.node, self.joined.spans[number]
            for heading in self.sections.headings(node):
                yield Heading(max(span.start, self._at(number, heading.start)), heading.level, heading.title)
            level = None if before is None else self.sections.border(before, node)
            if level is not None and self.sections.opening(node) is None:
                yield Heading(span.start, level, self.sections.path(node)[-1])
            before = node

    def _edge(self, position: int) -> tuple[int, int]:
        """Return the number of the first chunk that reaches a place, and the place in its text."""
        number = next(
            (n for n, span in enumerate(self.joined.spans) if span.end >= position),
            len(self.joined.spans) - 1,
        )
        span, size = self.joined.spans[number], len(text_of(self.run.chunks[number].node))
        if position < span.start and number:  # between two chunks
            return number - 1, len(text_of(self.run.chunks[number - 1].node))
        return number, min(size, max(0, size - (span.end - position)))

    def _at(self, number: int, offset: int) -> int:
        """Return where a character of a chunk is in the text, counted from the chunk's end.

        A repeated table header is left out of a chunk's start.
        """
        return self.joined.spans[number].end - len(text_of(self.run.chunks[number].node)) + offset

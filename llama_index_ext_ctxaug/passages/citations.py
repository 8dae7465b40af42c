"""Cite the chunks that a quote comes from."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from llama_index.core.schema import BaseNode, NodeWithScore

from llama_index_ext_ctxaug.passages.offsets import text_of
from llama_index_ext_ctxaug.passages.pieces import Piece
from llama_index_ext_ctxaug.passages.provenance import whole_provenance
from llama_index_ext_ctxaug.passages.separators import unspaced
from llama_index_ext_ctxaug.passages.span import Span

_WORD = re.compile(r"\S+")
_MARKS = {'"': "“”„‟«»″", "'": "‘’‚‛‹›′", "-": "‐‑‒–—−"}
_PLAIN = {ord(mark): plain for plain, marks in _MARKS.items() for mark in marks}
_AROUND = " \t\r\n\"'.…"


@dataclass(frozen=True, slots=True)
class Citation:
    """A chunk that a quote comes from.

    Attributes:
        node_id: the chunk; for a window that replaced a hit's text, the hit that has it in its metadata.
        document_id: the chunk's source document; None if unknown.
        start: first character of the quoted part in the document; None if it is not certain.
        end: end of the quoted part in the document, exclusive; None if it is not certain.
        metadata: the chunk's metadata, such as page, time and URL, without values too long to be kept.
    """

    node_id: str
    document_id: str | None
    start: int | None
    end: int | None
    metadata: Mapping[str, Any]


def cite(node: BaseNode | NodeWithScore, quote: str | None = None) -> list[Citation]:
    """Return the chunks that a quote in a node comes from.

    Nodes of every augmenter can be cited, and what later steps made of them: where `CitationQueryEngine` or
    another step cut, masked or joined the text, the parts of it that can be recognized are cited.

    Args:
        node: a passage, window, parent, neighbor or hit.
        quote: text of the node; None for all of it. White space, dashes and typographic quotation marks need
            not agree, nor quotation marks and full stops around it.

    Returns:
        A citation for each chunk that has a part of the quote, in reading order; for a quote that occurs
        several times, those of each place. An empty list if the quote is not in the node.
    """
    node = node.node if isinstance(node, NodeWithScore) else node
    text, pieces = text_of(node), whole_provenance(node).pieces
    spans = [Span(0, len(text))] if quote is None else list(_places(text, quote))
    citations: list[Citation] = []
    for span in spans:
        parts = (piece.cut(span.start, span.end) for piece in pieces)
        for part in parts:
            if part is None or text[span.start + part.start : span.start + part.end].isspace():
                continue
            citation = _citation(part)
            if citation not in citations:
                citations.append(citation)
    return citations


def _citation(piece: Piece) -> Citation:
    start, end = (piece.source_start, piece.source_end) if piece.exact else (None, None)
    return Citation(piece.node_id, piece.document_id, start, end, dict(piece.metadata))


def _places(text: str, quote: str) -> Iterator[Span]:
    """Find a quote in a text, whatever the white space and typographic marks of the two."""
    plain, starts, sources = _plain(text)
    for wanted in dict.fromkeys((_plain(quote)[0], _plain(quote.strip(_AROUND))[0])):
        found = plain.find(wanted) if wanted else -1
        while found >= 0:
            last = found + len(wanted) - 1
            first_word, last_word = bisect_right(starts, found) - 1, bisect_right(starts, last) - 1
            yield Span(
                sources[first_word] + found - starts[first_word],
                sources[last_word] + last - starts[last_word] + 1,
            )
            found = plain.find(wanted, found + len(wanted))
            if found < 0:
                return


@lru_cache(maxsize=64)
def _plain(text: str) -> tuple[str, list[int], list[int]]:
    """Reduce a text to plain marks and single spaces.

    Returns:
        The plain text; where each of its words starts there; where each starts in the text.
    """
    words: list[str] = []
    starts: list[int] = []
    sources: list[int] = []
    length = 0
    for match in _WORD.finditer(text.translate(_PLAIN)):
        word = match[0]
        # Scripts without spaces are wrapped anywhere, so that white space in them is not part of the text.
        if words and not (unspaced(words[-1][-1]) and unspaced(word[0])):
            words.append(" ")
            length += 1
        words.append(word)
        starts.append(length)
        sources.append(match.start())
        length += len(word)
    return "".join(words), starts, sources

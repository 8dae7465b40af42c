"""The section around each hit, up to a heading or a number of tokens on each side."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Literal

from llama_index.core.bridge.pydantic import Field
from llama_index.core.schema import BaseNode, QueryBundle
from typing_extensions import override

from llama_index_ext_ctxaug.budget.fit import Tokenizer
from llama_index_ext_ctxaug.budget.tokenizer import tokenizer_or_default
from llama_index_ext_ctxaug.expansion.expansion import UNBOUNDED, Expansion, Reach
from llama_index_ext_ctxaug.expansion.sections import Ends, SectionSide, any_level
from llama_index_ext_ctxaug.expansion.walk import Walk
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.passages.offsets import text_of
from llama_index_ext_ctxaug.postprocessors.base import ContextAugmenter
from llama_index_ext_ctxaug.structure.heading_lines import TEXT_HEADING_KINDS, TextHeadingKind
from llama_index_ext_ctxaug.structure.headings import SECTION_KEYS, TAG_KEYS, HeadingFinder, Sections
from llama_index_ext_ctxaug.structure.order_keys import Direction

logger = logging.getLogger(__name__)

MAX_READ_AHEAD = 64
"""Maximum chunks to read at once on each side before the end of the section is known."""


class SectionPostprocessor(ContextAugmenter):
    """Adds to each hit the rest of its section: the chunks before and after it, up to a heading.

    Expansion ends at a heading, at the document end, before a chunk that `neighbor_filters` refuse, or
    before the chunk that would exceed `expansion_tokens` on one side. The section's own heading is included.
    A table, a list or fenced code that begins after the hit and does not fit is left out whole.

    A heading is metadata that a parser wrote (`header_path` of MarkdownNodeParser, docling's `headings`,
    `tag` h1 to h6 of HTMLNodeParser, unstructured's `category: Title`), else a line of the text: markdown,
    underlined, or numbered ("3.2 Title", "Article 5", "§ 4", "第三章", "一、", "（二）").

    **Requires**: a docstore that holds the chunks, and anything that shows their order (see
    `ContextAugmenter`). No query is needed.

    **Guarantees**: at most `expansion_tokens` tokens are added on each side. No chunk is added after the one
    in which the next section begins, or before the one that holds the section's own heading. Chunks are
    added whole.

    **On failure**: as `ContextAugmenter`; a warning if not even the nearest chunk fits.

    Example:
        ```python
        from llama_index_ext_ctxaug import SectionPostprocessor

        augmenter = SectionPostprocessor(docstore=index.docstore, expansion_tokens=400, output="passages")
        engine = index.as_query_engine(node_postprocessors=[augmenter])
        ```
    """

    expansion_tokens: int = Field(
        default=256, ge=0, description="Maximum tokens added on each side of a hit."
    )
    stop_at: Literal["any", "same_or_higher"] = Field(
        default="any",
        description='Headings that end a section: "any", or those of its own or a higher level, so that '
        "sub-sections belong to it (any, if its level is unknown).",
    )
    heading_kinds: tuple[TextHeadingKind, ...] = Field(
        default=TEXT_HEADING_KINDS, description="Kinds of headings to look for in the text of chunks."
    )
    section_keys: tuple[str, ...] = Field(
        default=SECTION_KEYS, description="Metadata keys that name the section a chunk is in."
    )
    heading_tag_keys: tuple[str, ...] = Field(
        default=TAG_KEYS, description='Metadata keys that mark a chunk as a heading: "h1" to "h6", "Title".'
    )
    heading_finder: HeadingFinder | None = Field(
        default=None,
        exclude=True,
        description="Finds the headings of a node instead: a list of them, a level, or None.",
    )

    @override
    def expand(self, expansion: Expansion, query: QueryBundle | None) -> Flow[None]:
        if not self.expansion_tokens:
            return
        tokenizer = yield from tokenizer_or_default(self.tokenizer)
        count = _counter(tokenizer)
        sections = Sections(self.heading_kinds, self.section_keys, self.heading_tag_keys, self.heading_finder)
        sides: dict[tuple[str, Direction], SectionSide] = {}
        ahead = self._read_ahead([count(chunk.node) for chunk in expansion.hits.values()])
        reaches: dict[str, Reach] = {}
        for id_, chunk in expansion.hits.items():
            opens = sections.opening(chunk.node) is not None
            if opens:
                chunk.stopped_previous = "heading"
                expansion.stops["heading"] += 1
            for direction in ("previous", "next"):
                sides[id_, direction] = SectionSide(
                    sections,
                    count,
                    self.expansion_tokens,
                    direction,
                    chunk.node,
                    self._ends(sections, chunk.node),
                )
            reaches[id_] = Reach(
                previous=0 if opens else UNBOUNDED,
                next=UNBOUNDED,
                stop=_limits(sides, id_),
                read_ahead=ahead,
            )
        walks = yield from expansion.walk(reaches)
        self._shorten(walks, sides)
        expansion.take(walks)
        self._warn_if_nothing_fits(walks, sides)

    def _ends(self, sections: Sections, hit: BaseNode) -> Ends:
        """Return the headings that end the section of a hit, as far as the hit itself shows them."""
        if self.stop_at == "any":
            return any_level
        level = sections.level(hit)
        if level is None:
            return lambda other: False  # known only once its own heading is found
        return _up_to(level)

    def _shorten(self, walks: list[Walk], sides: Mapping[tuple[str, Direction], SectionSide]) -> None:
        for walk in walks:
            side = sides[walk.hit_id, walk.direction]
            ends_are_open = self.stop_at == "same_or_higher" and side.sections.level(side.hit) is None
            if ends_are_open and walk.direction == "next":
                own = sides[walk.hit_id, "previous"].own_heading()
                side.end_by(walk, _up_to(own.level) if own else any_level)
            side.keep_blocks_whole(walk)

    def _read_ahead(self, tokens: list[int]) -> int:
        """Return how many chunks may fit the limit if they are as long as the hits."""
        mean = max(1, sum(tokens) // len(tokens))
        return min(MAX_READ_AHEAD, 1 + self.expansion_tokens // mean)

    def _warn_if_nothing_fits(
        self, walks: list[Walk], sides: Mapping[tuple[str, Direction], SectionSide]
    ) -> None:
        refused = [side.count(side.refused) for side in sides.values() if side.refused is not None]
        smallest = min(refused, default=0)
        if smallest > self.expansion_tokens and not any(walk.node_ids for walk in walks):
            logger.warning(
                "%s: nothing is added, since no neighbor has at most expansion_tokens=%d tokens "
                "(the smallest has %d)",
                self.class_name(),
                self.expansion_tokens,
                smallest,
            )


def _counter(tokenizer: Tokenizer) -> Callable[[BaseNode], int]:
    """Make a function that counts the tokens of a node, each node once."""
    counted: dict[str, int] = {}

    def count(node: BaseNode) -> int:
        if node.node_id not in counted:
            counted[node.node_id] = len(tokenizer(text_of(node)))
        return counted[node.node_id]

    return count


def _limits(
    sides: Mapping[tuple[str, Direction], SectionSide], hit_id: str
) -> Callable[[Direction], SectionSide]:
    return lambda direction: sides[hit_id, direction]


def _up_to(level: int) -> Ends:
    return lambda other: other <= level

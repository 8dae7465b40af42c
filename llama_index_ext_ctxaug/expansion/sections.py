"""Stop conditions for sections: a walk ends at a heading or at a number of tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from llama_index.core.schema import BaseNode

from llama_index_ext_ctxaug.expansion.walk import StopAfter, Walk
from llama_index_ext_ctxaug.passages.offsets import text_of
from llama_index_ext_ctxaug.passages.passage import StopReason
from llama_index_ext_ctxaug.structure.block_boundaries import block_runs_on
from llama_index_ext_ctxaug.structure.heading_lines import Heading
from llama_index_ext_ctxaug.structure.headings import Sections
from llama_index_ext_ctxaug.structure.order_keys import Direction

Ends = Callable[[int], bool]
"""Returns True for a level whose headings end the section."""


def any_level(level: int) -> bool:
    """Return True: every heading ends the section."""
    return True


@dataclass
class SectionSide:
    """One side of the section around a hit: the stop condition of a walk.

    Towards the start, the section includes the chunk with the first heading found, which is its own.
    Towards the end, it stops before a chunk that opens with a heading. A chunk with a heading further
    down holds the end of the section and is the last.

    Attributes:
        sections: finds where sections begin.
        count: counts the tokens of a node's text.
        budget: maximum tokens of the nodes taken.
        direction: towards the start or the end of the document.
        hit: the node where the walk starts.
        ends: the heading levels that end the section, towards the end of the document.
        taken: the nodes taken, nearest first.
        refused: the node that exceeded the budget.
    """

    sections: Sections
    count: Callable[[BaseNode], int]
    budget: int
    direction: Direction
    hit: BaseNode
    ends: Ends = any_level
    taken: list[BaseNode] = field(default_factory=list)
    refused: BaseNode | None = None
    _used: int = 0

    def __call__(self, node: BaseNode) -> StopReason | StopAfter | None:
        """Return None to take a node, `StopAfter` to take it as the last, or why it is not taken."""
        verdict = self._by_heading(node)
        if verdict == "heading":
            return "heading"
        tokens = self.count(node)
        if self._used + tokens > self.budget:
            self.refused = node
            return "budget"
        self._used += tokens
        self.taken.append(node)
        return verdict

    def _by_heading(self, node: BaseNode) -> StopReason | StopAfter | None:
        current = self.taken[-1] if self.taken else self.hit
        if self.direction == "previous":
            if self.sections.border(node, current) is not None:
                return "heading"
            return StopAfter("heading") if self.sections.headings(node) else None
        level = self.sections.border(current, node)
        if level is not None and self.ends(level):
            return "heading"
        opening = self.sections.opening(node)
        further = [heading for heading in self.sections.headings(node) if heading is not opening]
        return StopAfter("heading") if any(self.ends(heading.level) for heading in further) else None

    def own_heading(self) -> Heading | None:
        """Return the section's own heading if the walk towards the start found it."""
        headings = self.sections.headings(self.taken[-1]) if self.taken else []
        return headings[-1] if headings else None

    def end_by(self, walk: Walk, ends: Ends) -> None:
        """Shorten the walk to where headings of the given levels end it."""
        self.ends, nodes = ends, self.taken
        self.taken, self._used = [], 0
        for node in nodes:
            verdict = self(node)
            if verdict is not None:
                walk.stopped, walk.missing_id = "heading", None
                break
        del walk.node_ids[len(self.taken) :]

    def keep_blocks_whole(self, walk: Walk) -> None:
        """Remove the nodes of a block that the budget cut, unless the block reaches into the hit."""
        if walk.stopped != "budget" or self.refused is None:
            return
        outer, kept = self.refused, len(self.taken)
        while kept and self._runs_on(self.taken[kept - 1], outer):
            kept -= 1
            outer = self.taken[kept]
        if kept == len(self.taken) or (kept == 0 and self._runs_on(self.hit, outer)):
            return
        del self.taken[kept:]
        del walk.node_ids[kept:]

    def _runs_on(self, inner: BaseNode, outer: BaseNode) -> bool:
        first, second = (inner, outer) if self.direction == "next" else (outer, inner)
        return block_runs_on(text_of(first), text_of(second))

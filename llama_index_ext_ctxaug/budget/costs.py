"""Token costs of the chunks of passages: estimated from parts that are counted once, and exact."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from llama_index.core.schema import MetadataMode, NodeWithScore

from llama_index_ext_ctxaug.budget.fit import NO_PARTS, NODE_SEPARATOR, Parts, final_text, keep
from llama_index_ext_ctxaug.budget.token_counter import TokenCounter
from llama_index_ext_ctxaug.passages.offsets import text_of
from llama_index_ext_ctxaug.passages.passage import Chunk, Passage
from llama_index_ext_ctxaug.passages.passage_node import is_text


@dataclass
class ChunkCosts:
    """Token costs used to fit the chunks of passages into a budget.

    Attributes:
        passages: hits and neighbors in reading order.
        counter: counts tokens.
        write: renders passages as nodes.
        joined: returns the text of a chunk and its follower where they become one node; None where each
            chunk becomes a node.
    """

    passages: Sequence[Passage]
    counter: TokenCounter
    write: Callable[[list[Passage]], list[NodeWithScore]]
    joined: Callable[[Chunk, Chunk], str] | None = None
    _place: dict[str, tuple[int, int]] = field(default_factory=dict)
    _alone: dict[str, int] = field(default_factory=dict)
    _added: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, passage in enumerate(self.passages):
            for place, chunk in enumerate(passage.chunks):
                self._place[chunk.node.id_] = (number, place)

    def count(self, kept: Collection[str], parts: Parts = NO_PARTS) -> int:
        """Count the tokens of the final text of the kept chunks and parts."""
        return self.counter.count(final_text(self._nodes(kept, parts)))

    def measure(self, kept: Collection[str], parts: Parts = NO_PARTS) -> int:
        """Estimate the tokens of the final text of the kept chunks and parts."""
        return self.counter.estimate(final_text(self._nodes(kept, parts)))

    def cost(self, id_: str, kept: Collection[str]) -> int:
        """Estimate the tokens that a chunk adds to the kept ones."""
        before, chunk, after = self.beside(id_)
        cost = self._cost_alone(chunk)
        if self.joined is None or not is_text(chunk.node):
            return cost
        for first, second, other in ((before, chunk, before), (chunk, after, after)):
            if first and second and other and other.node.id_ in kept and is_text(other.node):
                # The two become one node: the second adds its own text alone.
                cost += self._added_text(self.joined, first, second) - self._cost_alone(second)
        return cost

    def beside(self, id_: str) -> tuple[Chunk | None, Chunk, Chunk | None]:
        """Return a chunk between the chunks before and after it."""
        number, place = self._place[id_]
        chunks = self.passages[number].chunks
        before, after = chunks[max(0, place - 1) : place], chunks[place + 1 : place + 2]
        return (before[0] if before else None, chunks[place], after[0] if after else None)

    def shared(self, first: Chunk, second: Chunk) -> int:
        """Return how many characters a chunk and its follower share, where they become one node."""
        if self.joined is None:
            return 0
        return max(0, len(text_of(first.node)) + len(text_of(second.node)) - len(self.joined(first, second)))

    def _nodes(self, kept: Collection[str], parts: Parts) -> list[NodeWithScore]:
        touched = sorted({self._place[id_][0] for id_ in (*kept, *parts)})
        return self.write(keep([self.passages[number] for number in touched], kept, parts))

    def _cost_alone(self, chunk: Chunk) -> int:
        if chunk.node.id_ not in self._alone:
            content = chunk.node.get_content(metadata_mode=MetadataMode.LLM)
            # The final text has the same sentences: what is counted for the estimate is not counted again.
            parts = [content + NODE_SEPARATOR] if self.joined is None else [content, NODE_SEPARATOR]
            self._alone[chunk.node.id_] = sum(map(self.counter.estimate, parts))
        return self._alone[chunk.node.id_]

    def _added_text(self, joined: Callable[[Chunk, Chunk], str], first: Chunk, second: Chunk) -> int:
        """Estimate the tokens that a chunk adds to the text of the one before it."""
        ids = (first.node.id_, second.node.id_)
        if ids not in self._added:
            both = self.counter.estimate(joined(first, second))
            self._added[ids] = both - self.counter.estimate(text_of(first.node))
        return self._added[ids]

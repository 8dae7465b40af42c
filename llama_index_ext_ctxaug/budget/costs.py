"""Token costs of chunks: each text is counted once, joints are estimated, the whole is counted exactly."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from llama_index.core.schema import MetadataMode, NodeWithScore

from llama_index_ext_ctxaug.budget.fit import NODE_SEPARATOR, keep
from llama_index_ext_ctxaug.passages.passage import Chunk, Passage
from llama_index_ext_ctxaug.passages.passage_node import is_text


@dataclass
class ChunkCosts:
    """Token costs used to fit the chunks of passages into a budget.

    Attributes:
        passages: hits and neighbors in reading order.
        budget: maximum tokens of the final text.
        count: counts the tokens of a text.
        write: renders passages as nodes.
        shared: returns the text that a chunk and its follower share where they become one node; None where
            each chunk becomes a node.
    """

    passages: Sequence[Passage]
    budget: int
    count: Callable[[str], int]
    write: Callable[[Sequence[Passage]], list[NodeWithScore]]
    shared: Callable[[Chunk, Chunk], str] | None = None
    _place: dict[str, tuple[int, int]] = field(default_factory=dict)
    _alone: dict[str, int] = field(default_factory=dict)
    _saved: dict[tuple[str, str], int] = field(default_factory=dict)
    _counted: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, passage in enumerate(self.passages):
            for place, chunk in enumerate(passage.chunks):
                self._place[chunk.node.id_] = (number, place)

    def measure(self, kept: Collection[str]) -> int:
        """Count the tokens of the final text of the kept chunks: exactly, unless clearly over the budget."""
        touched = sorted({self._place[id_][0] for id_ in kept})
        nodes = self.write(keep([self.passages[number] for number in touched], kept))
        contents = [hit.node.get_content(metadata_mode=MetadataMode.LLM) for hit in nodes]
        apart = sum(map(self._tokens, contents))
        # A separator can merge with the text before it into one token: it may add nothing, or save one.
        if apart - len(contents) > self.budget:
            return apart
        return self._tokens(NODE_SEPARATOR.join(contents))

    def cost(self, id_: str, kept: Collection[str]) -> int:
        """Estimate the tokens that a chunk adds to the kept ones."""
        number, place = self._place[id_]
        chunks = self.passages[number].chunks
        chunk, separator = chunks[place], self._tokens(NODE_SEPARATOR)
        if id_ not in self._alone:
            self._alone[id_] = self._tokens(chunk.node.get_content(metadata_mode=MetadataMode.LLM))
        total = self._alone[id_] + separator
        if self.shared is None or not is_text(chunk.node):
            return total
        for first, second in pairwise(chunks[max(0, place - 1) : place + 2]):
            other = second if first is chunk else first
            if other.node.id_ in kept and is_text(other.node):
                total -= self._saving(self.shared, first, second) + separator
        return total

    def _saving(self, shared: Callable[[Chunk, Chunk], str], first: Chunk, second: Chunk) -> int:
        """Count the tokens that joining two chunks saves: the metadata of one, and their shared text."""
        ids = (first.node.id_, second.node.id_)
        if ids not in self._saved:
            header = second.node.get_metadata_str(mode=MetadataMode.LLM)
            self._saved[ids] = self._tokens(header) + self._tokens(shared(first, second))
        return self._saved[ids]

    def _tokens(self, text: str) -> int:
        if text not in self._counted:
            self._counted[text] = self.count(text)
        return self._counted[text]

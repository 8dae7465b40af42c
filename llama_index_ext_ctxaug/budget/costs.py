"""What chunks cost in tokens: each text counted once, joints estimated, the whole counted exactly."""

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
    """The prices of the chunks of some passages.

    Attributes:
        passages: hits and neighbors in reading order.
        budget: most tokens of the final text.
        count: tokens of a text.
        write: makes the nodes that go out of passages.
        shared: the text that a chunk and the one after it share, where they become one node; None where
            chunks go out one by one.
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
        """Tokens of the final text of the chunks that are kept: exact, unless clearly over the budget."""
        touched = sorted({self._place[id_][0] for id_ in kept})
        nodes = self.write(keep([self.passages[number] for number in touched], kept))
        contents = [hit.node.get_content(metadata_mode=MetadataMode.LLM) for hit in nodes]
        apart = sum(map(self._tokens, contents))
        # A separator may become one token with the text before it, so it can add nothing, or take one away.
        if apart - len(contents) > self.budget:
            return apart
        return self._tokens(NODE_SEPARATOR.join(contents))

    def cost(self, id_: str, kept: Collection[str]) -> int:
        """About how many tokens a chunk adds to the chunks that are kept."""
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
        """Tokens that joining two chunks saves: the metadata of one, and what their texts share."""
        ids = (first.node.id_, second.node.id_)
        if ids not in self._saved:
            header = second.node.get_metadata_str(mode=MetadataMode.LLM)
            self._saved[ids] = self._tokens(header) + self._tokens(shared(first, second))
        return self._saved[ids]

    def _tokens(self, text: str) -> int:
        """Tokens of a text, which is counted once."""
        if text not in self._counted:
            self._counted[text] = self.count(text)
        return self._counted[text]

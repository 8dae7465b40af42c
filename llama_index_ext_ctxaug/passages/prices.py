"""What chunks cost in tokens: each text counted once, joints estimated, the whole counted exactly."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.schema import MetadataMode, NodeWithScore

from llama_index_ext_ctxaug.passages.budget import NODE_SEPARATOR, final_text, keep
from llama_index_ext_ctxaug.passages.composing import is_text
from llama_index_ext_ctxaug.passages.passage import Chunk, Passage


@dataclass
class Prices:
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
    _counted: dict[Any, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, passage in enumerate(self.passages):
            for place, chunk in enumerate(passage.chunks):
                self._place[chunk.node.node_id] = (number, place)

    def measure(self, kept: Collection[str]) -> int:
        """Tokens of the final text of the chunks that are kept: exact, unless clearly over the budget."""
        nodes = self.write(keep(self.passages, kept))
        contents = [hit.node.get_content(metadata_mode=MetadataMode.LLM) for hit in nodes]
        apart = 0
        for content in contents:
            if (content,) not in self._counted:
                self._counted[content,] = self.count(content)
            apart += self._counted[content,]
        # A separator may become one token with the text before it, so it can add nothing, or take one away.
        if apart - len(contents) > self.budget:
            return apart
        return self.count(final_text(nodes))

    def cost(self, id_: str, kept: Collection[str]) -> int:
        """About how many tokens a chunk adds to the chunks that are kept."""
        number, place = self._place[id_]
        chunks = self.passages[number].chunks
        chunk = chunks[place]
        content = self._once(id_, lambda: chunk.node.get_content(metadata_mode=MetadataMode.LLM))
        separator = self._once("", lambda: NODE_SEPARATOR)
        total = content + separator
        if self.shared is None or not is_text(chunk.node):
            return total
        before, after = chunks[place - 1 : place], chunks[place + 1 : place + 2]
        for first, second in [(one, chunk) for one in before] + [(chunk, one) for one in after]:
            other = second if first is chunk else first
            if other.node.node_id in kept and is_text(other.node):
                total -= self._saved(self.shared, first, second) + separator
        return total

    def _saved(self, shared: Callable[[Chunk, Chunk], str], first: Chunk, second: Chunk) -> int:
        """Tokens that joining two chunks saves: the metadata of one, and what their texts share."""
        ids = (first.node.node_id, second.node.node_id)
        header = self._once(ids[1:], lambda: second.node.get_metadata_str(mode=MetadataMode.LLM))
        return header + self._once(ids, lambda: shared(first, second))

    def _once(self, key: Any, text: Callable[[], str]) -> int:
        if key not in self._counted:
            self._counted[key] = self.count(text())
        return self._counted[key]

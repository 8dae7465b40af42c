"""Token costs of chunks."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core.schema import ImageNode, NodeWithScore, TextNode

from llama_index_ext_ctxaug.budget.costs import ChunkCosts
from llama_index_ext_ctxaug.budget.fit import NODE_SEPARATOR
from llama_index_ext_ctxaug.passages.passage import Chunk, Passage

SEPARATOR = len(NODE_SEPARATOR)


def costs(counted: list[str], *, shared: bool, budget: int = 1000) -> ChunkCosts:
    """The costs of a text, an image and two texts in one run; each character is a token."""
    metadata = {"k": "v"}
    nodes = [
        TextNode(id_="a", text="aaaa", metadata=metadata),
        ImageNode(id_="image", text="ii", image="aGk="),
        TextNode(id_="b", text="bbbbbb", metadata=metadata),
        TextNode(id_="c", text="ccc", metadata=metadata),
    ]

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    def write(passages: Sequence[Passage]) -> list[NodeWithScore]:
        return [NodeWithScore(node=chunk.node) for passage in passages for chunk in passage.chunks]

    run = Passage([Chunk(node, "hit", (node.node_id,), rank) for rank, node in enumerate(nodes)])
    overlap = (lambda first, second: "xx") if shared else None
    return ChunkCosts([run], budget, count, write, overlap)


def test_a_chunk_alone_costs_its_content_and_a_separator() -> None:
    """Metadata that the model sees counts; where each chunk becomes a node, joining saves nothing."""
    alone = costs([], shared=False)
    assert alone.cost("b", ["c", "a"]) == len("k: v\n\nbbbbbb") + SEPARATOR
    assert alone.cost("image", []) == len("ii") + SEPARATOR


def test_joining_saves_a_header_a_separator_and_shared_text() -> None:
    """A chunk beside a kept text costs its text alone, less what they share; beside an image all of it."""
    joined = costs([], shared=True)
    assert joined.cost("c", ["b"]) == len("k: v\n\nccc") - len("k: v") - len("xx")
    assert joined.cost("b", ["c"]) == len("k: v\n\nbbbbbb") - len("k: v") - len("xx")
    assert joined.cost("b", ["a", "image"]) == len("k: v\n\nbbbbbb") + SEPARATOR
    assert joined.cost("image", ["a", "b"]) == len("ii") + SEPARATOR


def test_each_text_is_counted_once() -> None:
    """No text is counted twice; what is clearly over the budget is not counted as a whole."""
    counted: list[str] = []
    both = costs(counted, shared=True, budget=5)
    for _ in range(3):
        both.cost("b", ["c"])
        both.cost("c", ["b"])
    assert sorted(counted) == sorted(["k: v\n\nbbbbbb", "k: v\n\nccc", "k: v", NODE_SEPARATOR, "xx"])
    counted.clear()
    for _ in range(3):
        assert both.measure(["b", "c"]) == len("k: v\n\nbbbbbb") + len("k: v\n\nccc")
    assert counted == []
    assert costs(counted, shared=True).measure(["b", "c"]) == len("k: v\n\nbbbbbb\n\nk: v\n\nccc")

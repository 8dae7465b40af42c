"""Token costs of chunks."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core.schema import ImageNode, NodeWithScore, TextNode

from llama_index_ext_ctxaug import Chunk
from llama_index_ext_ctxaug.budget.costs import ChunkCosts
from llama_index_ext_ctxaug.budget.fit import NODE_SEPARATOR
from llama_index_ext_ctxaug.budget.token_counter import TokenCounter
from llama_index_ext_ctxaug.passages.passage import Passage

SEPARATOR = len(NODE_SEPARATOR)


def costs(counted: list[str], *, joined: bool) -> ChunkCosts:
    """Return the costs of a text, an image and two texts in one run; each character is a token."""
    metadata = {"k": "v"}
    nodes = [
        TextNode(id_="a", text="aaaa", metadata=metadata),
        ImageNode(id_="image", text="ii", image="aGk="),
        TextNode(id_="b", text="bbxx", metadata=metadata),
        TextNode(id_="c", text="xxccc", metadata=metadata),
    ]

    def tokenize(text: str) -> str:
        counted.append(text)
        return text

    def write(passages: Sequence[Passage]) -> list[NodeWithScore]:
        return [NodeWithScore(node=chunk.node) for passage in passages for chunk in passage.chunks]

    def join(first: Chunk, second: Chunk) -> str:
        return first.node.text + second.node.text.removeprefix("xx")

    run = Passage([Chunk(node, "hit", (node.node_id,), rank) for rank, node in enumerate(nodes)])
    return ChunkCosts([run], TokenCounter(tokenize), write, join if joined else None)


def test_a_chunk_alone_costs_its_content_and_a_separator() -> None:
    """Metadata that the model sees counts; if each chunk becomes a node, joining saves nothing."""
    alone = costs([], joined=False)
    assert alone.cost("b", ["c", "a"]) == len("k: v\n\nbbxx") + SEPARATOR
    assert alone.cost("image", []) == len("ii") + SEPARATOR


def test_a_chunk_beside_a_kept_one_costs_the_text_that_it_adds() -> None:
    """Joining saves a header, a separator and shared text; beside an image it saves nothing."""
    both = costs([], joined=True)
    assert both.cost("c", ["b"]) == len("ccc")
    assert both.cost("b", ["c"]) == len("bb")
    assert both.cost("b", ["a", "image"]) == len("k: v\n\nbbxx") + SEPARATOR
    assert both.cost("image", ["a", "b"]) == len("ii") + SEPARATOR


def test_a_chunk_between_kept_ones_joins_both() -> None:
    """A chunk that closes a gap saves the header, separator and shared text on both sides."""
    nodes = [
        TextNode(id_=id_, text=text, metadata={"k": "v"})
        for id_, text in zip("abc", ["1x", "x2y", "y3"], strict=True)
    ]
    run = Passage([Chunk(node, "hit", (node.node_id,), rank) for rank, node in enumerate(nodes)])

    def join(first: Chunk, second: Chunk) -> str:
        return first.node.text + second.node.text[1:]

    between = ChunkCosts([run], TokenCounter(str), lambda passages: [], join)
    # "1x2y3" under one header, instead of "1x" and "y3" each under its own.
    assert between.cost("b", ["a", "c"]) == len("k: v\n\n1x2y3") - len("k: v\n\n1x\n\nk: v\n\ny3")


def test_each_text_is_counted_once() -> None:
    """Estimates count no text twice; an exact count takes the whole text."""
    counted: list[str] = []
    both = costs(counted, joined=True)
    for _ in range(3):
        both.cost("b", ["c"])
        both.cost("c", ["b"])
        assert both.measure(["b", "c"]) == len("k: v\n\nbbxx\n\nk: v\n\nxxccc")
    assert len(counted) == len(set(counted))
    counted.clear()
    assert both.count(["b", "c"]) == len("k: v\n\nbbxx\n\nk: v\n\nxxccc")
    assert counted == ["k: v\n\nbbxx\n\nk: v\n\nxxccc"]

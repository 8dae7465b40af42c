"""join: chunks in reading order, for any links."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import TextNode

from llama_index_ext_ctxaug import Chunk
from llama_index_ext_ctxaug.passages.passage import Edge
from llama_index_ext_ctxaug.structure.link_resolution import join


def chunks_of(names: str, hits: str = "") -> dict[str, Chunk]:
    """Return chunks by name; those in `hits` are hits in the order given, by default all."""
    hits = hits or names
    return {
        name: Chunk(
            TextNode(id_=name, text=name),
            "hit" if name in hits else "neighbor",
            (name if name in hits else hits[0],),
            rank=hits.index(name) if name in hits else 0,
        )
        for name in names
    }


def joined(chunks: dict[str, Chunk], edges: list[Edge]) -> list[str]:
    """Return the passages as the names of their chunks; both nodes state an edge given twice."""
    stated = Counter(edges)
    passages = join(chunks, [e for e in stated if stated[e] > 1], [e for e in stated if stated[e] == 1])
    return ["".join(chunk.node.node_id for chunk in passage.chunks) for passage in passages]


@pytest.mark.parametrize(
    ("names", "edges", "expected"),
    [
        ("cab", ["ab", "ab", "bc", "bc"], ["abc"]),
        ("ba", [], ["b", "a"]),
        ("abcd", ["ab", "ab", "bc", "bc", "bd"], ["abc", "d"]),
        ("abcd", ["bd", "cd", "ab", "ab"], ["ab", "c", "d"]),
        ("abc", ["aa", "ax", "xb", "bc"], ["a", "bc"]),
        ("cab", ["ab", "bc", "ca"], ["cab"]),
        ("bac", ["ab", "ab", "bc", "bc", "ca", "ca"], ["bca"]),
    ],
    ids=[
        "in order",
        "no links",
        "two agree, one objects",
        "two compete",
        "self and outside",
        "ring",
        "ring, best first",
    ],
)
def test_passages(names: str, edges: list[str], expected: list[str]) -> None:
    """Firm links count first, competing ones join nothing, rings open before their best hit."""
    assert joined(chunks_of(names), [(edge[0], edge[1]) for edge in edges]) == expected


def test_a_passage_has_the_rank_of_its_first_hit() -> None:
    """Neighbors have no rank of their own, and a run without a hit follows its hit."""
    chunks = chunks_of("xayb", hits="ba")
    assert joined(chunks, [("x", "a"), ("y", "b"), ("x", "a"), ("y", "b")]) == ["yb", "xa"]
    assert joined(chunks, [("x", "a"), ("x", "a")]) == ["b", "y", "xa"]


@given(
    st.integers(0, 8), st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=24), st.randoms()
)
def test_the_order_of_edges_does_not_matter(
    size: int, pairs: list[tuple[int, int]], chance: random.Random
) -> None:
    """For any graph and any order of its edges, every chunk is returned once, in the same passages."""
    names = "abcdefghi"[: size + 1]
    chunks = chunks_of(names)
    edges = [("abcdefghi"[before], "abcdefghi"[after]) for before, after in pairs]
    passages = joined(chunks, edges)
    assert sorted("".join(passages)) == sorted(names)
    chance.shuffle(edges)
    assert joined(chunks, edges) == passages

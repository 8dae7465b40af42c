"""Random hierarchies for tests: up to four levels, with missing parts, wrong links and rings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import strategies as st
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from llama_index_ext_ctxaug.testing import ObservedDocstore, docstore_of
from llama_index_ext_ctxaug.testing.worlds import SCORES

PARENT, CHILD, SOURCE = NodeRelationship.PARENT, NodeRelationship.CHILD, NodeRelationship.SOURCE
PREVIOUS, NEXT = NodeRelationship.PREVIOUS, NodeRelationship.NEXT

Shape = Sequence["Shape"]
"""A node, given as the shapes of its children."""


@dataclass
class Hierarchy:
    """Documents cut on several levels, and the hits that a retriever found in them.

    Attributes:
        nodes: all nodes by id, parents before children, children in reading order.
        above: the right parent of each node that has one.
        hits: retrieved nodes, repetitions included.
        missing: ids that the store does not have.
    """

    nodes: dict[str, TextNode] = field(default_factory=dict)
    above: dict[str, str] = field(default_factory=dict)
    hits: list[NodeWithScore] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)

    def ancestors(self, node_id: str) -> Iterator[str]:
        """Return the ids above a node, nearest first."""
        while node_id in self.above:
            node_id = self.above[node_id]
            yield node_id

    def children(self, node_id: str) -> list[str]:
        """Return the ids of a node's children, in order."""
        return [child for child, parent in self.above.items() if parent == node_id]

    def store(self, **options: object) -> ObservedDocstore:
        """Return the store, which counts its reads."""
        return ObservedDocstore(docstore_of(list(self.nodes.values())), missing=self.missing, **options)

    def retrieved(self, *names: str, scores: Sequence[float | None] | None = None) -> list[NodeWithScore]:
        """Return hits on these nodes; by default with the scores 0.9, 0.8, 0.7 and so on."""
        scores = [0.9 - 0.1 * rank for rank in range(len(names))] if scores is None else scores
        return [
            NodeWithScore(node=self.nodes[name], score=score)
            for name, score in zip(names, scores, strict=True)
        ]


def grow(shapes: Sequence[Shape], names: Sequence[str] | None = None) -> Hierarchy:
    """Return documents of these shapes, one for each root; ids name the parent and the position."""
    tree = Hierarchy()

    def add(shape: Shape, name: str, source: str) -> TextNode:
        node = TextNode(id_=name, text=f"Text of {name}. " * (1 + len(shape)))
        node.relationships[SOURCE] = RelatedNodeInfo(node_id=source)
        tree.nodes[name] = node
        children = [add(child, f"{name}.{place}", source) for place, child in enumerate(shape)]
        for before, after in pairwise(children):
            after.relationships[PREVIOUS] = RelatedNodeInfo(node_id=before.node_id)
        for child in children:
            tree.above[child.node_id] = name
            child.relationships[PARENT] = RelatedNodeInfo(node_id=name)
        if children:
            node.relationships[CHILD] = [RelatedNodeInfo(node_id=child.node_id) for child in children]
        return node

    for number, shape in enumerate(shapes):
        add(shape, names[number] if names else "PQRS"[number], f"document-{number}")
    return tree


def family(children: int = 4) -> Hierarchy:
    """Return one parent "P" with its children "P.0", "P.1" and so on."""
    return grow([[[]] * children])


LEAVES = st.lists(st.just([]), max_size=5)
SHAPES = st.lists(st.lists(st.lists(LEAVES, max_size=3), max_size=4), min_size=1, max_size=2)


@st.composite
def hierarchies(draw: st.DrawFn, *, faults: bool = True, lost: bool = True) -> Hierarchy:
    """Draw a hierarchy of up to four levels.

    Args:
        draw: hypothesis.
        faults: bend links into rings, other documents or nowhere, and lose lists of children.
        lost: leave nodes out of the store.
    """
    tree = grow(draw(SHAPES))
    names = list(tree.nodes)
    for name in names:
        tree.nodes[name].metadata["tenant"] = draw(st.sampled_from(["a", "a", "a", "b"]))
    if faults:
        for _ in range(draw(st.integers(0, 3))):
            _bend(draw, tree)
    if lost:
        tree.missing = set(draw(st.lists(st.sampled_from(names), max_size=2)))
    leaves = [name for name in names if not tree.children(name)]
    names_of_hits = st.one_of(st.sampled_from(leaves), st.sampled_from(leaves), st.sampled_from(names))
    found = draw(st.lists(st.tuples(names_of_hits, SCORES), max_size=12))
    tree.hits = [NodeWithScore(node=tree.nodes[name], score=score) for name, score in found]
    return tree


def _bend(draw: st.DrawFn, tree: Hierarchy) -> None:
    """Let a node name another parent (itself, one below it, any, none that exists), or lose its list."""
    node = tree.nodes[draw(st.sampled_from(list(tree.nodes)))]
    target = draw(st.one_of(st.none(), st.just("nowhere"), st.sampled_from(list(tree.nodes))))
    if target is None:
        node.relationships.pop(CHILD, None)
    else:
        node.relationships[PARENT] = RelatedNodeInfo(node_id=target)
        if target in tree.nodes and draw(st.booleans()):
            listed = tree.nodes[target].relationships.setdefault(CHILD, [])
            listed.append(RelatedNodeInfo(node_id=node.node_id))

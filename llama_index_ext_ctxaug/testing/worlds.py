"""Hypothesis strategies: documents in a store, with faulty links, and hits among them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import strategies as st
from llama_index.core.schema import BaseNode, NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from llama_index_ext_ctxaug.testing.kit import ObservedDocstore, docstore_of, linked_document

SCORES = st.one_of(st.none(), st.sampled_from([0.0, -3.5, 0.9, 0.3, -0.1]), st.floats(-5, 5))
Links = Literal["both", "previous", "next", "none"]
LINKS: st.SearchStrategy[Links] = st.sampled_from(("both", "both", "both", "previous", "next", "none"))


@dataclass(repr=False)
class World:
    """Documents in a store, and the hits that a retriever found in them.

    Attributes:
        documents: chunks of each document, in reading order.
        hits: the retrieved nodes, repetitions included.
        missing: ids that the store does not have.
        tidy: True if every link is there and right, and every node is in the store.
        parents: nodes that hold the texts of several chunks, in the store too.
    """

    documents: list[list[TextNode]]
    hits: list[NodeWithScore]
    missing: set[str] = field(default_factory=set)
    tidy: bool = True
    parents: list[TextNode] = field(default_factory=list)

    def __repr__(self) -> str:
        documents = [[_short(node) for node in document] for document in self.documents]
        found = [(_short(hit.node), hit.score) for hit in self.hits]
        above = [parent.node_id for parent in self.parents]
        return f"World({documents}, hits={found}, missing={self.missing}, tidy={self.tidy}, parents={above})"

    @property
    def nodes(self) -> dict[str, TextNode]:
        """All chunks and parents by id."""
        return {node.node_id: node for document in (*self.documents, self.parents) for node in document}

    @property
    def texts(self) -> dict[str, str]:
        """The texts that character offsets count in, by the id of the source document."""
        return {
            str(document[0].ref_doc_id): "".join(node.text for node in document)
            for document in self.documents
        }

    def store(self, **options: Any) -> ObservedDocstore:
        """Return the store, which counts its reads."""
        return ObservedDocstore(docstore_of(*self.documents, self.parents), missing=self.missing, **options)


def _short(node: BaseNode) -> str:
    previous, next_ = (getattr(link, "node_id", None) for link in (node.prev_node, node.next_node))
    return f"{node.node_id} ({previous} < > {next_})"


@st.composite
def worlds(draw: st.DrawFn, *, tidy: bool | None = None, max_chunks: int = 8, parents: bool = False) -> World:
    """Draw a world.

    Args:
        draw: hypothesis.
        tidy: False to bend, cross and drop links and lose nodes; None for both kinds.
        max_chunks: maximum chunks of a document.
        parents: True to put parents over chunks, and headings and windows into some of them.
    """
    tidy = draw(st.booleans()) if tidy is None else tidy
    sizes = draw(st.lists(st.integers(1, max_chunks), min_size=1, max_size=3))
    offsets = draw(st.booleans())
    documents = [
        linked_document(
            _texts(draw, size, f"doc{number}") if parents else size,
            source_id=f"doc{number}",
            links="both" if tidy else draw(LINKS),
            offsets=offsets,
        )
        for number, size in enumerate(sizes)
    ]
    nodes = [node for document in documents for node in document]
    for node in nodes:
        node.metadata["tenant"] = draw(st.sampled_from(["a", "a", "b"]))
    above: list[TextNode] = []
    # Offsets of chunks with a parent count in the parent.
    if parents and not offsets and draw(st.booleans()):
        above = [parent for document in documents for parent in _parents(document, draw(st.integers(2, 4)))]
    missing: set[str] = set()
    if not tidy:
        for _ in range(draw(st.integers(0, 4))):
            _bend(draw, nodes)
        missing = {node.node_id for node in draw(st.lists(st.sampled_from([*nodes, *above]), max_size=2))}
    found = draw(st.lists(st.tuples(st.sampled_from(nodes), SCORES), max_size=6))
    hits = [NodeWithScore(node=node, score=score) for node, score in found]
    if not tidy and draw(st.booleans()):
        hits = [_without_relationships(hit) for hit in hits]
    return World(documents, hits, missing, tidy, above)


def _texts(draw: st.DrawFn, size: int, source_id: str) -> list[str]:
    """Make texts, some of which open with a heading."""
    headings = draw(st.lists(st.sampled_from(["", "", "# Part\n\n"]), min_size=size, max_size=size))
    return [f"{heading}This is chunk {number} of {source_id}.\n\n" for number, heading in enumerate(headings)]


def _parents(document: Sequence[TextNode], size: int) -> list[TextNode]:
    """Put a parent over each `size` chunks, and write the texts around each chunk into its metadata."""
    parents: list[TextNode] = []
    for start in range(0, len(document), size):
        children = document[start : start + size]
        text = "".join(child.text for child in children)
        parent = TextNode(id_=f"parent-of-{children[0].node_id}", text=text, metadata={"tenant": "a"})
        parent.relationships = {
            NodeRelationship.SOURCE: children[0].relationships[NodeRelationship.SOURCE],
            NodeRelationship.CHILD: [RelatedNodeInfo(node_id=child.node_id) for child in children],
        }
        for child in children:
            child.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id=parent.node_id)
            child.metadata["window"] = text
        parents.append(parent)
    return parents


def _without_relationships(hit: NodeWithScore) -> NodeWithScore:
    """Return a hit as a vector store does that keeps no relationships."""
    return NodeWithScore(node=hit.node.model_copy(update={"relationships": {}}), score=hit.score)


def _bend(draw: st.DrawFn, nodes: list[TextNode]) -> None:
    """Point one link somewhere else (to itself, into a ring, into another document, nowhere) or drop it."""
    node = draw(st.sampled_from(nodes))
    side = draw(st.sampled_from([NodeRelationship.PREVIOUS, NodeRelationship.NEXT]))
    target = draw(st.one_of(st.none(), st.just("nowhere"), st.sampled_from([n.node_id for n in nodes])))
    if target is None:
        node.relationships.pop(side, None)
    else:
        node.relationships[side] = RelatedNodeInfo(node_id=target)


def shuffled(hits: list[NodeWithScore], seed: int) -> list[NodeWithScore]:
    """Return the hits in another order."""
    hits = list(hits)
    random.Random(seed).shuffle(hits)
    return hits

"""Random stores for property tests: chains of several documents with every kind of wrong link."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import strategies as st
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from llama_index_ext_ctxaug.testing import ObservedDocstore, docstore_of, linked_document

SCORES = st.one_of(st.none(), st.sampled_from([0.0, -3.5, 0.9, 0.3, -0.1]), st.floats(-5, 5))
LINKS = st.sampled_from(["both", "both", "both", "previous", "next", "none"])


@dataclass
class World:
    """Documents in a store, and the hits that a retriever found in them.

    Attributes:
        documents: chunks of each document, in reading order.
        hits: retrieved nodes, repetitions included.
        missing: ids that the store does not have.
        tidy: True if every link is right and every node in the store.
    """

    documents: list[list[TextNode]]
    hits: list[NodeWithScore]
    missing: set[str] = field(default_factory=set)
    tidy: bool = True

    @property
    def nodes(self) -> dict[str, TextNode]:
        """Return all chunks by id."""
        return {node.node_id: node for document in self.documents for node in document}

    def store(self, **options: object) -> ObservedDocstore:
        """Return the store, which counts its reads."""
        return ObservedDocstore(docstore_of(*self.documents), missing=self.missing, **options)


@st.composite
def worlds(draw: st.DrawFn, *, tidy: bool | None = None, max_chunks: int = 8) -> World:
    """Draw a world; tidy ones have every link and node, others lack or bend links and lose nodes."""
    tidy = draw(st.booleans()) if tidy is None else tidy
    sizes = draw(st.lists(st.integers(1, max_chunks), min_size=1, max_size=3))
    offsets = draw(st.booleans())
    documents = [
        linked_document(
            size, source_id=f"doc{number}", links="both" if tidy else draw(LINKS), offsets=offsets
        )
        for number, size in enumerate(sizes)
    ]
    nodes = [node for document in documents for node in document]
    for node in nodes:
        node.metadata["tenant"] = draw(st.sampled_from(["a", "a", "b"]))
    missing: set[str] = set()
    if not tidy:
        for _ in range(draw(st.integers(0, 4))):
            _bend(draw, nodes)
        missing = {node.node_id for node in draw(st.lists(st.sampled_from(nodes), max_size=2))}
    found = draw(st.lists(st.tuples(st.sampled_from(nodes), SCORES), max_size=6))
    hits = [NodeWithScore(node=node, score=score) for node, score in found]
    if not tidy and draw(st.booleans()):
        hits = [_without_relationships(hit) for hit in hits]
    return World(documents, hits, missing, tidy)


def _without_relationships(hit: NodeWithScore) -> NodeWithScore:
    """Return the hit as a vector store without relationships does."""
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

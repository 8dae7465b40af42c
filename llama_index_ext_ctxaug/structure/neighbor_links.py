"""The PREVIOUS and NEXT that nodes should have: stated links first, then the reading order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from llama_index.core.schema import BaseNode, NodeRelationship

from llama_index_ext_ctxaug.passages.passage import Edge
from llama_index_ext_ctxaug.structure.document_order import ReadingOrder
from llama_index_ext_ctxaug.structure.link_problems import LinkProblem, ProblemKind
from llama_index_ext_ctxaug.structure.link_resolution import Chains
from llama_index_ext_ctxaug.structure.relationships import related_ids

_PREVIOUS, _NEXT = NodeRelationship.PREVIOUS, NodeRelationship.NEXT


@dataclass
class NeighborLinks:
    """The links that hold between nodes.

    Attributes:
        order: the nodes and their reading order.
        complete: True if a link to a node outside the order is wrong.
        chains: which node follows which.
        guesses: the links that only an order of insertion states.
    """

    order: ReadingOrder
    complete: bool = False
    chains: Chains = field(default_factory=Chains)
    guesses: set[Edge] = field(default_factory=set)
    _kept: dict[tuple[str, NodeRelationship], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take the links that hold, the best founded first, until no more can be taken."""
        claims = list(self._own_claims())
        stated = Counter(edge for edge, _, _ in claims)
        named = list(self._named_in_metadata())
        taken = -1
        while taken < len(self.chains.followers):
            taken = len(self.chains.followers)
            self._take(edge for edge, times in stated.items() if times > 1)
            self._take(stated)
            self._take(edge for edge, _ in named)
            for known, guessed in self.order.edges(self.chains.followers, self.guesses):
                self._take(known)
                self._take(guessed)
                followers = self.chains.followers
                self.guesses.update(edge for edge in guessed if followers.get(edge[0]) == edge[1])
        doubted = [claim for claim in claims if self._is_in_doubt(claim[0], claim[1])]
        for edge, node_id in named:
            self._is_in_doubt(edge, node_id)
        for (before, after), node_id, relationship in doubted:
            self._kept[node_id, relationship] = after if node_id == before else before
        self._check_offsets()

    @property
    def nodes(self) -> Mapping[str, BaseNode]:
        """The nodes by id."""
        return self.order.nodes

    @property
    def problems(self) -> dict[LinkProblem, None]:
        """The contradictions that were found."""
        return self.order.problems

    def links(self, node: BaseNode) -> dict[NodeRelationship, str | None]:
        """Return the ids that PREVIOUS and NEXT of a node should name."""
        id_ = node.node_id
        return {
            _PREVIOUS: self.chains.preceding.get(id_) or self._kept.get((id_, _PREVIOUS)),
            _NEXT: self.chains.followers.get(id_) or self._kept.get((id_, _NEXT)),
        }

    def _take(self, edges: Iterable[Edge]) -> None:
        """Take edges; those that run backward come last, so that a ring opens there."""
        positions = self.order.positions
        self.chains.take(sorted(edges, key=lambda edge: positions[edge[1]] <= positions[edge[0]]))

    def _own_claims(self) -> Iterable[tuple[Edge, str, NodeRelationship]]:
        for id_, node in self.nodes.items():
            for relationship in (_PREVIOUS, _NEXT):
                for other in related_ids(node, relationship)[:1]:
                    if self._may_follow(id_, other, relationship):
                        yield ((id_, other) if relationship == _NEXT else (other, id_)), id_, relationship

    def _named_in_metadata(self) -> Iterable[tuple[Edge, str]]:
        keys = self.order.keys
        for id_, node in self.nodes.items():
            for direction in ("previous", "next"):
                other = keys.named(node, direction)
                if other is not None and self._may_follow(id_, other, None):
                    yield ((id_, other) if direction == "next" else (other, id_)), id_

    def _may_follow(self, id_: str, other: str, relationship: NodeRelationship | None) -> bool:
        """Return True if a stated link can hold; keep one that leads to a node outside the order."""
        if other == id_:
            self.order.note("self", id_)
        elif other not in self.nodes:
            self.order.note("not_at_hand", id_, other)
            if relationship is not None and not self.complete:
                self._kept[id_, relationship] = other
                closed = self.chains.closed_ends if relationship == _NEXT else self.chains.closed_starts
                closed.add(id_)
        elif self.order.document(self.nodes[id_]) != self.order.document(self.nodes[other]):
            self.order.note("other_document", id_, other)
        else:
            return True
        return False

    def _is_in_doubt(self, edge: Edge, node_id: str) -> bool:
        """Report a stated link that was not taken; return True if only its rivals speak against it."""
        before, after = edge
        if self.chains.followers.get(before) == after:
            return False
        free = self.chains.is_free(edge)
        kind: ProblemKind = "ring" if self.chains.closes_ring(edge) else "doubt" if free else "contradiction"
        self.order.note(kind, node_id, after if node_id == before else before)
        return free

    def _check_offsets(self) -> None:
        measured, positions = self.order.measured, self.order.positions
        for before, after in self.chains.followers.items():
            if not (before in measured and after in measured and positions[before] > positions[after]):
                continue
            if self.order.are_siblings(self.nodes[before], self.nodes[after]):
                self.order.note("against_offsets", before, after)

"""Which node follows which: the links that nodes state, and those that the order of the nodes tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from llama_index.core.schema import BaseNode, NodeRelationship

from llama_index_ext_ctxaug.passages.passage import Edge
from llama_index_ext_ctxaug.structure.document_order import LinkProblem, ProblemKind, Sequences
from llama_index_ext_ctxaug.structure.relationships import related_ids


@dataclass
class Chains:
    """The links between nodes: stated ones first, then what the order of the nodes tells.

    Attributes:
        sequences: the nodes, and what tells their order beside links.
        complete: whether a link to a node that was not handed in is wrong.
        followers: the node behind each node, among those handed in.
        preceding: the inverse of `followers`.
    """

    sequences: Sequences
    complete: bool = False
    followers: dict[str, str] = field(default_factory=dict)
    preceding: dict[str, str] = field(default_factory=dict)
    _kept: dict[tuple[str, NodeRelationship], str] = field(default_factory=dict)
    _first_of: dict[str, str] = field(default_factory=dict)
    _last_of: dict[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> Mapping[str, BaseNode]:
        """The nodes by id."""
        return self.sequences.nodes

    @property
    def problems(self) -> dict[LinkProblem, None]:
        """What does not fit together."""
        return self.sequences.problems

    def links(self, node: BaseNode) -> dict[NodeRelationship, str | None]:
        """The ids that PREVIOUS and NEXT of a node should have."""
        id_ = node.node_id
        return {
            NodeRelationship.PREVIOUS: self.preceding.get(id_)
            or self._kept.get((id_, NodeRelationship.PREVIOUS)),
            NodeRelationship.NEXT: self.followers.get(id_) or self._kept.get((id_, NodeRelationship.NEXT)),
        }

    def build(self, metadata_keys: tuple[str, str]) -> None:
        """Take the links that hold, the best founded first, until no more can be taken."""
        claims = self._own_claims()
        stated = Counter(edge for edge, _, _ in claims)
        named = self._named_in_metadata(metadata_keys)
        grown = -1
        while grown < len(self.followers):
            grown = len(self.followers)
            self._take(edge for edge, times in stated.items() if times > 1)
            self._take(stated)
            self._take(edge for edge, _ in named)
            for edges in self.sequences.edges(self.followers):
                self._take(edges)
        doubted = [claim for claim in claims if self._is_in_doubt(claim[0], claim[1])]
        for edge, node_id in named:
            self._is_in_doubt(edge, node_id)
        for (before, after), node_id, relationship in doubted:
            self._kept[node_id, relationship] = after if node_id == before else before
        self._check_offsets()

    def _report(self, kind: ProblemKind, node_id: str, other_id: str | None = None) -> None:
        self.problems[LinkProblem(kind, node_id, other_id)] = None

    def _own_claims(self) -> list[tuple[Edge, str, NodeRelationship]]:
        claims: list[tuple[Edge, str, NodeRelationship]] = []
        for id_, node in self.nodes.items():
            for relationship in (NodeRelationship.PREVIOUS, NodeRelationship.NEXT):
                for other in related_ids(node, relationship)[:1]:
                    if self._may_follow(id_, other, relationship):
                        edge = (id_, other) if relationship == NodeRelationship.NEXT else (other, id_)
                        claims.append((edge, id_, relationship))
        return claims

    def _may_follow(self, id_: str, other: str, relationship: NodeRelationship | None) -> bool:
        """Whether a stated link can hold at all; what must stay as it is is noted."""
        if other == id_:
            self._report("self", id_)
            return False
        if other not in self.nodes:
            self._report("not_at_hand", id_, other)
            if relationship is not None and not self.complete:
                self._kept[id_, relationship] = other
            return False
        document = self.sequences.document
        if document(self.nodes[id_]) != document(self.nodes[other]):
            self._report("other_document", id_, other)
            return False
        return True

    def _named_in_metadata(self, keys: tuple[str, str]) -> list[tuple[Edge, str]]:
        named: list[tuple[Edge, str]] = []
        for id_, node in self.nodes.items():
            for key, forward in zip(keys, (False, True), strict=True):
                value = node.metadata.get(key)
                if value is None or value == "" or not self._may_follow(id_, str(value), None):
                    continue
                named.append(((id_, str(value)) if forward else (str(value), id_), id_))
        return named

    def _take(self, edges: Iterable[Edge]) -> None:
        """Take the edges whose ends are free and that no other of them disputes."""
        free = [edge for edge in dict.fromkeys(edges) if self._is_free(edge)]
        starts, ends = Counter(before for before, _ in free), Counter(after for _, after in free)
        positions = self.sequences.positions
        # Edges that run backward come last: where links make a ring, it is those that do not hold.
        for before, after in sorted(free, key=lambda edge: positions[edge[1]] <= positions[edge[0]]):
            if starts[before] == 1 and ends[after] == 1 and not self._closes_ring((before, after)):
                self.followers[before], self.preceding[after] = after, before
                first, last = self._first_of.pop(before, before), self._last_of.pop(after, after)
                self._first_of[last], self._last_of[first] = first, last

    def _is_free(self, edge: Edge) -> bool:
        before, after = edge
        return (
            before not in self.followers
            and after not in self.preceding
            and (before, NodeRelationship.NEXT) not in self._kept
            and (after, NodeRelationship.PREVIOUS) not in self._kept
            and not self._closes_ring(edge)
        )

    def _closes_ring(self, edge: Edge) -> bool:
        before, after = edge
        return self._first_of.get(before, before) == after

    def _is_in_doubt(self, edge: Edge, node_id: str) -> bool:
        """Report a stated link that was not taken; whether nothing speaks against it but its rivals."""
        before, after = edge
        if self.followers.get(before) == after:
            return False
        free = self._is_free(edge)
        kind: ProblemKind = "ring" if self._closes_ring(edge) else "doubt" if free else "contradiction"
        self._report(kind, node_id, after if node_id == before else before)
        return free

    def _check_offsets(self) -> None:
        measured, positions = self.sequences.measured, self.sequences.positions
        for before, after in self.followers.items():
            if not (before in measured and after in measured and positions[before] > positions[after]):
                continue
            if self.sequences.are_siblings(self.nodes[before], self.nodes[after]):
                self._report("against_offsets", before, after)

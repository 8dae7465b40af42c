"""The state of one call: hits, and the neighbors that walks from all hits reach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from llama_index.core.schema import BaseNode

from llama_index_ext_ctxaug.docstores.batch_reader import BatchReader, Search
from llama_index_ext_ctxaug.expansion.walk import (
    PREFETCH_HOPS,
    Filter,
    StopAfter,
    StopCondition,
    Walk,
    read_ahead,
    walk,
)
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.passages.passage import Chunk, Edge, Passage, StopReason
from llama_index_ext_ctxaug.passages.provenance import is_augmented
from llama_index_ext_ctxaug.passages.scores import best_first
from llama_index_ext_ctxaug.structure.adjacency import Adjacency
from llama_index_ext_ctxaug.structure.link_resolution import join
from llama_index_ext_ctxaug.structure.order_keys import Direction

UNBOUNDED = 1_000_000
"""More chunks than any document has, for a reach that only a stop condition ends."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The reach of one hit.

    Attributes:
        previous: maximum number of chunks before it.
        next: maximum number of chunks after it.
        stop: makes the stop condition of the walk in one direction; None for no condition.
        read_ahead: chunks on each side to read at once where the order of the document is known; None
            for as many as may be reached.
    """

    previous: int = 0
    next: int = 0
    stop: Callable[[Direction], StopCondition] | None = None
    read_ahead: int | None = None


@dataclass
class Expansion:
    """The chunks of one call: the hits, and what a policy adds to them.

    A policy calls `expand`, or `walk` and `take`, and may change `chunks` and `priority`. It adds nodes
    that it needed and could not get to `missing`, `refused` and `stops`, which are reported.

    Attributes:
        hits: the distinct hits by node id, by rank.
        links: finds neighbors, documents and parents of loaded nodes.
        chunks: hits and neighbors of the output by node id.
        priority: the worth of chunks to the token budget by node id, higher first; None for hits first,
            then the nearest neighbors.
        missing: ids that links name and the docstore does not have, in the order of the hits.
        refused: ids of nodes that a policy needed and could not use, with the reason.
        stops: number of walks that ended for each reason.
    """

    hits: Mapping[str, Chunk]
    links: Adjacency
    _filter: Filter | None = None
    chunks: dict[str, Chunk] = field(init=False)
    priority: Mapping[str, float] | None = None
    missing: dict[str, None] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    stops: Counter[str] = field(default_factory=Counter)
    _repaired: set[Edge] = field(default_factory=set, init=False)
    _joined: tuple[list[tuple[str, Chunk]], list[Passage]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.chunks = dict(self.hits)

    @property
    def reader(self) -> BatchReader:
        """The loaded nodes, and the way to load more."""
        return self.links.reader

    def refusal(self, node: BaseNode) -> StopReason | None:
        """Return why the filters refuse a node; None for one that may be added."""
        return None if self._filter is None else self._filter(node)

    def expand(self, reaches: Mapping[str, Reach]) -> Flow[None]:
        """Walk from hits, all side by side, and add what they reach to the chunks.

        Args:
            reaches: how far to expand, by the id of the hit. Other hits are not expanded, nor are nodes
                that an augmenter added or made, so that augmenting twice changes nothing.
        """
        self.take((yield from self.walk(reaches)))

    def walk(self, reaches: Mapping[str, Reach]) -> Flow[list[Walk]]:
        """Walk from hits as `expand` does without adding anything, so that a policy can shorten walks."""
        reaches = {id_: reach for id_, reach in reaches.items() if not is_augmented(self.hits[id_].node)}
        if self.links.repair:
            yield from self.reader.advance(self._read_ahead(reaches))
        return (yield from self.reader.advance(self._walks(reaches)))

    def take(self, walks: Sequence[Walk]) -> None:
        """Add what walks reached to the chunks, and record why they ended."""
        for one in walks:
            self.stops[one.stopped] += 1
            if one.missing_id is not None:
                self.missing[one.missing_id] = None
            self._repaired.update(one.repaired)
        for node_id, (hops, hit_ids) in self._reached(walks).items():
            self._add(node_id, hops, hit_ids)
        self._mark_ends(walks)

    def passages(self) -> list[Passage]:
        """Return the chunks in reading order, adjacent ones joined."""
        chunks = list(self.chunks.items())
        if self._joined is None or self._joined[0] != chunks:
            self._joined = (chunks, join(self.chunks, *self._edges()))
        return list(self._joined[1])

    def _reached(self, walks: Sequence[Walk]) -> dict[str, tuple[int, list[str]]]:
        """Return, for each neighbor, the hops from its nearest hit, and its hits, nearest first."""
        by_score = sorted(self.hits, key=lambda id_: best_first(self.hits[id_]))
        place = {id_: number for number, id_ in enumerate(by_score)}
        going = sorted(walks, key=lambda one: place[one.hit_id])  # of equally near hits the better one first
        reached: dict[str, tuple[int, list[str]]] = {}
        hops = 0
        while going := [one for one in going if len(one.node_ids) > hops]:
            for one in going:
                node_id = one.node_ids[hops]
                if node_id not in self.hits:
                    reached.setdefault(node_id, (hops + 1, []))[1].append(one.hit_id)
            hops += 1
        return reached

    def _read_ahead(self, reaches: Mapping[str, Reach]) -> Iterator[Search[None]]:
        """Read by document order if one hit reaches far: the others then cost no further round trips."""
        ahead: dict[str, tuple[int, int]] = {}
        for hit_id, reach in reaches.items():
            limit = UNBOUNDED if reach.read_ahead is None else reach.read_ahead
            ahead[hit_id] = (min(reach.previous, limit), min(reach.next, limit))
        if max(map(max, ahead.values()), default=0) >= PREFETCH_HOPS:
            for hit_id, (previous, next_) in ahead.items():
                yield read_ahead(self.links, self.hits[hit_id].node, previous, next_)

    def _walks(self, reaches: Mapping[str, Reach]) -> Iterator[Search[Walk]]:
        for hit_id, reach in reaches.items():
            node = self.hits[hit_id].node
            sides: tuple[tuple[Direction, int], ...] = (("previous", reach.previous), ("next", reach.next))
            for direction, count in sides:
                if count > 0:
                    stop = self._stop(reach.stop(direction) if reach.stop else None)
                    yield walk(
                        self.links, node, direction, count=count, stop=stop, ahead=reach.read_ahead or 0
                    )

    def _stop(self, policy: StopCondition | None) -> StopCondition | None:
        """Combine the filters, which do not apply to hits, with the condition of the policy."""
        hits, refusal = self.reader.hits, self._filter
        if refusal is None:
            return policy

        def stop(node: BaseNode) -> StopReason | StopAfter | None:
            refused = None if node.id_ in hits else refusal(node)
            return refused if refused or policy is None else policy(node)

        return stop

    def _add(self, node_id: str, hops: int, hit_ids: list[str]) -> None:
        node = self.reader.node(node_id)
        if node is None or node_id in self.chunks:
            return
        nearest = self.hits[hit_ids[0]]
        self.chunks[node_id] = Chunk(
            node=node,
            role="neighbor",
            hits=tuple(dict.fromkeys(hit_ids)),
            rank=nearest.rank,
            hops=hops,
            score=nearest.score,
        )

    def _mark_ends(self, walks: Sequence[Walk]) -> None:
        for one in walks:
            chunk = self.chunks.get(one.node_ids[-1] if one.node_ids else one.hit_id)
            if chunk is None:
                continue
            if one.direction == "previous":
                if chunk.stopped_previous in (None, "count"):
                    chunk.stopped_previous = one.stopped
            elif chunk.stopped_next in (None, "count"):
                chunk.stopped_next = one.stopped

    def _edges(self) -> tuple[list[Edge], list[Edge]]:
        """Return the edges that both nodes state, and those of one node, of walks, and of loaded nodes."""
        links = self.links
        known = {id_: links.relations(chunk.node) for id_, chunk in self.chunks.items()}
        agreed: list[Edge] = []
        claimed: list[Edge] = []
        ends: list[str] = []
        for id_, own in known.items():
            if own.next is None:
                ends.append(id_)
            elif (after := known.get(own.next)) is not None and after.document == own.document:
                (agreed if after.previous == id_ else claimed).append((id_, own.next))
            before = None if own.previous is None else known.get(own.previous)
            if before is not None and before.next != id_ and before.document == own.document:
                claimed.append((own.previous or "", id_))
        claimed.extend(self._repaired.difference(agreed, claimed))
        edges = (*agreed, *claimed) if ends else ()
        followed, preceded = {edge[0] for edge in edges}, {edge[1] for edge in edges}
        for id_ in ends:
            beside = None if id_ in followed else links.beside_loaded(self.chunks[id_].node, "next")
            if beside in known and beside not in preceded and known[beside].document == known[id_].document:
                claimed.append((id_, beside))
        return agreed, claimed

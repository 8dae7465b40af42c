"""Growing from many hits at once: every hit's neighbors, each node once, with its nearest hits."""

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
from llama_index_ext_ctxaug.structure.adjacency import Adjacency, Direction
from llama_index_ext_ctxaug.structure.link_resolution import join

UNBOUNDED = 1_000_000
"""A number of chunks that no document reaches, for expansion that only a limit ends."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far one hit grows.

    Attributes:
        previous: most chunks before it.
        next: most chunks after it.
        limit: makes, for one direction, what is asked before each node is taken; None for no limit.
        read_ahead: chunks on each side to read at once where the document's order is known; None for
            as many as may be reached.
    """

    previous: int = 0
    next: int = 0
    limit: Callable[[Direction], StopCondition] | None = None
    read_ahead: int | None = None


@dataclass
class Expansion:
    """The chunks of one call: the hits first, then what grows from them.

    Attributes:
        hits: the distinct hits by node id, in the order of their rank.
        links: where neighbors are found.
        passes: why a node may not be added, None for one that may; None where all may.
        chunks: hits and neighbors by node id; a policy may take chunks out or put others in.
        missing: ids that links name and the store does not have, in the order of the hits.
        refused: nodes that a policy needed and could not take, to be reported, each with the reason.
        stops: how often expansion ended for which reason.
        repaired: adjacencies that the nodes' own relationships do not state.
        priority: what each chunk is worth to a policy that fills a token budget by its own rule, the most
            first; None for hits first, then the nearest neighbors.
    """

    hits: Mapping[str, Chunk]
    links: Adjacency
    passes: Filter | None
    chunks: dict[str, Chunk] = field(init=False)
    missing: dict[str, None] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    stops: Counter[str] = field(default_factory=Counter)
    repaired: set[Edge] = field(default_factory=set)
    priority: Mapping[str, float] | None = None
    _joined: tuple[list[tuple[str, Chunk]], list[Passage]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.chunks = dict(self.hits)

    @property
    def reader(self) -> BatchReader:
        """The nodes in hand."""
        return self.links.reader

    def refusal(self, node: BaseNode) -> StopReason | None:
        """Why the filters refuse a node; None for one that may be added."""
        return None if self.passes is None else self.passes(node)

    def expand(self, reaches: Mapping[str, Reach]) -> Flow[None]:
        """Grow from hits, all side by side, and put what they reach among the chunks.

        Args:
            reaches: how far, by the hit's id; hits that are not named do not grow, nor do nodes that an
                augmenter added or made, so that augmenting twice is augmenting once.
        """
        self.take((yield from self.walk(reaches)))

    def walk(self, reaches: Mapping[str, Reach]) -> Flow[list[Walk]]:
        """Grow from hits as `grow` does, without adding anything: a policy may shorten the walks first."""
        reaches = {id_: reach for id_, reach in reaches.items() if not is_augmented(self.hits[id_].node)}
        if self.links.repair:
            yield from self.reader.advance(self._read_ahead(reaches))
        return (yield from self.reader.advance(self._tasks(reaches)))

    def take(self, walks: Sequence[Walk]) -> None:
        """Put what walks reached among the chunks, and note why they ended."""
        for one in walks:
            self.stops[one.stopped] += 1
            if one.missing_id is not None:
                self.missing[one.missing_id] = None
            if one.repaired:
                self.repaired.update(one.repaired)
        for node_id, (hops, hit_ids) in self._reached(walks).items():
            self._add(node_id, hops, hit_ids)
        self._mark_ends(walks)

    def _reached(self, walks: Sequence[Walk]) -> dict[str, tuple[int, list[str]]]:
        """The nodes that walks reached, with the hops from the nearest hit, and their hits, nearest first."""
        place = {
            id_: i for i, id_ in enumerate(sorted(self.hits, key=lambda id_: best_first(self.hits[id_])))
        }
        reached: dict[str, tuple[int, list[str]]] = {}
        going = sorted(walks, key=lambda one: place[one.hit_id])  # of equally near hits the better counts
        hops = 0
        while going := [one for one in going if len(one.node_ids) > hops]:
            for one in going:
                node_id = one.node_ids[hops]
                if node_id not in self.hits:
                    reached.setdefault(node_id, (hops + 1, []))[1].append(one.hit_id)
            hops += 1
        return reached

    def passages(self) -> list[Passage]:
        """The chunks in reading order, those that touch joined; joined anew only where chunks changed."""
        chunks = list(self.chunks.items())
        if self._joined is None or self._joined[0] != chunks:
            self._joined = (chunks, join(self.chunks, self._edges()))
        return list(self._joined[1])

    def _read_ahead(self, reaches: Mapping[str, Reach]) -> Iterator[Search[None]]:
        """Where one hit reaches far, all are read by the documents' order: others cost no more rounds."""
        ahead: dict[str, tuple[int, int]] = {}
        for hit_id, reach in reaches.items():
            most = UNBOUNDED if reach.read_ahead is None else reach.read_ahead
            ahead[hit_id] = (min(reach.previous, most), min(reach.next, most))
        if max(map(max, ahead.values()), default=0) >= PREFETCH_HOPS:
            for hit_id, (previous, next_) in ahead.items():
                yield read_ahead(self.links, self.hits[hit_id].node, previous, next_)

    def _tasks(self, reaches: Mapping[str, Reach]) -> Iterator[Search[Walk]]:
        for hit_id, reach in reaches.items():
            node = self.hits[hit_id].node
            sides: tuple[tuple[Direction, int], ...] = (("previous", reach.previous), ("next", reach.next))
            for direction, count in sides:
                if count > 0:
                    limit = reach.limit(direction) if reach.limit else None
                    yield walk(
                        self.links,
                        node,
                        direction,
                        count=count,
                        limit=self._limit(limit),
                        ahead=reach.read_ahead or 0,
                    )

    def _limit(self, policy: StopCondition | None) -> StopCondition | None:
        """The filters, which hits have passed already, and then the policy."""
        hits, passes = self.reader.hits, self.passes
        if passes is None:
            return policy

        def limit(node: BaseNode) -> StopReason | StopAfter | None:
            refused = None if node.id_ in hits else passes(node)
            return refused if refused or policy is None else policy(node)

        return limit

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

    def _edges(self) -> Iterator[Edge]:
        """What the chunks' links state, and what the ladder can tell of chunks without a link."""
        chunks, links = self.chunks, self.links
        known = {id_: links.relations(chunk.node) for id_, chunk in chunks.items()}
        stated: list[Edge] = []
        for id_, own in known.items():
            if own.previous in known and known[own.previous].document == own.document:
                stated.append((own.previous, id_))
            if own.next in known and known[own.next].document == own.document:
                stated.append((id_, own.next))
        yield from stated
        followed = {before for before, _ in stated}
        for edge in self.repaired.difference(stated):
            if edge[0] in chunks and edge[1] in chunks:
                yield edge
                followed.add(edge[0])
        for id_, own in known.items():
            if id_ not in followed and own.next is None:
                beside = links.beside_in_hand(chunks[id_].node, "next")
                if beside in known and known[beside].document == own.document:
                    yield (id_, beside)

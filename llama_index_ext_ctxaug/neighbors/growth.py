"""Growing from many hits at once: every hit's neighbors, each node once, with its nearest hits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.neighbors.links import Direction, Links
from llama_index_ext_ctxaug.neighbors.reading import NodeReader, Task
from llama_index_ext_ctxaug.neighbors.walking import Limit, Walk, walk
from llama_index_ext_ctxaug.passages.passage import Chunk, Edge, Passage, join
from llama_index_ext_ctxaug.passages.provenance import is_augmented
from llama_index_ext_ctxaug.passages.scores import score_key

UNBOUNDED = 1_000_000
"""A number of chunks that no document reaches, for growth that only a limit ends."""


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
    limit: Callable[[Direction], Limit] | None = None
    read_ahead: int | None = None


@dataclass
class Growth:
    """The chunks of one call: the hits first, then what grows from them.

    Attributes:
        hits: the distinct hits by node id, in the order of their rank.
        links: where neighbors are found.
        passes: whether a node may be added.
        chunks: hits and neighbors by node id; a policy may take chunks out or put others in.
        missing: ids that links name and the store does not have, in the order of the hits.
        stops: how often growth ended for which reason.
        repaired: adjacencies that the nodes' own relationships do not state.
    """

    hits: Mapping[str, Chunk]
    links: Links
    passes: Limit
    chunks: dict[str, Chunk] = field(init=False)
    missing: dict[str, None] = field(default_factory=dict)
    stops: Counter[str] = field(default_factory=Counter)
    repaired: set[Edge] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.chunks = dict(self.hits)

    @property
    def reader(self) -> NodeReader:
        """The nodes in hand."""
        return self.links.reader

    def grow(self, reaches: Mapping[str, Reach]) -> Flow[None]:
        """Grow from hits, all side by side, and put what they reach among the chunks.

        Args:
            reaches: how far, by the hit's id; hits that are not named do not grow, nor do nodes that an
                augmenter added or made, so that augmenting twice is augmenting once.
        """
        walks = yield from self.reader.advance(self._tasks(reaches))
        reached: dict[str, list[tuple[int, Chunk]]] = {}
        for one in walks:
            hit = self.hits[one.hit_id]
            self._note_end(one)
            self.repaired.update(one.repaired)
            for hops, node_id in enumerate(one.node_ids, start=1):
                if node_id not in self.hits:
                    reached.setdefault(node_id, []).append((hops, hit))
        for node_id, by in reached.items():
            self._add(node_id, by)
        self._mark_ends(walks)

    def passages(self) -> list[Passage]:
        """The chunks in reading order, those that touch joined."""
        return join(self.chunks, self._edges())

    def _tasks(self, reaches: Mapping[str, Reach]) -> Iterator[Task[Walk]]:
        for hit_id, reach in reaches.items():
            node = self.hits[hit_id].node
            if is_augmented(node):
                continue
            sides: tuple[tuple[Direction, int], ...] = (("previous", reach.previous), ("next", reach.next))
            for direction, count in sides:
                if count > 0:
                    limit = reach.limit(direction) if reach.limit else None
                    ahead = count if reach.read_ahead is None else reach.read_ahead
                    yield walk(
                        self.links, node, direction, count=count, limit=self._limit(limit), prefetch=ahead
                    )

    def _limit(self, policy: Limit | None) -> Limit:
        if policy is None:
            return self.passes
        return lambda node: self.passes(node) or policy(node)

    def _note_end(self, one: Walk) -> None:
        self.stops[one.stopped] += 1
        if one.missing_id is not None:
            self.missing[one.missing_id] = None

    def _add(self, node_id: str, by: list[tuple[int, Chunk]]) -> None:
        node = self.reader.node(node_id)
        if node is None or node_id in self.chunks:
            return
        if len(by) > 1:
            by.sort(key=_nearest_first)
        hops, nearest = by[0]
        self.chunks[node_id] = Chunk(
            node=node,
            role="neighbor",
            hits=tuple(dict.fromkeys(hit.node.node_id for _, hit in by)),
            rank=nearest.rank,
            hops=hops,
            score=nearest.score,
        )

    def _mark_ends(self, walks: list[Walk]) -> None:
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
        stated: list[Edge] = []
        for id_, chunk in chunks.items():
            own = links.relations(chunk.node)
            if own.previous in chunks and self._same_document(own.previous, id_):
                stated.append((own.previous, id_))
            if own.next in chunks and self._same_document(id_, own.next):
                stated.append((id_, own.next))
        yield from stated
        followed = {before for before, _ in stated}
        for edge in self.repaired.difference(stated):
            if edge[0] in chunks and edge[1] in chunks:
                yield edge
                followed.add(edge[0])
        for id_, chunk in chunks.items():
            if id_ not in followed:
                beside = links.beside_in_hand(chunk.node, "next")
                if beside is not None and beside in chunks and self._same_document(id_, beside):
                    yield (id_, beside)

    def _same_document(self, first: str, second: str) -> bool:
        links, chunks = self.links, self.chunks
        return links.document(chunks[first].node) == links.document(chunks[second].node)


def _nearest_first(reached: tuple[int, Chunk]) -> tuple[int, bool, float, int]:
    hops, hit = reached
    scored, score = score_key(hit.score)
    return (hops, not scored, -score, hit.rank)

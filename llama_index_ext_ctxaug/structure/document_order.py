"""The reading order of the nodes of each document, from everything except PREVIOUS and NEXT."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from llama_index.core.schema import BaseNode, Document, NodeRelationship

from llama_index_ext_ctxaug.passages.offsets import noted_span, text_of
from llama_index_ext_ctxaug.passages.passage import Edge
from llama_index_ext_ctxaug.structure.link_problems import LinkProblem, ProblemKind
from llama_index_ext_ctxaug.structure.order_keys import File, OrderKeys, whole_number
from llama_index_ext_ctxaug.structure.pages import files_of, pages_of
from llama_index_ext_ctxaug.structure.relationships import related_id, related_ids

MAX_BREAK = 2
"""Maximum characters between two chunks that leave no room for a third."""

_Family = tuple[str | None, str | None]
"""Source and parent."""

_NEIGHBORS = frozenset({NodeRelationship.PREVIOUS, NodeRelationship.NEXT})


@dataclass(slots=True)
class _Siblings:
    """Nodes under one parent or source.

    Attributes:
        above: id of the parent or source.
        nodes: the nodes in order, as far as it is known.
        edges: the pairs that directly follow one another.
        from_start: True if the first node is the first child.
        to_end: True if the last node is the last child.
        is_guess: True if nothing but the order of insertion gives the order.
    """

    above: str | None
    nodes: list[BaseNode]
    edges: list[Edge]
    from_start: bool
    to_end: bool
    is_guess: bool = False

    @property
    def have_parent(self) -> bool:
        return any(NodeRelationship.PARENT in node.relationships for node in self.nodes)


@dataclass
class ReadingOrder:
    """Nodes by document and level of the hierarchy, in reading order.

    Attributes:
        nodes: the nodes by id, in the order of their parser or of their insertion into a store.
        keys: the metadata that gives their order.
        trusted: True for the order of a parser. False for an order of insertion, which counts only among
            siblings that carry nothing that could confirm or contradict it.
        gaps: ids of nodes that a missing node may follow, in an order of insertion.
        problems: the contradictions that were found.
        positions: position of each node among all nodes, level by level.
        measured: ids of nodes whose character offsets give their place among their siblings.
    """

    nodes: Mapping[str, BaseNode]
    keys: OrderKeys
    trusted: bool = True
    gaps: Collection[str] = ()
    problems: dict[LinkProblem, None] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    measured: set[str] = field(default_factory=set)
    _given: dict[str, int] = field(default_factory=dict)
    _pages: dict[File, dict[str, int]] = field(default_factory=dict)
    _runs: list[list[_Siblings]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._given = {id_: place for place, id_ in enumerate(self.nodes)}
        self._order_pages()
        levels = self._levels()
        for key in sorted(levels, key=lambda key: key[1]):  # parents first: their places order the children
            run = self._in_order(levels[key])
            for siblings in run:
                for node in siblings.nodes:
                    self.positions[node.node_id] = len(self.positions)
            self._runs.append(run)
        for id_ in self.nodes:
            self.positions.setdefault(id_, len(self.positions))

    def document(self, node: BaseNode) -> str | File | None:
        """Return what identifies the document of a node: its file or its source; None if unknown."""
        file = self.keys.file(node.metadata)
        return file if file in self._pages else self._source(node)

    def are_siblings(self, first: BaseNode, second: BaseNode) -> bool:
        """Return True if two nodes have the same source and the same parent."""
        return self._family(first) == self._family(second)

    def edges(
        self, followers: Mapping[str, str], guesses: Collection[Edge]
    ) -> Iterator[tuple[list[Edge], list[Edge]]]:
        """Yield, level by level from the top, the pairs of nodes that directly follow one another.

        Args:
            followers: the links taken so far; those between parents decide over their children.
            guesses: those of them that are guesses.

        Yields:
            The pairs, and the pairs that are guesses.
        """
        for run in self._runs:
            known = [edge for siblings in run if not siblings.is_guess for edge in siblings.edges]
            guessed = [edge for siblings in run if siblings.is_guess for edge in siblings.edges]
            for first, second in self._adjacent(run, followers):
                if self._meet(first, second):
                    is_guess = first.is_guess or second.is_guess or (first.above, second.above) in guesses
                    edge = (first.nodes[-1].node_id, second.nodes[0].node_id)
                    (guessed if is_guess else known).append(edge)
            yield known, guessed

    @property
    def _whole(self) -> bool:
        """True if no node of the documents is missing."""
        return self.trusted or not self.gaps

    def _order_pages(self) -> None:
        """Order the sources of each file; those of a file that repeats a page label stay apart."""
        if not self.keys.document:
            return
        documents: dict[str, Mapping[str, Any]] = {}
        for node in self.nodes.values():
            documents.setdefault(self._source(node) or "", node.metadata)
        for file, ids in files_of(documents, self.keys).items():
            pages = pages_of(ids, documents, self.keys)
            order = pages.order
            if order.repeated:
                self.note("repeated_page", *(ids[place] for place in order.repeated))
                continue
            in_order = [ids[place] for place in order.places]
            self._pages[file] = {id_: place for place, id_ in enumerate(in_order)}
            for page, after in pairwise(in_order):
                if pages.difference(page, after):
                    self.note("differing_page", page, after)
            if pages.starts_late:
                self.note("cut_file", in_order[0])
            if pages.ends_early:
                self.note("cut_file", in_order[-1])

    def note(self, kind: ProblemKind, node_id: str, other_id: str | None = None) -> None:
        """Add a problem."""
        self.problems[LinkProblem(kind, node_id, other_id)] = None

    def _source(self, node: BaseNode) -> str | None:
        source = related_id(node, NodeRelationship.SOURCE)
        return source or (node.node_id if isinstance(node, Document) else None)

    def _above(self, node: BaseNode) -> str | None:
        """Return the id of the parent, else of the source if that is among the nodes."""
        parent = related_id(node, NodeRelationship.PARENT)
        if parent is not None:
            return parent
        source = related_id(node, NodeRelationship.SOURCE)
        return source if source in self.nodes else None

    def _level(self, node: BaseNode) -> int:
        level, seen = 0, {node.node_id}
        above = self._above(node)
        while above is not None and above not in seen:
            level += 1
            seen.add(above)
            above = self._above(self.nodes[above]) if above in self.nodes else None
        return level

    def _levels(self) -> dict[tuple[str | File, int], list[BaseNode]]:
        levels: dict[tuple[str | File, int], list[BaseNode]] = {}
        for node in self.nodes.values():
            document = self.document(node)
            if document is not None:
                levels.setdefault((document, self._level(node)), []).append(node)
        return levels

    def _in_order(self, nodes: list[BaseNode]) -> list[_Siblings]:
        groups: dict[_Family, list[BaseNode]] = {}
        for node in nodes:
            groups.setdefault(self._family(node), []).append(node)
        return [self._siblings(above, group) for (_, above), group in sorted(groups.items(), key=self._place)]

    def _family(self, node: BaseNode) -> _Family:
        return (self._source(node), self._above(node))

    def _place(self, group: tuple[_Family, list[BaseNode]]) -> tuple[int, int, int]:
        (source, above), nodes = group
        pages = self._pages.get(self.keys.file(nodes[0].metadata) or (), {})
        return (
            pages.get(source or "", -1),
            self.positions.get(above or "", -1),
            self._given[nodes[0].node_id],
        )

    def _siblings(self, above: str | None, nodes: list[BaseNode]) -> _Siblings:
        """Order siblings by the first source that orders them all."""
        children = self._children(above, nodes)
        if children:
            siblings = self._numbered(above, nodes, {id_: place for place, id_ in enumerate(children)})
            siblings.from_start = siblings.nodes[0].node_id == children[0]
            siblings.to_end = siblings.nodes[-1].node_id == children[-1]
            for id_ in (children[0], children[-1]):
                if id_ not in self.nodes:
                    self.note("not_at_hand", siblings.above or "", id_)
            return siblings
        numbers = self._numbers(nodes)
        if numbers is not None:
            return self._numbered(above, nodes, numbers)
        ordered = self._by_offsets(nodes)
        if ordered is not None:
            edges = _edges(pair for pair in pairwise(ordered) if self._whole or _touch(*pair))
            return _Siblings(above, ordered, edges, self._whole, self._whole)
        if self.trusted or len(nodes) < 2:
            return _Siblings(above, nodes, _edges(pairwise(nodes)), self._whole, self._whole)
        confirmed = self._confirmed(nodes)
        if confirmed is not None:
            return _Siblings(above, nodes, confirmed, from_start=False, to_end=False)
        edges = [edge for edge in _edges(pairwise(nodes)) if edge[0] not in self.gaps]
        return _Siblings(above, nodes, edges, self._whole, self._whole, is_guess=True)

    def _numbered(self, above: str | None, nodes: list[BaseNode], numbers: Mapping[str, int]) -> _Siblings:
        ordered = sorted(nodes, key=lambda node: numbers[node.node_id])
        edges = []
        for before, after in _edges(pairwise(ordered)):
            if numbers[after] - numbers[before] == 1:
                edges.append((before, after))
            else:
                self.note("hole", before, after)
        return _Siblings(above, ordered, edges, self._whole, self._whole)

    def _children(self, above: str | None, nodes: list[BaseNode]) -> list[str] | None:
        """Return the list of children of a loaded parent if it names each of these nodes once."""
        parent = self.nodes.get(above or "")
        children = related_ids(parent, NodeRelationship.CHILD) if parent is not None else []
        known = set(children)
        return children if len(known) == len(children) and all(n.node_id in known for n in nodes) else None

    def _numbers(self, nodes: list[BaseNode]) -> dict[str, int] | None:
        """Return the chunk numbers under the first key that gives each node a different one."""
        for key in self.keys.numbers:
            numbers = _numbers_under(key, nodes)
            if len(numbers) < len(nodes):
                continue
            if len(set(numbers.values())) == len(nodes):
                return numbers
            if key != self.keys.page:  # several chunks of one page are no contradiction
                self._report_repetition(numbers)
        return None

    def _report_repetition(self, numbers: Mapping[str, int]) -> None:
        first: dict[int, str] = {}
        for id_, number in numbers.items():
            other = first.setdefault(number, id_)
            if other != id_:
                self.note("repeated_number", id_, other)

    def _by_offsets(self, nodes: list[BaseNode]) -> list[BaseNode] | None:
        """Sort nodes by character offset; return None if the offsets cannot be trusted.

        Offsets of chunks that were cut from parts of a document count from the start of their part.
        """
        placed = {span.start: node for node in nodes if (span := noted_span(node)) is not None}
        if len(nodes) < 2 or len(placed) < len(nodes):
            return None
        in_order = sorted(placed.items(), key=lambda place: place[0])
        for (start, node), (after, other) in pairwise(in_order):
            text, following = text_of(node)[after - start :], text_of(other)
            if text[: len(following)] != following[: len(text)]:
                return None
        self.measured.update(node.node_id for node in nodes)
        return [node for _, node in in_order]

    def _confirmed(self, nodes: list[BaseNode]) -> list[Edge] | None:
        """Return the pairs that numbers and offsets of some nodes confirm; None without any evidence."""
        edges: list[Edge] = []
        evident = any(self._states_neighbor(node) for node in nodes)
        for key in self.keys.numbers:
            numbers = _numbers_under(key, nodes)
            ids = {number: id_ for id_, number in numbers.items()}
            if len(ids) == len(numbers):
                edges += [(id_, ids[number + 1]) for number, id_ in ids.items() if number + 1 in ids]
                evident = evident or bool(ids)
            else:  # several chunks of a page confirm nothing, but may contradict
                evident = evident or any(before > after for before, after in pairwise(numbers.values()))
        measured = [node for node in nodes if noted_span(node) is not None]
        if measured and len(measured) < len(nodes):
            evident = True
            edges += _edges(pair for pair in pairwise(self._by_offsets(measured) or ()) if _touch(*pair))
        return edges if evident else None

    def _states_neighbor(self, node: BaseNode) -> bool:
        named = self.keys.named(node, "previous") or self.keys.named(node, "next")
        return named is not None or not _NEIGHBORS.isdisjoint(node.relationships)

    def _adjacent(
        self, run: list[_Siblings], followers: Mapping[str, str]
    ) -> Iterator[tuple[_Siblings, _Siblings]]:
        """Yield families that follow one another: those of adjacent parents, else those in trusted order."""
        loaded = {siblings.above: siblings for siblings in run if siblings.above in self.nodes}
        for above, siblings in loaded.items():
            if (following := loaded.get(followers.get(above or ""))) is not None:
                yield siblings, following
        for first, second in pairwise(run):
            if self.trusted and not (first.above in loaded and second.above in loaded):
                yield first, second

    def _meet(self, first: _Siblings, second: _Siblings) -> bool:
        """Return True if the last of one family is directly followed by the first of the next."""
        kept_apart = not self.keys.across_parents and (first.have_parent or second.have_parent)
        return first.to_end and second.from_start and not kept_apart


def _numbers_under(key: str, nodes: Iterable[BaseNode]) -> dict[str, int]:
    numbers = ((node.node_id, whole_number(node.metadata.get(key))) for node in nodes)
    return {id_: number for id_, number in numbers if number is not None}


def _edges(pairs: Iterable[tuple[BaseNode, BaseNode]]) -> list[Edge]:
    return [(first.node_id, second.node_id) for first, second in pairs]


def _touch(first: BaseNode, second: BaseNode) -> bool:
    """Return True if a node starts within another or directly after it."""
    one, other = noted_span(first), noted_span(second)
    return one is not None and other is not None and one.start < other.start <= one.end + MAX_BREAK

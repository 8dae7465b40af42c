"""The reading order of the nodes of each document, from everything except PREVIOUS and NEXT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from llama_index.core.schema import BaseNode, Document, MetadataMode, NodeRelationship

from llama_index_ext_ctxaug.passages.passage import Edge
from llama_index_ext_ctxaug.structure.pages import page_key
from llama_index_ext_ctxaug.structure.relationships import related_id, related_ids

ProblemKind = Literal[
    "self",
    "other_document",
    "contradiction",
    "ring",
    "doubt",
    "not_at_hand",
    "repeated_number",
    "hole",
    "against_offsets",
]
"""Kinds of contradictions between nodes: see `LinkProblem`."""


class LinkProblem(NamedTuple):
    """A contradiction in the links or numbers of a document.

    Attributes:
        kind: one of
            "self" (a link to the node itself, removed),
            "other_document" (a link into another document, removed),
            "contradiction" (a link that a better founded one excludes, removed),
            "ring" (a link back into its own chain, removed),
            "doubt" (links that exclude each other with nothing to decide between them, kept),
            "not_at_hand" (a link to a node that was not passed in, kept unless documents are complete; the
            first or last child of a parent that was passed in),
            "repeated_number" (a chunk number that occurs twice, not used),
            "hole" (a missing chunk number or child, not linked over),
            "against_offsets" (a link that contradicts the character offsets, kept).
        node_id: id of the node with the problem.
        other_id: id of the node at the other end, if there is one.
    """

    kind: ProblemKind
    node_id: str
    other_id: str | None = None


_Family = tuple[str | None, str | None]
"""Source and parent."""


@dataclass(frozen=True, slots=True)
class OrderKeys:
    """The metadata that gives the order of nodes.

    Attributes:
        document: key whose equal values make several documents one; None for off.
        page: key that orders the documents of a file.
        numbers: keys of chunk numbers; the first that numbers all chunks is used.
        across_parents: True to continue from the last child of a parent to the first of the next.
    """

    document: str | None = None
    page: str = "page_label"
    numbers: Sequence[str] = ()
    across_parents: bool = True


@dataclass(slots=True)
class _Siblings:
    """Nodes under one parent or source, in order.

    Attributes:
        above: id of the parent or source.
        nodes: the nodes.
        steps: for each pair of neighbors, True if the second directly follows the first.
        from_start: True if the first node is the first child.
        to_end: True if the last node is the last child.
    """

    above: str | None
    nodes: list[BaseNode]
    steps: list[bool]
    from_start: bool = True
    to_end: bool = True

    @property
    def have_parent(self) -> bool:
        return any(NodeRelationship.PARENT in node.relationships for node in self.nodes)


@dataclass
class ReadingOrder:
    """Nodes by document and level of the hierarchy, in reading order.

    Attributes:
        nodes: the nodes by id, in the order in which they were passed in.
        keys: the metadata that gives their order.
        problems: the contradictions that were found.
        positions: position of each node among all nodes, level by level.
        measured: ids of nodes whose character offsets give their place among their siblings.
    """

    nodes: Mapping[str, BaseNode]
    keys: OrderKeys
    problems: dict[LinkProblem, None] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    measured: set[str] = field(default_factory=set)
    _given: dict[str, int] = field(default_factory=dict)
    _runs: list[list[_Siblings]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._given = {id_: place for place, id_ in enumerate(self.nodes)}
        levels = self._levels()
        for key in sorted(levels, key=lambda key: key[1]):  # parents first: their places order the children
            run = self._in_order(levels[key])
            for siblings in run:
                for node in siblings.nodes:
                    self.positions[node.node_id] = len(self.positions)
            self._runs.append(run)
        for id_ in self.nodes:
            self.positions.setdefault(id_, len(self.positions))

    def document(self, node: BaseNode) -> str | None:
        """Return what identifies the document of a node: its file or its source; None if unknown."""
        if self.keys.document and (file := node.metadata.get(self.keys.document)) is not None:
            return f"file {file}"
        source = related_id(node, NodeRelationship.SOURCE)
        return source or (node.node_id if isinstance(node, Document) else None)

    def are_siblings(self, first: BaseNode, second: BaseNode) -> bool:
        """Return True if two nodes have the same source and the same parent."""
        return self._family(first) == self._family(second)

    def edges(self, followers: Mapping[str, str]) -> Iterator[list[Edge]]:
        """Yield, level by level from the top, the pairs of nodes that directly follow one another.

        Args:
            followers: the links taken so far; those between parents decide over their children.
        """
        for run in self._runs:
            edges: list[Edge] = []
            for siblings in run:
                ids = [node.node_id for node in siblings.nodes]
                edges += [pair for pair, step in zip(pairwise(ids), siblings.steps, strict=True) if step]
            for first, second in pairwise(run):
                if self._meet(first, second, followers):
                    edges.append((first.nodes[-1].node_id, second.nodes[0].node_id))
            yield edges

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

    def _levels(self) -> dict[tuple[str, int], list[BaseNode]]:
        levels: dict[tuple[str, int], list[BaseNode]] = {}
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
        return (related_id(node, NodeRelationship.SOURCE), self._above(node))

    def _place(self, group: tuple[_Family, list[BaseNode]]) -> tuple[Any, ...]:
        (_, above), nodes = group
        page = page_key(nodes[0].metadata.get(self.keys.page, "")) if self.keys.document else None
        return (page, self.positions.get(above or "", -1), self._given[nodes[0].node_id])

    def _siblings(self, above: str | None, nodes: list[BaseNode]) -> _Siblings:
        numbers, total = self._child_places(above, nodes), None
        if numbers is not None and above is not None:
            children = related_ids(self.nodes[above], NodeRelationship.CHILD)
            total = len(children)
            for id_ in (children[0], children[-1]):
                if id_ not in self.nodes:
                    self.problems[LinkProblem("not_at_hand", above, id_)] = None
        else:
            numbers = self._numbers(nodes)
        if numbers is None:
            ordered = self._by_offsets(nodes) or nodes
            return _Siblings(above, ordered, [True] * (len(ordered) - 1))
        ordered = sorted(nodes, key=lambda node: numbers[node.node_id])
        places = [numbers[node.node_id] for node in ordered]
        steps = [after - before == 1 for before, after in pairwise(places)]
        for (node, following), step in zip(pairwise(ordered), steps, strict=True):
            if not step:
                self.problems[LinkProblem("hole", node.node_id, following.node_id)] = None
        return _Siblings(
            above,
            ordered,
            steps,
            from_start=total is None or places[0] == 0,
            to_end=total is None or places[-1] + 1 == total,
        )

    def _child_places(self, above: str | None, nodes: list[BaseNode]) -> dict[str, int] | None:
        parent = self.nodes.get(above or "")
        if parent is None:
            return None
        children = related_ids(parent, NodeRelationship.CHILD)
        places = {id_: place for place, id_ in enumerate(children)}
        known = len(places) == len(children) and all(node.node_id in places for node in nodes)
        return places if known else None

    def _numbers(self, nodes: list[BaseNode]) -> dict[str, int] | None:
        """Return the chunk numbers under the first key that gives each node a different one."""
        for key in self.keys.numbers:
            numbers = {node.node_id: _whole_number(node.metadata.get(key)) for node in nodes}
            found = {id_: number for id_, number in numbers.items() if number is not None}
            if len(found) < len(nodes):
                continue
            if len(set(found.values())) == len(nodes):
                return found
            if key != self.keys.page:  # several chunks of one page are no contradiction
                self._report_repetition(found)
        return None

    def _report_repetition(self, numbers: Mapping[str, int]) -> None:
        first: dict[int, str] = {}
        for id_, number in numbers.items():
            other = first.setdefault(number, id_)
            if other != id_:
                self.problems[LinkProblem("repeated_number", id_, other)] = None

    def _by_offsets(self, nodes: list[BaseNode]) -> list[BaseNode] | None:
        """Sort nodes by character offset; return None if the offsets cannot be trusted."""
        starts = [getattr(node, "start_char_idx", None) for node in nodes]
        if len(nodes) < 2 or None in starts or len(set(starts)) < len(nodes):
            return None
        ordered = sorted(nodes, key=lambda node: getattr(node, "start_char_idx", 0))
        if not _offsets_hold(ordered):
            return None
        self.measured.update(node.node_id for node in ordered)
        return ordered

    def _meet(self, first: _Siblings, second: _Siblings, followers: Mapping[str, str]) -> bool:
        """Return True if the last of one group is directly followed by the first of the next."""
        if not (first.to_end and second.from_start):
            return False
        if not self.keys.across_parents and (first.have_parent or second.have_parent):
            return False
        if first.above in self.nodes and second.above in self.nodes:
            return followers.get(first.above or "") == second.above
        return True


def _offsets_hold(nodes: list[BaseNode]) -> bool:
    """Return True if offsets match text lengths, and the texts agree where two ranges overlap.

    Offsets of chunks that were cut from parts of a document count from the start of their part.
    """
    spans = [span for node in nodes if (span := _span(node)) is not None]
    return len(spans) == len(nodes) and all(
        first[start - first_start :][: len(second)] == second[: first_end - start]
        for (first_start, first_end, first), (start, _, second) in pairwise(spans)
        if start < first_end
    )


def _span(node: BaseNode) -> tuple[int, int, str] | None:
    start, end = getattr(node, "start_char_idx", None), getattr(node, "end_char_idx", None)
    text = node.get_content(metadata_mode=MetadataMode.NONE)
    return None if start is None or end is None or end - start != len(text) else (start, end, text)


def _whole_number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str):
        return int(value) if value.strip().isdecimal() else None
    return value if isinstance(value, int) else None

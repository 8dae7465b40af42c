"""Which node comes before, after or above another: a ladder of link sources, the first that answers.

1. the node's own relationship;
2. the relationship of the store's copy of that node (a vector store may have dropped it);
3. the parent's list of children;
4. the document's list of nodes in the store, a hint that the nodes' own links must confirm;
5. ids in metadata (`prev_id`/`next_id`, AutoRAG's convention);
6. with `document_key`: the neighboring page of the same file.

Every search is a `Search`: it yields what it wants in hand and reads nothing itself, so that the
searches of all hits advance together and share each read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from llama_index.core.schema import BaseNode, NodeRelationship, TextNode

from llama_index_ext_ctxaug.docstores.batch_reader import BatchReader, ReadRequest, Search
from llama_index_ext_ctxaug.structure.pages import PageOrder
from llama_index_ext_ctxaug.structure.relationships import Relations, related_ids, relations

Direction = Literal["previous", "next"]

MAX_DOCUMENT_SCAN = 1000
"""Most chunks of one document that are read to find a link that the document's list has out of order."""

_OPPOSITE: Mapping[Direction, Direction] = {"previous": "next", "next": "previous"}
_STEP: Mapping[Direction, int] = {"previous": -1, "next": 1}


class Follower(NamedTuple):
    """What a search for the node beside another found.

    Attributes:
        node_id: id of the node beside it; None where the document ends.
        repaired: whether another source than the node's own relationship gave the answer.
    """

    node_id: str | None
    repaired: bool = False


@dataclass
class Adjacency:
    """The ladder, over the nodes that one call has in hand.

    Attributes:
        reader: nodes in hand.
        repair: whether to go on to rungs 2 to 6 where a node has no link of its own.
        previous_key: metadata key of the id before, rung 5.
        next_key: metadata key of the id after, rung 5.
        pages: order of the pages of a file, rung 6; None where each document stands alone.
    """

    reader: BatchReader
    repair: bool = True
    previous_key: str = "prev_id"
    next_key: str = "next_id"
    pages: PageOrder | None = None
    _relations: dict[str, Relations] = field(default_factory=dict)
    _scanned: dict[tuple[str, Direction], dict[str, str]] = field(default_factory=dict)

    def relations(self, node: BaseNode) -> Relations:
        """Rungs 1 and 2: what the node's own relationships name, else those of the store's copy of it.

        With `document_key` its document is the file, where pages count as one.
        """
        node_id = node.id_
        known = self._relations.get(node_id)
        if known is not None:
            return known
        own = relations(node)
        copy = self.reader.stored.get(node_id)
        if copy is not None and copy is not node:
            own = own.filled_from(relations(copy))
        if self.pages and (file := self.pages.file(node)) is not None:
            own = own._replace(document=file)
        self._relations[node_id] = own
        return own

    def with_copy(self, node: BaseNode, also: ReadRequest = ReadRequest()) -> Search[Relations]:  # noqa: B008
        """Bring the store's copy of a node into hand, with what else is wanted; its relations after that."""
        yield also._replace(copies=(node.id_,))
        return self.reread(node)

    def reread(self, node: BaseNode) -> Relations:
        """Return the relations of a node whose stored copy has been loaded since."""
        self._relations.pop(node.id_, None)
        return self.relations(node)

    def source(self, node: BaseNode) -> str | None:
        """The id of the source document, from the store's copy where the node has lost it."""
        return self.relations(node).source

    def document(self, node: BaseNode) -> str | None:
        """What tells documents apart: the source document, or the file where pages count as one."""
        return self.relations(node).document

    def link(self, node: BaseNode, direction: Direction) -> str | None:
        """The id that PREVIOUS or NEXT names, from the store's copy where the node has lost it."""
        own = self.relations(node)
        return own.next if direction == "next" else own.previous

    def parent(self, node: BaseNode) -> str | None:
        """The id of the parent, from the store's copy where the node has lost it."""
        return self.relations(node).parent

    def beside(self, node: BaseNode, direction: Direction) -> Search[Follower]:
        """Search for the node beside this one.

        Args:
            node: a node in hand.
            direction: towards the start ("previous") or the end ("next") of the document.

        Returns:
            The id that was found; the node itself has not been read yet.
        """
        id_ = self.link(node, direction)
        if id_ is not None:
            return Follower(id_)
        if not self.repair:
            return Follower(None)
        yield from self.with_copy(node, self.needed(node, direction))
        id_ = self.link(node, direction)
        if id_ is None:
            id_ = yield from self._among_siblings(node, direction)
        if id_ is None:
            id_ = yield from self._in_document_order(node, direction)
        if id_ is None:
            id_ = self._named_in_metadata(node, direction)
        if id_ is None and self.pages:
            id_ = yield from self.pages.across(node, _STEP[direction], self.source(node))
        return Follower(id_, repaired=True)

    def needed(self, node: BaseNode, direction: Direction) -> ReadRequest:
        """All that the rungs ask for: reading on suspicion costs a key, reading in turn a round trip."""
        ids = (
            self.parent(node),
            self.link(node, _OPPOSITE[direction]),
            self._named_in_metadata(node, direction),
        )
        source = self.source(node)
        return ReadRequest(
            nodes=[id_ for id_ in ids if id_ is not None],
            documents=() if source is None or self.reader.lists_are_costly else (source,),
        )

    def beside_in_hand(self, node: BaseNode, direction: Direction) -> str | None:
        """The node beside this one as far as it can be told without reading."""
        search = self.beside(node, direction)
        try:
            while True:
                next(search)
        except StopIteration as stop:
            follower: Follower = stop.value
            return follower.node_id

    def _among_siblings(self, node: BaseNode, direction: Direction) -> Search[str | None]:
        parent_id = self.parent(node)
        if parent_id is None:
            return None
        yield ReadRequest(nodes=(parent_id,))
        parent = self.reader.node(parent_id)
        if parent is None:
            return None
        siblings = related_ids(parent, NodeRelationship.CHILD)
        return _at(siblings, node.node_id, _STEP[direction])

    def _in_document_order(self, node: BaseNode, direction: Direction) -> Search[str | None]:
        """The document's list of nodes, where links confirm it; else the node whose link names this one."""
        source = self.source(node)
        if source is None or self._ends_here(node, direction):
            return None
        yield ReadRequest(documents=(source,))
        order = self.reader.documents.get(source)
        if order is None or len(order.ids) < 2:
            return None
        place = order.places.get(node.node_id)
        if place is not None:
            beside = place + _STEP[direction]
            if 0 <= beside < len(order.ids):
                yield ReadRequest(nodes=(order.ids[beside],))
                candidate = self.reader.node(order.ids[beside])
                if candidate is not None and self._confirms(node, candidate, direction):
                    return candidate.node_id
            elif self._unlinked(node) and not _has_offsets(node):
                inward = order.ids[place - _STEP[direction]]
                yield ReadRequest(nodes=(inward,))
                inner = self.reader.node(inward)
                if inner is not None and inward != node.node_id and self._unlinked(inner):
                    return None  # no node has links, so the list's end is the document's
        start = max(0, min((place or 0) - MAX_DOCUMENT_SCAN // 2, len(order.ids) - MAX_DOCUMENT_SCAN))
        document = ReadRequest(nodes=order.ids[start : start + MAX_DOCUMENT_SCAN])
        yield document
        if self.reader.lacks(document):
            return None
        return self._scan(source, direction).get(node.node_id)

    def _ends_here(self, node: BaseNode, direction: Direction) -> bool:
        """Whether the document is linked both ways, or parted by parents, so that no link is an end."""
        back = self.link(node, _OPPOSITE[direction])
        before = self.reader.node(back) if back else None
        if before is not None and self.link(before, direction) == node.node_id:
            return True
        parent_id = self.parent(node)
        parent = self.reader.node(parent_id) if parent_id else None
        return parent is not None and node.node_id in related_ids(parent, NodeRelationship.CHILD)

    def _unlinked(self, node: BaseNode) -> bool:
        own = self.relations(node)
        return own.previous is None and own.next is None

    def _related(self, node: BaseNode, other: BaseNode) -> bool:
        return self.source(node) == self.source(other) and self.parent(node) == self.parent(other)

    def _confirms(self, node: BaseNode, candidate: BaseNode, direction: Direction) -> bool:
        if not self._related(node, candidate):
            return False
        if self.link(candidate, _OPPOSITE[direction]) == node.node_id:
            return True
        if not (self._unlinked(node) and self._unlinked(candidate)):
            return False
        first, second = (node, candidate) if direction == "next" else (candidate, node)
        return not (_has_offsets(first) and _has_offsets(second)) or _touch(first, second)

    def _scan(self, source: str, direction: Direction) -> dict[str, str]:
        """For the nodes in hand of a document: which of them stands beside which, by links or offsets."""
        key = (source, direction)
        if key not in self._scanned:
            order = self.reader.documents[source]
            ids = order.ids if order else ()
            nodes = [node for id_ in ids if (node := self.reader.node(id_)) is not None]
            found: dict[str, str] = {}
            for node in nodes:
                named = self.link(node, _OPPOSITE[direction])
                if named is not None and self.source(node) == source:
                    found.setdefault(named, node.node_id)
            loose = [node for node in nodes if self._unlinked(node) and _has_offsets(node)]
            loose.sort(key=_start, reverse=direction == "previous")
            last_of_parent: dict[str | None, str] = {}
            for node in loose:
                parent = self.parent(node)
                if parent in last_of_parent:
                    found.setdefault(last_of_parent[parent], node.node_id)
                last_of_parent[parent] = node.node_id
            self._scanned[key] = found
        return self._scanned[key]

    def _named_in_metadata(self, node: BaseNode, direction: Direction) -> str | None:
        key = self.previous_key if direction == "previous" else self.next_key
        value = node.metadata.get(key)
        if value is None and (copy := self.reader.copy(node.node_id)):
            value = copy.metadata.get(key)
        if value is None or value == "" or str(value) == node.node_id:
            return None
        return str(value)


def _at(ids: Sequence[str], node_id: str, step: int) -> str | None:
    try:
        place = ids.index(node_id) + step
    except ValueError:
        return None
    return ids[place] if 0 <= place < len(ids) else None


def _has_offsets(node: BaseNode) -> bool:
    return isinstance(node, TextNode) and node.start_char_idx is not None and node.end_char_idx is not None


def _start(node: BaseNode) -> int:
    return getattr(node, "start_char_idx", None) or 0


def _touch(first: BaseNode, second: BaseNode) -> bool:
    """Whether the second starts inside the first or just behind it (white space may lie between)."""
    end = getattr(first, "end_char_idx", None) or 0
    return _start(first) < _start(second) <= end + 2

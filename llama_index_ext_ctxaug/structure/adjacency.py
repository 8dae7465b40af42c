"""The node before, after or above another: a ladder of sources; the first that answers counts.

1. the node's own relationship;
2. the relationship of the store's copy of the node, since a vector store may have dropped it;
3. the parent's list of children, and at its edge the children of the next parent;
4. ids in metadata;
5. the document's list of nodes in the store, where links, numbers or offsets confirm it; as a guess
   where nodes carry nothing that could confirm or contradict it;
6. with document keys, the neighboring page of the file.

Each search is a `Search`: it yields what it needs loaded and reads nothing itself, so that the searches
of all hits advance together and share each read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from llama_index.core.schema import BaseNode, NodeRelationship

from llama_index_ext_ctxaug.docstores.batch_reader import BatchReader, ReadRequest, Search
from llama_index_ext_ctxaug.passages.passage import Edge
from llama_index_ext_ctxaug.structure.file_pages import FilePages
from llama_index_ext_ctxaug.structure.order_keys import Direction, File, OrderKeys
from llama_index_ext_ctxaug.structure.relationships import Relations, related_ids, relations
from llama_index_ext_ctxaug.structure.stored_order import StoredOrders

_OPPOSITE: Mapping[Direction, Direction] = {"previous": "next", "next": "previous"}
_STEP: Mapping[Direction, int] = {"previous": -1, "next": 1}


class Follower(NamedTuple):
    """The result of a search for the node beside another.

    Attributes:
        node_id: id of the node beside it, which need not be loaded; None if the document ends.
        repaired: True if another source than the node's own relationship gave the answer.
    """

    node_id: str | None
    repaired: bool = False


@dataclass
class Adjacency:
    """The ladder, over the nodes loaded during one call.

    Attributes:
        reader: the loaded nodes.
        keys: metadata keys that give the document of a node and its place there.
        repair: whether to go on from rung 1 where a node has no link of its own.
        guesses: the answers that only an order of insertion gave.
        unknown: the same that were not taken, because the store keeps no order of insertion.
    """

    reader: BatchReader
    keys: OrderKeys = field(default_factory=OrderKeys)
    repair: bool = True
    guesses: dict[Edge, None] = field(default_factory=dict)
    unknown: dict[Edge, None] = field(default_factory=dict)
    _relations: dict[str, Relations] = field(default_factory=dict)
    _orders: StoredOrders = field(init=False)
    _pages: FilePages = field(init=False)

    def __post_init__(self) -> None:
        self._orders = StoredOrders(self.reader, self.keys)
        self._pages = FilePages(self.reader, self.keys, self._orders)

    def relations(self, node: BaseNode) -> Relations:
        """Return the ids that a node's own relationships name, completed from the store's copy of it."""
        node_id = node.id_
        known = self._relations.get(node_id)
        if known is not None:
            return known
        own = relations(node)
        copy = self.reader.stored.get(node_id)
        if copy is not None and copy is not node:
            own = own.filled_from(relations(copy))
        if self.keys.document and (file := self.keys.file(node.metadata)) is not None:
            own = own._replace(document=file)
        self._relations[node_id] = own
        return own

    def with_copy(self, node: BaseNode, also: ReadRequest = ReadRequest()) -> Search[Relations]:  # noqa: B008
        """Load the store's copy of a node, with what else is requested; return its relations then."""
        yield also._replace(copies=(node.id_,))
        return self.reread(node)

    def reread(self, node: BaseNode) -> Relations:
        """Return the relations of a node after its stored copy has been loaded."""
        self._relations.pop(node.id_, None)
        return self.relations(node)

    def source(self, node: BaseNode) -> str | None:
        """Return the id of the source document."""
        return self.relations(node).source

    def document(self, node: BaseNode) -> str | File:
        """Return what identifies the document: the file, the source, or the node itself if unknown."""
        return self.relations(node).document or node.node_id

    def link(self, node: BaseNode, direction: Direction) -> str | None:
        """Return the id that PREVIOUS or NEXT names."""
        own = self.relations(node)
        return own.next if direction == "next" else own.previous

    def parent(self, node: BaseNode) -> str | None:
        """Return the id of the parent."""
        return self.relations(node).parent

    def beside(
        self, node: BaseNode, direction: Direction, ahead: int = 1, below: frozenset[str] = frozenset()
    ) -> Search[Follower]:
        """Search for the node beside a loaded one.

        Args:
            node: the node.
            direction: towards the start ("previous") or the end ("next") of the document.
            ahead: maximum pages to load at once where the page of the node ends.
            below: ids of nodes on the way up to this one.
        """
        id_ = self.link(node, direction)
        if id_ is not None or not self.repair:
            return Follower(id_)
        yield from self.with_copy(node, self.needed(node, direction))
        yield self.needed(node, direction)  # by what the copy alone names, such as the parent
        id_ = self.link(node, direction)
        if id_ is None and node.node_id in self._siblings(node):
            id_ = yield from self._in_family(node, direction, ahead, below)
        elif id_ is None:
            id_ = self._named(node, direction)
            id_ = id_ or (yield from self._in_document(node, direction))
            id_ = id_ or (yield from self._on_next_page(node, direction, ahead))
        return Follower(id_, repaired=True)

    def beside_loaded(self, node: BaseNode, direction: Direction) -> str | None:
        """Return the node beside another as far as loaded nodes give it."""
        return (
            self.link(node, direction)
            or self._sibling(node, direction)
            or self._named(node, direction)
            or self._resolved(node, direction)
        )

    def needed(self, node: BaseNode, direction: Direction) -> ReadRequest:
        """Return what rungs 2 to 5 ask for at first: a key too many costs less than a round trip."""
        ids = (self.parent(node), self.link(node, _OPPOSITE[direction]), self._named(node, direction))
        source = self.source(node)
        return ReadRequest(
            nodes=[id_ for id_ in ids if id_ is not None],
            documents=() if source is None or self.reader.lists_are_costly else (source,),
        )

    def listed(self, node: BaseNode, previous: int, next_: int) -> Sequence[str]:
        """Return ids around a node in the document's list, if that is loaded."""
        order = self.reader.documents.get(self.source(node) or "")
        place = order.places.get(node.node_id) if order else None
        if order is None or place is None:
            return ()
        return order.ids[max(0, place - previous) : place + next_ + 1]

    def page_places(self, nodes: Sequence[BaseNode]) -> list[int] | None:
        """Order nodes of different pages of one document, given by rank.

        Returns:
            Their indexes in reading order; None if the pages are kept apart.
        """
        file = self.keys.file(nodes[0].metadata)
        return list(range(len(nodes))) if file is None else self._pages.places(file, nodes)

    def warnings(self) -> Iterator[str]:
        """Yield what a user should know of the answers: guesses, and files that are kept apart."""
        if self.guesses:
            (before, after), *_ = self.guesses
            yield (
                f"{len(self.guesses)} neighbors are a guess by order of insertion, since their nodes have "
                f"no links, numbers or offsets (the first: {after!r} after {before!r}); link the nodes with "
                "NeighborLinker before they are stored"
            )
        if self.unknown:
            yield (
                f"{len(self.unknown)} neighbors are unknown, since their nodes have no links, numbers or "
                "offsets, and a vector store keeps no order of insertion; link the nodes with NeighborLinker "
                "before they are stored"
            )
        for file in self._pages.unordered:
            yield (
                f"the order of some pages of {file!r} is unknown, since {self.keys.page!r} does not number "
                "them all and the store keeps no order of insertion; name the key of page numbers in page_key"
            )
        for file, (first, second) in self._pages.same_label.items():
            yield (
                f"documents {first!r} and {second!r} of the file {file!r} have the same {self.keys.page}, so "
                "its pages are kept apart; name more metadata keys in document_key, such as a tenant's"
            )
        for named, file in self._pages.namesakes.items():
            yield (
                f"documents with the document_key {named!r} are of several files: one has "
                f"{', '.join(file[len(named) :])} in its metadata; name that key in document_key too"
            )
        for file, (first, second, key) in self._pages.doubtful.items():
            yield (
                f"documents {first!r} and {second!r} count as pages of the file {file!r} though they differ "
                f"in {key!r}; name it in document_key if it tells files apart"
            )

    def _siblings(self, node: BaseNode) -> Sequence[str]:
        """Return the children of a node's parent, if that is loaded."""
        parent_id = self.parent(node)
        parent = self.reader.node(parent_id) if parent_id is not None else None
        return related_ids(parent, NodeRelationship.CHILD) if parent is not None else ()

    def _sibling(self, node: BaseNode, direction: Direction) -> str | None:
        siblings = self._siblings(node)
        if node.node_id not in siblings:
            return None
        place = siblings.index(node.node_id) + _STEP[direction]
        return siblings[place] if 0 <= place < len(siblings) else None

    def _in_family(
        self, node: BaseNode, direction: Direction, ahead: int, below: frozenset[str]
    ) -> Search[str | None]:
        """Search for the sibling in the parent's list, or at its edge for a child of the next parent."""
        id_ = self._sibling(node, direction)
        if id_ is None and self.keys.across_parents:
            id_ = yield from self._in_next_family(node, direction, ahead, below)
            id_ = id_ or self._named(node, direction) or self._resolved(node, direction)
        return id_

    def _in_next_family(
        self, node: BaseNode, direction: Direction, ahead: int, below: frozenset[str]
    ) -> Search[str | None]:
        parent = self.reader.node(self.parent(node) or "")
        if parent is None or parent.node_id in below:
            return None
        above = self.relations(parent)
        if self._is_linked_both_ways(node, direction) and not (above.previous or above.next or above.parent):
            return None  # parents that nothing orders need not be searched, where the children are linked
        # The list often has what the next steps need, so that all of them take one read.
        near = (*self.listed(node, 1, 1), *self.listed(parent, 1, 1))
        yield ReadRequest(nodes=(*near, *self.needed(parent, direction).nodes))
        next_id, _ = yield from self.beside(parent, direction, ahead, below | {node.node_id})
        if next_id is None:
            return None
        yield ReadRequest(nodes=(next_id,))
        next_parent = self.reader.node(next_id)
        children = related_ids(next_parent, NodeRelationship.CHILD) if next_parent is not None else ()
        return (children[0] if direction == "next" else children[-1]) if children else None

    def _named(self, node: BaseNode, direction: Direction) -> str | None:
        named = self.keys.named(node, direction)
        copy = self.reader.copy(node.node_id) if named is None else None
        return named if copy is None else self.keys.named(copy, direction)

    def _in_document(self, node: BaseNode, direction: Direction) -> Search[str | None]:
        """Search in the document's list, first for a neighbor there whose link names the node."""
        source = self.source(node)
        if source is None or (self.reader.lists_are_costly and self._ends_here(node, direction)):
            return None
        yield ReadRequest(documents=(source,))
        yield ReadRequest(nodes=self._listed_beside(node, direction))
        for id_ in self._listed_beside(node, direction):
            candidate = self.reader.node(id_)
            if candidate is not None and self.link(candidate, _OPPOSITE[direction]) == node.node_id:
                return id_ if self.source(candidate) == source else None
        if self._ends_here(node, direction):
            return None
        yield from self._orders.load(source, node.node_id)
        return self._resolved(node, direction)

    def _resolved(self, node: BaseNode, direction: Direction) -> str | None:
        links = self._orders.resolved(self.source(node))
        if links is None:
            return None
        beside = links.chains.followers if direction == "next" else links.chains.preceding
        id_ = beside.get(node.node_id)
        if id_ is not None:
            edge = (node.node_id, id_) if direction == "next" else (id_, node.node_id)
            if edge in links.guesses:
                return self._guessed(id_, edge)
        return id_

    def _guessed(self, id_: str, edge: Edge) -> str | None:
        """Return a neighbor that only an order of insertion gives, if the store keeps that order."""
        if self.reader.lists_are_costly:
            self.unknown[edge] = None
            return None
        self.guesses[edge] = None
        return id_

    def _listed_beside(self, node: BaseNode, direction: Direction) -> Sequence[str]:
        ids = self.listed(node, *((1, 0) if direction == "previous" else (0, 1)))
        return [id_ for id_ in ids if id_ != node.node_id]

    def _ends_here(self, node: BaseNode, direction: Direction) -> bool:
        """Return True if links run both ways up to the node, and the list has none of its level behind it."""
        beside = [self.reader.node(id_) for id_ in self._listed_beside(node, direction)]
        is_child = self.parent(node) is not None
        level = [other for other in beside if other and (self.parent(other) is not None) == is_child]
        return not level and self._is_linked_both_ways(node, direction)

    def _is_linked_both_ways(self, node: BaseNode, direction: Direction) -> bool:
        """Return True if the node on the other side and this one name each other."""
        back = self.link(node, _OPPOSITE[direction])
        before = self.reader.node(back) if back else None
        return before is not None and self.link(before, direction) == node.node_id

    def _on_next_page(self, node: BaseNode, direction: Direction, ahead: int) -> Search[str | None]:
        own, ends = self.relations(node), self._ends_here(node, direction)
        found = yield from self._pages.beside(node, own, _STEP[direction], ahead, ends)
        if found is None:
            return None
        id_, is_guess = found
        edge = (node.node_id, id_) if direction == "next" else (id_, node.node_id)
        return self._guessed(id_, edge) if is_guess else id_

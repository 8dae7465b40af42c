"""The ancestors of hits that a merge needs, read level by level, each once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from llama_index.core.schema import BaseNode, NodeRelationship

from llama_index_ext_ctxaug.docstores.batch_reader import ReadRequest
from llama_index_ext_ctxaug.structure.adjacency import Adjacency
from llama_index_ext_ctxaug.structure.order_keys import File
from llama_index_ext_ctxaug.structure.relationships import keeps_no_links, related_ids
from llama_index_ext_ctxaug.structure.tree import Children, Tree


@dataclass
class Ancestry:
    """The known parents and children around the hits of one call.

    Attributes:
        links: links of the loaded nodes.
        hits: the nodes of the hits by id, by rank.
        unfit: for the id of a child, the parent that it names and why that cannot be its parent.
    """

    links: Adjacency
    hits: Mapping[str, BaseNode]
    unfit: dict[str, tuple[str, str]] = field(default_factory=dict)
    _children: dict[str, Children] = field(default_factory=dict)
    _copies_wanted: dict[str, None] = field(default_factory=dict)
    _stated: dict[str, str] = field(default_factory=dict)
    _waiting: dict[str, str] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.links.repair:
            lost = (id_ for id_, node in self.hits.items() if keeps_no_links(node))
            self._copies_wanted.update(dict.fromkeys(lost))

    def node(self, node_id: str) -> BaseNode | None:
        """Return a loaded node."""
        return self.links.reader.node(node_id)

    def is_open(self, node_id: str) -> bool:
        """Return True if a node has not been looked up yet."""
        return node_id not in self.hits and node_id not in self.links.reader.stored

    def tree(self, extra: Iterable[str] = ()) -> Tree:
        """Build the tree from the links of the hits and all loaded nodes above them.

        Args:
            extra: ids of further nodes whose links count, if they are loaded.
        """
        self._learn([*self._look_into_copies(), *extra])
        return Tree.of(self._stated, self._children)

    def _learn(self, todo: list[str]) -> None:
        """Record the links of these nodes, of parents loaded since, and of all their ancestors."""
        for id_, parent_id in list(self._waiting.items()):
            if not self.is_open(parent_id):
                del self._waiting[id_]
                self._judge(id_, parent_id, todo)
        for id_ in todo:
            node = None if id_ in self._seen else self.node(id_)
            if node is None:
                continue
            self._seen.add(id_)
            self._note_children(node)
            above = self.links.parent(node)
            if above is None:
                continue
            if self.is_open(above):
                self._stated[id_] = self._waiting[id_] = above
            else:
                self._judge(id_, above, todo)

    def first_request(self) -> ReadRequest:
        """Return what to read before anything can be decided: the parents of the hits."""
        self._learn([*self.hits])
        return ReadRequest(nodes=list(self._stated.values()), copies=list(self._copies_wanted))

    def _judge(self, child_id: str, parent_id: str, todo: list[str]) -> None:
        """Record a link if its parent, which was looked up, fits, and continue from the parent."""
        child = self.node(child_id)
        if child is not None and self._fits(child, parent_id):
            self._stated[child_id] = parent_id
            todo.append(parent_id)
        else:
            self._stated.pop(child_id, None)

    def same_document(self, child: BaseNode, parent: BaseNode) -> bool:
        """Return True if two nodes are of one document; the document itself may be the parent."""
        links = self.links
        of_child, of_parent = links.relations(child).document, links.relations(parent).document
        if of_child == of_parent:
            return True
        child_id = child.node_id
        if of_child is None and child_id in self.hits and child_id not in links.reader.stored:
            self._copies_wanted[child_id] = None  # its stored copy may name it
        return links.source(child) == parent.node_id

    def next_request(
        self, tree: Tree, surviving: Collection[str], climbing: Iterable[str], gaps: Iterable[str]
    ) -> ReadRequest:
        """Return what to read in the next round trip.

        Args:
            tree: the tree so far.
            surviving: ids of hits and merged parents.
            climbing: those of them that may be merged further.
            gaps: ids of children to fill in.
        """
        parents = (tree.parents[id_] for id_ in climbing if id_ in tree.parents)
        nodes = dict.fromkeys((*parents, *self._hidden_ancestors(tree, surviving), *gaps))
        return ReadRequest(
            nodes=[id_ for id_ in nodes if self.is_open(id_)], copies=list(self._copies_wanted)
        )

    def _hidden_ancestors(self, tree: Tree, surviving: Collection[str]) -> Iterator[str]:
        """Yield unread nodes that may show that a hit is below another surviving node.

        That other node has children, is of the same document and is not known to be below the unread
        one. If all hits are leaves of one even hierarchy, no such node exists.
        """
        wide: dict[str | File | None, list[str]] = {}
        for id_ in surviving:
            if id_ in tree.children and (node := self.node(id_)):
                wide.setdefault(self.links.relations(node).document, []).append(id_)
        if not wide:
            return
        for id_, hit in self.hits.items():
            way = [id_, *tree.above(id_)]
            if self.is_open(way[-1]) and not any(above in surviving for above in way[1:]):
                others = wide.get(self.links.relations(hit).document, ())
                if any(other != id_ and way[-1] not in tree.above(other) for other in others):
                    yield way[-1]

    def _look_into_copies(self) -> list[str]:
        """Return the hits with stored copies loaded since, with their links read again."""
        ids = [id_ for id_ in self._copies_wanted if id_ in self.links.reader.stored]
        for id_ in ids:
            self.links.reread(self.hits[id_])
            self._copies_wanted.pop(id_)
            self._seen.discard(id_)
        return ids

    def _note_children(self, node: BaseNode) -> None:
        id_ = node.node_id
        if id_ in self._children:
            return
        listed = related_ids(node, NodeRelationship.CHILD)
        if not listed and (copy := self.links.reader.copy(id_)):
            listed = related_ids(copy, NodeRelationship.CHILD)
        if listed and (children := Children.of(id_, listed)).ids:
            self._children[id_] = children

    def _fits(self, child: BaseNode, parent_id: str) -> bool:
        """Return False if a node is known not to be the parent of one that names it."""
        parent, reason = self.node(parent_id), None
        if parent is None:
            return True
        if parent_id not in self._children:
            self._note_children(parent)
        children = self._children.get(parent_id)
        if not self.same_document(child, parent):
            reason = "other_document"
        elif children and child.node_id not in children.places:
            reason = "unlisted"
        if reason:
            self.unfit[child.node_id] = (parent_id, reason)
        elif self.unfit:
            self.unfit.pop(child.node_id, None)
        return reason is None

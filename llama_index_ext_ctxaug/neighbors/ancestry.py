"""The nodes above the hits, as far as a merge needs them: read level by level, each once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from llama_index.core.schema import BaseNode, NodeRelationship

from llama_index_ext_ctxaug.neighbors.links import Links
from llama_index_ext_ctxaug.neighbors.reading import Want
from llama_index_ext_ctxaug.neighbors.relationships import related_ids
from llama_index_ext_ctxaug.passages.merging import Children, Tree


@dataclass
class Ancestry:
    """What is known of parents and children around the hits of one call.

    Attributes:
        links: links of the nodes in hand.
        hits: the hits' own nodes by id, in the order of their rank.
        unfit: by the id of a child, the parent that it names and why that cannot be its parent.
    """

    links: Links
    hits: Mapping[str, BaseNode]
    unfit: dict[str, tuple[str, str]] = field(default_factory=dict)
    _children: dict[str, Children] = field(default_factory=dict)
    _copies_wanted: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.links.repair:
            lost = (id_ for id_, node in self.hits.items() if node.relationships.keys() <= _OF_ANY_STORE)
            self._copies_wanted.update(dict.fromkeys(lost))

    def node(self, node_id: str) -> BaseNode | None:
        """The node of this id, if it is in hand."""
        return self.links.reader.node(node_id)

    def is_open(self, node_id: str) -> bool:
        """Whether a node has not been looked for yet."""
        return node_id not in self.hits and node_id not in self.links.reader.stored

    def tree(self, extra: Iterable[str] = ()) -> Tree:
        """Parents and children, as the links of all nodes in hand above the hits state them.

        Args:
            extra: ids of further nodes whose links count, where they are in hand.
        """
        self._look_into_copies()
        stated: dict[str, str] = {}
        todo = [*self.hits, *extra]
        for id_ in todo:
            node = self.node(id_)
            if node is None or id_ in stated:
                continue
            self._note_children(node)
            parent_id = self.links.parent(node)
            if parent_id is not None and self._fits(node, parent_id):
                stated[id_] = parent_id
                todo.append(parent_id)
        return Tree.of(stated, self._children)

    def same_document(self, child: BaseNode, parent: BaseNode) -> bool:
        """Whether two nodes are of one document; the document itself may be the parent."""
        links = self.links
        of_child, of_parent = links.document(child), links.document(parent)
        lost = of_child is None and of_parent is not None and child.node_id in self.hits
        if lost and child.node_id not in links.reader.stored:
            self._copies_wanted[child.node_id] = None  # its stored copy may still know
        return of_child == of_parent or links.source(child) == parent.node_id

    def want(
        self, tree: Tree, standing: Collection[str], climbing: Iterable[str], gaps: Iterable[str]
    ) -> Want:
        """What to read in the next round.

        Args:
            tree: as it is known.
            standing: ids of hits and merged parents.
            climbing: those of them that nothing stands above, and that may be merged further.
            gaps: ids of children to fill in.
        """
        parents = (tree.parents[id_] for id_ in climbing if id_ in tree.parents)
        nodes = dict.fromkeys((*parents, *self._hidden_ancestors(tree, standing), *gaps))
        return Want(nodes=[id_ for id_ in nodes if self.is_open(id_)], copies=list(self._copies_wanted))

    def _hidden_ancestors(self, tree: Tree, standing: Collection[str]) -> Iterator[str]:
        """Unread nodes over which a hit may turn out to be below another node that stands.

        That takes a node that has children, stands in the same document and is not known to be below
        the unread one; with hits that are all leaves of one even hierarchy there is none.
        """
        wide: dict[str | None, list[str]] = {}
        for id_ in standing:
            if id_ in tree.children and (node := self.node(id_)):
                wide.setdefault(self.links.document(node), []).append(id_)
        if not wide:
            return
        for id_, hit in self.hits.items():
            way = [id_, *tree.above(id_)]
            if self.is_open(way[-1]) and not any(above in standing for above in way[1:]):
                others = wide.get(self.links.document(hit), ())
                if any(other != id_ and way[-1] not in tree.above(other) for other in others):
                    yield way[-1]

    def _look_into_copies(self) -> None:
        """Let what the store's copies say count, where they have come into hand."""
        for id_ in [id_ for id_ in self._copies_wanted if id_ in self.links.reader.stored]:
            for _ in self.links.with_copy(self.hits[id_]):
                pass
            self._copies_wanted.pop(id_)

    def _note_children(self, node: BaseNode) -> None:
        id_ = node.node_id
        if id_ in self._children:
            return
        listed = related_ids(node, NodeRelationship.CHILD)
        if not listed and (copy := self.links.reader.copy(id_)):
            listed = related_ids(copy, NodeRelationship.CHILD)
        children = Children.of(id_, listed)
        if children.ids:
            self._children[id_] = children

    def _fits(self, child: BaseNode, parent_id: str) -> bool:
        """Whether a node may be the parent of one that names it, as far as that is known."""
        parent, child_id = self.node(parent_id), child.node_id
        self.unfit.pop(child_id, None)
        if parent is None:
            return True
        if not self.same_document(child, parent):
            self.unfit[child_id] = (parent_id, "other_document")
            return False
        self._note_children(parent)
        children = self._children.get(parent_id)
        if children and child_id not in children.places:
            self.unfit[child_id] = (parent_id, "unlisted")
            return False
        return True


_OF_ANY_STORE = frozenset({NodeRelationship.SOURCE})
"""The relationships that remain where a vector store keeps none."""

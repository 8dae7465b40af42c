"""Read ids from a node's relationships, whatever form they have there."""

from __future__ import annotations

from typing import NamedTuple

from llama_index.core.schema import BaseNode, NodeRelationship, RelatedNodeInfo

_PREVIOUS, _NEXT = NodeRelationship.PREVIOUS, NodeRelationship.NEXT
_SOURCE, _PARENT = NodeRelationship.SOURCE, NodeRelationship.PARENT


class Relations(NamedTuple):
    """The ids that a node's relationships name; None for none and for the node's own id.

    Attributes:
        previous: the chunk before.
        next: the chunk after.
        source: the source document.
        parent: the node that this one is a part of.
        document: identifies the document: the source, or the file where several sources count as one.
    """

    previous: str | None
    next: str | None
    source: str | None
    parent: str | None
    document: str | tuple[str, ...] | None

    def filled_from(self, other: Relations) -> Relations:
        """Return these ids, completed from another node's."""
        return Relations(
            self.previous or other.previous,
            self.next or other.next,
            self.source or other.source,
            self.parent or other.parent,
            self.document or other.document,
        )


def relations(node: BaseNode) -> Relations:
    """Read the ids that a node's own relationships name, in one pass since each step does it."""
    previous = next_ = source = parent = None
    node_id = node.id_
    for relationship, related in node.relationships.items():
        if isinstance(related, list):  # a builtin: isinstance of a pydantic class takes half of this function
            if not related:
                continue
            related = related[0]  # noqa: PLW2901
        id_ = related.node_id
        if id_ == node_id:
            continue
        if relationship is _SOURCE:
            source = id_
        elif relationship is _PREVIOUS:
            previous = id_
        elif relationship is _NEXT:
            next_ = id_
        elif relationship is _PARENT:
            parent = id_
    return Relations(previous, next_, source, parent, source)


def keeps_no_links(node: BaseNode) -> bool:
    """Return True if a node has no relationship but its source, the one that any vector store keeps."""
    return node.relationships.keys() <= {_SOURCE}


def related_ids(node: BaseNode, relationship: NodeRelationship) -> list[str]:
    """Return the ids under a relationship, whether it holds one node or a list of them."""
    related = node.relationships.get(relationship) or []
    return [info.node_id for info in ([related] if isinstance(related, RelatedNodeInfo) else related)]


def related_id(node: BaseNode, relationship: NodeRelationship) -> str | None:
    """Return the first id under a relationship; None for none and for the node's own id."""
    first = next(iter(related_ids(node, relationship)), None)
    return None if first == node.node_id else first

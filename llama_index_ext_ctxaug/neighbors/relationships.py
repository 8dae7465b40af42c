"""Reading ids out of a node's relationships, whatever form they have there."""

from __future__ import annotations

from llama_index.core.schema import BaseNode, NodeRelationship, RelatedNodeInfo


def related_ids(node: BaseNode, relationship: NodeRelationship) -> list[str]:
    """Ids under a relationship, whether it holds one node or a list of them."""
    related = node.relationships.get(relationship)
    if related is None:
        return []
    if isinstance(related, RelatedNodeInfo):
        return [related.node_id]
    return [info.node_id for info in related]


def related_id(node: BaseNode, relationship: NodeRelationship) -> str | None:
    """The id under a relationship, the first where it holds a list; None for none, or for the node itself."""
    related = node.relationships.get(relationship)
    if related is None:
        return None
    if not isinstance(related, RelatedNodeInfo):
        if not related:
            return None
        related = related[0]
    return None if related.node_id == node.node_id else related.node_id

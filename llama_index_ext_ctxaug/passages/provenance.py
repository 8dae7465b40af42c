"""Provenance in a node's metadata: written as one flat string, read as far as it still holds."""

from __future__ import annotations

from typing import Any, cast

from llama_index.core.schema import BaseNode, Document

from llama_index_ext_ctxaug.passages.encoding import STORED, decode, encode
from llama_index_ext_ctxaug.passages.offsets import noted_span, text_of
from llama_index_ext_ctxaug.passages.passage import Role
from llama_index_ext_ctxaug.passages.pieces import Piece, Provenance

PROVENANCE_KEY = "context_augmentation"
"""The metadata key; it is excluded from the text for the LLM and for embedding."""

STALE_KEYS = frozenset({"window", "original_text", PROVENANCE_KEY})
"""Metadata that describes one node's own text, so that no passage or window inherits it."""


def read_provenance(node: BaseNode) -> Provenance | None:
    """Return the provenance of a node, as far as it still holds for the node's text.

    If a later step changed the text (cut, masked or joined it), the pieces are those that can be recognized
    in the new text, and neither `exact` nor `cut` is claimed.

    Args:
        node: any node; pass `hit.node` for a `NodeWithScore`.

    Returns:
        The provenance, or None for a node that an augmenter neither added nor made: an unchanged hit, or
        a node with something else under that metadata key.
    """
    value = node.metadata.get(PROVENANCE_KEY)
    return decode(value, node) if isinstance(value, str) else None


def with_provenance(node: BaseNode, provenance: Provenance) -> BaseNode:
    """Return a copy of a node that carries this provenance, bound to the node's text."""
    copy = node.model_copy()
    # Past pydantic's validation of assignments: the values are what the fields hold, only extended.
    fields = copy.__dict__
    fields["metadata"] = {**node.metadata, PROVENANCE_KEY: encode(provenance, node)}
    fields["relationships"] = {**node.relationships}
    for name in ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys"):
        if PROVENANCE_KEY not in fields[name]:
            fields[name] = [*fields[name], PROVENANCE_KEY]
    return copy


def is_augmented(node: BaseNode) -> bool:
    """Return True if an augmenter added this node as a neighbor or made it; a parent counts as a hit."""
    provenance = read_provenance(node)
    return provenance is not None and provenance.role != "parent"


def whole_provenance(node: BaseNode) -> Provenance:
    """Return the provenance of a node with pieces; a stored node is one piece, itself."""
    known = read_provenance(node)
    if known is not None and known.role not in STORED:
        return known
    start, end = noted_span(node) or (None, None)
    if known is None:
        known = Provenance("hit", (node.node_id,), node_id=node.node_id)
    piece = Piece(
        node_id=known.node_id or node.node_id,
        role=cast(Role, known.role),
        hits=known.hits,
        hops=known.hops,
        start=0,
        end=len(text_of(node)),
        source_start=start,
        source_end=end,
        document_id=document_of(node),
        metadata=own_metadata(node),
    )
    return Provenance("window", piece.hits, pieces=(piece,), exact=False)


def own_metadata(node: BaseNode) -> dict[str, Any]:
    """Return the metadata of a node that is true for parts of its text too."""
    metadata = node.metadata
    if STALE_KEYS.isdisjoint(metadata):
        return dict(metadata)
    return {key: value for key, value in metadata.items() if key not in STALE_KEYS}


def document_of(node: BaseNode) -> str | None:
    """Return the id of a node's source document."""
    return node.ref_doc_id or (node.node_id if isinstance(node, Document) else None)

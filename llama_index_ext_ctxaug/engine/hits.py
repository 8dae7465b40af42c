"""Distinct hits from the nodes that a call receives."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core.schema import NodeWithScore

from llama_index_ext_ctxaug.passages.passage import Chunk
from llama_index_ext_ctxaug.passages.provenance import read_provenance
from llama_index_ext_ctxaug.passages.scores import score_key


def distinct_hits(nodes: Sequence[NodeWithScore]) -> dict[str, Chunk]:
    """Return the hits by node id in rank order; a repeated hit keeps its first rank and its best score."""
    hits: dict[str, Chunk] = {}
    for rank, hit in enumerate(nodes):
        node_id = hit.node.id_
        known = hits.get(node_id)
        if known is None:
            hits[node_id] = _to_chunk(hit, rank)
        elif score_key(hit.score) > score_key(known.score):
            hits[node_id] = _to_chunk(hit, known.rank)
    return hits


def distinct_nodes(nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """Return the nodes that `distinct_hits` keeps, in rank order."""
    return [chunk.origin for chunk in distinct_hits(nodes).values() if chunk.origin is not None]


def _to_chunk(hit: NodeWithScore, rank: int) -> Chunk:
    """Make a chunk of an input node: a hit, or a neighbor if an earlier augmenter added it."""
    provenance = read_provenance(hit.node)
    if provenance is None or provenance.role != "neighbor":
        return Chunk(hit.node, "hit", (hit.node.id_,), rank=rank, score=hit.score, origin=hit)
    return Chunk(hit.node, "neighbor", provenance.hits, rank, provenance.hops, score=hit.score, origin=hit)

"""Random corpora with a known reading order, from which some evidence of it is removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st
from llama_index.core.schema import BaseNode, Document, NodeRelationship, RelatedNodeInfo, TextNode

PREVIOUS, NEXT = NodeRelationship.PREVIOUS, NodeRelationship.NEXT
SOURCE, PARENT, CHILD = NodeRelationship.SOURCE, NodeRelationship.PARENT, NodeRelationship.CHILD

EVIDENCE = ("links", "offsets", "numbers", "ids")
NUMBERINGS = (
    ["1", "2", "3", "4", "5", "6"],
    ["i", "ii", "iii", "iv", "v", "vi"],
    ["一", "二", "三", "四", "五", "六"],
)
MIXED = (["A", "B", "C", "i", "ii", "1"], ["i", "ii", "1", "2", "3", "4"])
OWNERS = ("tenant", "userId", "mandant")
"""Metadata keys of the tenant; of the last nothing says that it names an owner."""


@dataclass
class File:
    """One file: a document, or several documents that are its pages.

    Attributes:
        tenant: the tenant it belongs to.
        pages: ids of the leaves of each document in reading order, the documents in reading order.
        stored: its nodes in the order of insertion.
        is_shown: True if all of its nodes carry something that shows the whole order.
        owner: the metadata key under which its nodes name the tenant.
    """

    tenant: str
    pages: list[list[str]]
    stored: list[BaseNode]
    is_shown: bool
    owner: str = "tenant"

    def order(self, hit_id: str, key: object) -> list[str]:
        """Return the leaves of a hit's document in reading order; without a key, pages are documents."""
        return [id_ for page in self.pages if hit_id in page or key is not None for id_ in page]


def _link(node: BaseNode, relationship: NodeRelationship, id_: str) -> None:
    node.relationships[relationship] = RelatedNodeInfo(node_id=id_)


def _chunks(draw: st.DrawFn, source: str, count: int, metadata: dict[str, Any]) -> list[TextNode]:
    """Return chunks of a document with all evidence of their order, and ids in another order."""
    salt = draw(st.permutations(range(count)))
    nodes = [
        TextNode(id_=f"{salt[number]}-{source}-{number}", text=f"Chunk {number} of {source}. ")
        for number in range(count)
    ]
    start = 0
    for number, node in enumerate(nodes):
        node.metadata = {**metadata, "split_id": number}
        node.start_char_idx, node.end_char_idx = start, start + len(node.text)
        start = node.end_char_idx + draw(st.integers(0, 1))
        _link(node, SOURCE, source)
    for before, after in pairwise(nodes):
        _link(before, NEXT, after.node_id)
        _link(after, PREVIOUS, before.node_id)
        before.metadata["next_id"], after.metadata["prev_id"] = after.node_id, before.node_id
    return nodes


def _take_away(draw: st.DrawFn, nodes: Sequence[TextNode], whole: set[str]) -> None:
    """Remove evidence from any of the nodes, except the kinds that must stay whole."""
    for node in nodes:
        for kind in EVIDENCE:
            if kind not in whole and draw(st.booleans()):
                _take(draw, node, kind)


def _take(draw: st.DrawFn, node: TextNode, kind: str) -> None:
    if kind == "links":
        for side in draw(st.sampled_from([(PREVIOUS,), (NEXT,), (PREVIOUS, NEXT)])):
            node.relationships.pop(side, None)
    elif kind == "offsets":
        node.start_char_idx = node.end_char_idx = None
    else:
        for key in ("split_id",) if kind == "numbers" else ("prev_id", "next_id"):
            node.metadata[key] = draw(st.sampled_from([None, "", "None", "nan", float("nan")]))


def _with_parents(
    draw: st.DrawFn, source: str, leaves: Sequence[TextNode], metadata: dict[str, Any]
) -> list[TextNode]:
    """Put leaves under parents; offsets and numbers then count within the parent."""
    parents: list[TextNode] = []
    rest = list(leaves)
    while rest:
        size = draw(st.integers(1, 3))
        family, rest = rest[:size], rest[size:]
        parent = TextNode(id_=f"parent-{len(parents)}-{source}", text="".join(leaf.text for leaf in family))
        parent.metadata = dict(metadata)
        _link(parent, SOURCE, source)
        parent.relationships[CHILD] = [RelatedNodeInfo(node_id=leaf.node_id) for leaf in family]
        base = family[0].start_char_idx or 0
        for number, leaf in enumerate(family):
            _link(leaf, PARENT, parent.node_id)
            leaf.metadata["split_id"] = number
            leaf.start_char_idx = (leaf.start_char_idx or 0) - base
            leaf.end_char_idx = leaf.start_char_idx + len(leaf.text)
        parents.append(parent)
    for before, after in pairwise(parents):
        _link(before, NEXT, after.node_id)
        _link(after, PREVIOUS, before.node_id)
    return parents


def _plain(draw: st.DrawFn, tenant: str, source: str) -> File:
    leaves = _chunks(draw, source, draw(st.integers(1, 7)), {"tenant": tenant})
    ids = [leaf.node_id for leaf in leaves]
    if draw(st.booleans()):
        for leaf in leaves:
            for kind in EVIDENCE:
                _take(draw, leaf, kind)
            leaf.relationships = {SOURCE: leaf.relationships[SOURCE]}
        return File(tenant, [ids], list(leaves), is_shown=True)
    whole = draw(st.sets(st.sampled_from(EVIDENCE)))
    _take_away(draw, leaves, whole)
    if draw(st.booleans()):
        return File(tenant, [ids], list(leaves), is_shown=bool(whole))
    if "links" not in whole:  # a chain linked both ways ends where a shuffled list does too
        for leaf in leaves:
            leaf.relationships = {SOURCE: leaf.relationships[SOURCE]}
    return File(tenant, [ids], list(draw(st.permutations(leaves))), is_shown=bool(whole))


def _hierarchy(draw: st.DrawFn, tenant: str, source: str) -> File:
    leaves = _chunks(draw, source, draw(st.integers(1, 9)), {"tenant": tenant})
    parents = _with_parents(draw, source, leaves, {"tenant": tenant})
    _take_away(draw, leaves, set())
    stored = draw(st.permutations([*parents, *leaves]))
    return File(tenant, [[leaf.node_id for leaf in leaves]], list(stored), is_shown=True)


def _pages(draw: st.DrawFn, tenant: str, labels: Sequence[str], owner: str) -> File:
    as_nodes = draw(st.booleans())
    pages: list[list[BaseNode]] = []
    for label in labels:
        source = f"{tenant}-page-{label}"
        metadata = {owner: tenant, "file_name": "README.md", "page_label": label}
        if as_nodes:
            pages.append([Document(id_=source, text=f"Page {label} of {tenant}.", metadata=metadata)])
            continue
        chunks = _chunks(draw, source, draw(st.integers(1, 3)), metadata)
        _take_away(draw, chunks, {draw(st.sampled_from(EVIDENCE))})
        pages.append(list(chunks))
    is_shown = any(set(labels) <= set(numbering) for numbering in NUMBERINGS)
    stored = list(draw(st.permutations(pages))) if is_shown else pages
    ids = [[node.node_id for node in page] for page in pages]
    return File(tenant, ids, [node for page in stored for node in page], is_shown, owner)


@st.composite
def corpora(draw: st.DrawFn) -> list[File]:
    """Plain documents, hierarchies, and a file of pages that each of two tenants may have.

    The page labels of the two tenants may be the same or have none in common.
    """
    labels = draw(st.sampled_from([*NUMBERINGS, *MIXED]))
    owner, cut = draw(st.sampled_from(OWNERS)), draw(st.integers(1, 5))
    parts = draw(st.sampled_from([(labels[:cut], labels[:cut]), (labels[:cut], labels[cut:])]))
    files = [
        _pages(draw, tenant, parts["ab".index(tenant)], owner)
        for tenant in draw(st.sets(st.sampled_from("ab")))
    ]
    for number in range(draw(st.integers(0 if files else 1, 2))):
        make = draw(st.sampled_from([_plain, _hierarchy]))
        files.append(make(draw, draw(st.sampled_from("ab")), f"doc{number}"))
    return files

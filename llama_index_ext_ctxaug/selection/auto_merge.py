"""Decide, on ids alone, which parents replace their children."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

from llama_index_ext_ctxaug.structure.tree import Tree

Tokens = Callable[[str], int]
"""Returns the length in tokens of the node with this id."""

Allowed = Callable[[str], bool]
"""Returns True if this parent may replace its children; it is called last."""

Fill = Callable[[str, Sequence[str]], Iterable[str]]
"""Returns, for a parent and its present children, the children between them that count as present too."""


@dataclass(frozen=True)
class ShareRule:
    """A parent replaces its children if enough of it was retrieved.

    Attributes:
        threshold: the share, from 0 to 1, that must be exceeded.
        inclusive: the threshold itself is enough.
        min_children: minimum number of children.
        tokens: counts the tokens of nodes, for a share of the parent's tokens; None for a share of the
            number of its children.
    """

    threshold: float = 0.5
    inclusive: bool = False
    min_children: int = 1
    tokens: Tokens | None = None

    def merges(self, parent_id: str, covered: Sequence[str], listed: int) -> bool:
        """Return True if a parent merges.

        Args:
            parent_id: the parent.
            covered: its distinct children that were retrieved, merged or filled in.
            listed: number of its children.
        """
        if not covered or len(covered) < self.min_children:
            return False
        if self.tokens is None:
            share = len(covered) / listed
        else:
            whole = self.tokens(parent_id)
            share = sum(map(self.tokens, covered)) / whole if whole else 0.0
        return share >= self.threshold if self.inclusive else share > self.threshold


def merge_by_share(
    hits: Iterable[str], tree: Tree, rule: ShareRule, allowed: Allowed, fill: Fill | None = None
) -> dict[str, None]:
    """Merge level by level, to the fixed point; the order of the hits does not matter.

    Args:
        hits: ids of the hits.
        tree: parents and children.
        rule: decides which parents merge.
        allowed: returns True if a parent may merge.
        fill: returns the children between present ones that count as present too.

    Returns:
        The hits and all merged parents, as an ordered set; those below no other are the output.
    """
    merged = dict.fromkeys(hits)
    present: dict[str, list[str]] = {}
    arrived: Iterable[str] = list(merged)
    while arrived:
        touched: dict[str, None] = {}
        for id_ in arrived:
            parent = tree.parents.get(id_)
            if parent is not None and parent in tree.children:
                present.setdefault(parent, []).append(id_)
                touched[parent] = None
        arrived = [
            parent
            for parent in touched
            if parent not in merged
            and rule.merges(
                parent,
                [*present[parent], *(fill(parent, present[parent]) if fill else ())],
                len(tree.children[parent].ids),
            )
            and allowed(parent)
        ]
        merged.update(dict.fromkeys(arrived))
    return merged


@dataclass
class BudgetRule:
    """HiChunk's rule: the more of the budget is used, the more of a parent must be retrieved.

    A parent merges where at least two of its children are kept, their length is at least a third of
    its own, times one plus the used share of the budget, and the rest of the budget holds it.

    Source: HiChunk (Lu et al. 2025, "Evaluating and enhancing retrieval-augmented generation with
    hierarchical chunking"), Auto-Merge.

    Attributes:
        budget: tokens of the whole output.
        tokens: length of a node's text.
        min_children: minimum number of children; less than two counts as two.
        cost: tokens that a node takes of the budget; None where that is its length.
    """

    budget: int
    tokens: Tokens
    min_children: int = 2
    cost: Tokens | None = None

    def merges(self, parent_id: str, kept: Sequence[str], used: int) -> bool:
        """Return True if a parent merges.

        Args:
            parent_id: the parent.
            kept: its distinct children that are kept so far.
            used: tokens of all that is kept so far.
        """
        if len(kept) < max(2, self.min_children):
            return False
        if self.budget - used < self.price(parent_id):
            return False
        bar = self.tokens(parent_id) / 3 * (1 + used / max(self.budget, 1))
        return sum(map(self.tokens, kept)) >= bar

    def price(self, node_id: str) -> int:
        """Tokens that a node takes of the budget."""
        return (self.cost or self.tokens)(node_id)


def merge_by_budget(hits: Iterable[str], tree: Tree, rule: BudgetRule, allowed: Allowed) -> dict[str, None]:
    """Keep hits one by one, best first, while the budget lasts; after each one climb as far as parents merge.

    Args:
        hits: ids of the hits, best first; one that does not fit is skipped.
        tree: parents and children.
        rule: decides which parents merge.
        allowed: returns True if a parent may merge.

    Returns:
        The hits and parents that are kept, as an ordered set; none is above another.
    """
    kept: dict[str, int] = {}

    def below(node_id: str) -> list[str]:
        return [id_ for id_ in kept if node_id in tree.above(id_)]

    def keep(node_id: str) -> None:
        for id_ in below(node_id):
            del kept[id_]
        kept[node_id] = rule.price(node_id)

    for hit in hits:
        if not kept.keys().isdisjoint(tree.above(hit)):
            continue
        freed = sum(kept[id_] for id_ in below(hit))
        if sum(kept.values()) - freed + rule.price(hit) > rule.budget:
            continue
        keep(hit)
        for parent in tree.above(hit):
            children = [id_ for id_ in kept if tree.parents.get(id_) == parent]
            used = sum(kept.values())
            if parent not in tree.children or not rule.merges(parent, children, used) or not allowed(parent):
                break
            keep(parent)
    return dict.fromkeys(kept)


def pieces(node_ids: Iterable[str], tree: Tree, merged: Container[str]) -> dict[str | None, list[str]]:
    """Return what each merged node replaces, and under None the nodes of the output.

    Args:
        node_ids: distinct ids of all merged and retrieved nodes.
        tree: parents and children.
        merged: ids of the nodes that replace what is below them.

    Returns:
        The ids directly below each merged node, other merged nodes included, in the order of `node_ids`.
    """
    by_top: dict[str | None, list[str]] = {}
    for id_ in node_ids:
        top = next((above for above in tree.above(id_) if above in merged), None)
        by_top.setdefault(top, []).append(id_)
    return by_top

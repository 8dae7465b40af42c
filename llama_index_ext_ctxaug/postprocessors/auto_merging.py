"""Replace chunks by their parent if enough of them were retrieved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from llama_index.core.bridge.pydantic import Field, model_validator
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle
from typing_extensions import Self, override

from llama_index_ext_ctxaug.budget.fit import Tokenizer
from llama_index_ext_ctxaug.budget.tokenizer import tokenizer_or_default
from llama_index_ext_ctxaug.docstores.batch_reader import ReadRequest
from llama_index_ext_ctxaug.engine.output import Writer
from llama_index_ext_ctxaug.errors import ConfigurationError
from llama_index_ext_ctxaug.expansion.expansion import Expansion
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.passages.offsets import offsets_of, squeezed
from llama_index_ext_ctxaug.passages.passage import Chunk, Passage, Role
from llama_index_ext_ctxaug.passages.scores import MergedScore, best_first, merged_score, score_key
from llama_index_ext_ctxaug.postprocessors.base import ContextAugmenter
from llama_index_ext_ctxaug.selection.auto_merge import (
    BudgetRule,
    ShareRule,
    merge_by_budget,
    merge_by_share,
    pieces,
)
from llama_index_ext_ctxaug.structure.parents import Ancestry
from llama_index_ext_ctxaug.structure.tree import Tree


class AutoMergingPostprocessor(ContextAugmenter):
    """Replaces children by their parent if enough of them were retrieved, level by level.

    It does the work of LlamaIndex's `AutoMergingRetriever` after any retriever. A merged parent counts as a
    retrieved child of its own parent, until nothing merges. With `simple_ratio_thresh=0` and `max_levels=1`
    it is a parent-document retriever: its parent replaces every chunk.

    **Requires**: a docstore that holds the parents, with PARENT relationships on the chunks and CHILD
    relationships on the parents, as `HierarchicalNodeParser` sets them. No query is needed.

    **Guarantees**: the output has each hit or exactly one node above it, never a node and one above it. A
    retrieved parent replaces retrieved children whatever their share, and keeps the best score. A merged
    parent has the rank of its first child, and its provenance names the hits below it, best first. The order
    of the hits affects ranks only. A higher threshold only splits what a lower one merges.

    **On failure**: a parent that is missing, lists no children, has no text, is of another document or is
    refused by `neighbor_filters` does not merge: its children stay, with one warning per call, or an error
    with `strict=True`. Links in a ring, or that the parent's list contradicts, are ignored.

    Example:
        ```python
        from llama_index_ext_ctxaug import AutoMergingPostprocessor

        docstore.add_documents(nodes)  # all levels; the index holds the leaves
        merger = AutoMergingPostprocessor(docstore=docstore, simple_ratio_thresh=0.5)
        engine = index.as_query_engine(similarity_top_k=12, node_postprocessors=[merger])
        ```
    """

    simple_ratio_thresh: float = Field(
        default=0.5, ge=0, le=1, description="A parent merges if the retrieved share of it exceeds this."
    )
    inclusive: bool = Field(default=False, description="True if the threshold itself is enough.")
    weigh_by: Literal["count", "tokens"] = Field(
        default="count",
        description="The share: of the number of children, or of the parent's tokens.",
    )
    min_children: int = Field(
        default=1, ge=1, description="Minimum distinct children for a merge, filled ones included."
    )
    max_levels: int | None = Field(
        default=None, ge=1, description="Maximum levels between a hit and its replacement; None for no limit."
    )
    fill_gaps: int = Field(
        default=1,
        ge=0,
        description="Maximum children filled in between two retrieved siblings; 0 for none.",
    )
    parent_score: MergedScore = Field(
        default="max", description="Score of a merged parent, from its scored children: max or mean."
    )
    sort_by_score: bool = Field(
        default=True, description="Order by score, None last; else reading order, by rank."
    )
    merge_rule: Literal["ratio", "budget"] = Field(
        default="ratio",
        description="ratio: the share decides; budget: HiChunk's rule, harder the more tokens are used.",
    )

    @model_validator(mode="after")
    def _budget_is_given(self) -> Self:
        if self.merge_rule == "budget" and self.token_budget is None:
            raise ConfigurationError(
                f"{self.class_name()}: merge_rule='budget' needs token_budget, got None; "
                "set token_budget to the maximum tokens of the context"
            )
        return self

    @override
    def expand(self, expansion: Expansion, query: QueryBundle | None) -> Flow[None]:
        counts = self.merge_rule == "budget" or self.weigh_by == "tokens"
        tokenizer = (yield from tokenizer_or_default(self.tokenizer)) if counts else None
        merge = _Merge(self, expansion, tokenizer)
        yield from expansion.reader.fetch([merge.ancestry.first_request()])
        merge.decide()
        while expansion.reader.lacks(request := merge.request()):
            yield from expansion.reader.fetch([request])
            merge.decide()
        merge.report()
        merge.carry_out()

    def _passages(self, expansion: Expansion) -> list[Passage]:
        # Sorted nodes need no reading order, unless a budget cuts neighbors by it.
        if self.output == "nodes" and self.sort_by_score and self.token_budget is None:
            return [Passage([chunk]) for chunk in expansion.chunks.values()]
        return super()._passages(expansion)

    def _output(self, passages: list[Passage], writer: Writer) -> list[NodeWithScore]:
        if not self.sort_by_score:
            return super()._output(passages, writer)
        if self.output == "nodes":
            chunks = sorted((c for passage in passages for c in passage.chunks), key=lambda c: c.rank)
            passages = [Passage([chunk]) for chunk in chunks]
        result = super()._output(passages, writer)
        return sorted(result, key=lambda hit: score_key(hit.score), reverse=True)


class _Merge:
    """One call: decide again after each read, then replace the chunks."""

    def __init__(
        self, policy: AutoMergingPostprocessor, expansion: Expansion, tokenizer: Tokenizer | None
    ) -> None:
        self.policy = policy
        self.expansion = expansion
        self.tokenizer = tokenizer
        self.ancestry = Ancestry(expansion.links, {id_: chunk.node for id_, chunk in expansion.hits.items()})
        self.tree = Tree({}, {})
        self.levels: dict[str, int] = {}
        self.surviving: Mapping[str, None] = {}
        self.pieces: Mapping[str | None, list[str]] = {}
        self.gaps: dict[str, tuple[str, str]] = {}
        self._parents: dict[str, BaseNode] = {}
        self._fillers: dict[str, BaseNode | None] = {}
        self._lengths: dict[tuple[str, MetadataMode], int] = {}

    def decide(self) -> None:
        """Decide which parents merge and which gaps are filled, from the nodes that are loaded."""
        hits = self.expansion.hits
        self.tree = self._of_own_text(self.ancestry.tree(self.gaps))
        self.levels = self.tree.distances(hits)
        self.surviving = self._merged()
        self.pieces = pieces(dict.fromkeys((*hits, *self.surviving)), self.tree, self.surviving)
        siblings: dict[str, list[str]] = {}
        for id_ in self.pieces[None]:
            if (parent_id := self.tree.parents.get(id_)) is not None:
                siblings.setdefault(parent_id, []).append(id_)
        self.gaps = {}
        for parent_id, present in siblings.items():
            between = self.tree.gaps(parent_id, present, self.policy.fill_gaps)
            # A child with a hit below it would replace that hit.
            self.gaps.update((id_, ends) for id_, ends in between.items() if id_ not in self.levels)

    def _of_own_text(self, tree: Tree) -> Tree:
        """Separate edited hits from their parents: a parent replaces only children with text that it holds.

        Where no text of a parent's children is in it, and no offsets say that it should be, the parent is
        another text, such as a summary, and replaces them all.
        """
        below: dict[str, list[BaseNode]] = {}
        for id_, hit in self.expansion.hits.items():
            parent_id = tree.parents.get(id_)
            if parent_id is not None and self.ancestry.node(parent_id) is not None:
                below.setdefault(parent_id, []).append(hit.node)
        edited: set[str] = set()
        for parent_id, children in below.items():
            parent = self.ancestry.node(parent_id)
            held = _held([_text(child) for child in children], _text(parent) if parent is not None else "")
            for child, is_held in zip(children, held, strict=True):
                if not is_held and (any(held) or offsets_of(child)[0] is not None):
                    self.expansion.refused.setdefault(child.node_id, "edited")
                    edited.add(child.node_id)
        if not edited:
            return tree
        parents = {child: parent for child, parent in tree.parents.items() if child not in edited}
        return Tree(parents, tree.children)

    def request(self) -> ReadRequest:
        """Return what to read before deciding again."""
        limit = self.policy.max_levels
        # Also below a surviving node: the merges there decide which scores its mean is taken of.
        found = dict.fromkeys((*self.expansion.hits, *self.surviving))
        climbing = [id_ for id_ in found if limit is None or self.levels[id_] < limit]
        return self.ancestry.next_request(
            self.tree, self.surviving.keys() | self.gaps.keys(), climbing, self.gaps
        )

    def report(self) -> None:
        """Record the parents of output nodes that are missing, or cannot be their parents."""
        expansion = self.expansion
        for id_ in self.pieces[None]:
            parent_id = self.tree.parents.get(id_)
            if id_ in self.ancestry.unfit:
                unfit_id, reason = self.ancestry.unfit[id_]
                expansion.refused.setdefault(unfit_id, reason)
            elif parent_id is None or self.ancestry.is_open(parent_id):
                continue
            elif self.ancestry.node(parent_id) is None:
                expansion.missing[parent_id] = None
            elif parent_id not in self.tree.children:
                expansion.refused.setdefault(parent_id, "no_children")
        expansion.missing.update((id_, None) for id_ in self.gaps if self.ancestry.node(id_) is None)
        expansion.stops.update(expansion.refused.values())
        if expansion.missing:
            expansion.stops["missing"] += len(expansion.missing)

    def carry_out(self) -> None:
        """Replace chunks by the merged parents and the filled gaps."""
        hits, scores = self.expansion.hits, self._scores()
        below: dict[str, list[str]] = {}
        for id_ in hits:
            way = [above for above in self.tree.above(id_) if above in self.surviving]
            below.setdefault(way[-1] if way else id_, []).append(id_)
        chunks: dict[str, Chunk] = {}
        for id_ in self.pieces[None]:
            if id_ in self.pieces:
                chunks[id_] = self._parent(id_, below[id_], scores[id_])
            else:
                chunks[id_] = hits[id_]
        for id_, ends in self.gaps.items():
            node = self._filler(self.tree.parents[ends[0]], id_)
            if node and not any(above in self.surviving for above in self.tree.above(id_)):
                chunks[id_] = self._filled(node, ends, chunks)
        self.expansion.chunks = chunks

    def _merged(self) -> dict[str, None]:
        policy, hits = self.policy, self.expansion.hits
        if policy.merge_rule == "budget" and policy.token_budget is not None:
            by_budget = BudgetRule(policy.token_budget, self._tokens, policy.min_children, self._cost)
            ranked = sorted(hits, key=lambda id_: best_first(hits[id_]))
            return merge_by_budget(ranked, self.tree, by_budget, self._may_merge)
        by_tokens = policy.weigh_by == "tokens"
        rule = ShareRule(
            policy.simple_ratio_thresh,
            policy.inclusive,
            policy.min_children,
            self._tokens if by_tokens else None,
        )

        def fill(parent_id: str, present: Sequence[str]) -> Iterable[str]:
            gaps = self.tree.gaps(parent_id, present, policy.fill_gaps)
            return [id_ for id_ in gaps if self._filler(parent_id, id_)] if by_tokens else gaps

        return merge_by_share(hits, self.tree, rule, self._may_merge, fill)

    def _may_merge(self, parent_id: str) -> bool:
        limit = self.policy.max_levels
        if limit is not None and self.levels[parent_id] > limit:
            return False
        if parent_id in self._parents:
            return True
        node = self.ancestry.node(parent_id)
        if node is None or parent_id in self.expansion.refused:
            return False
        reason = self.expansion.refusal(node) if _text(node).strip() else "no_text"
        if reason:
            self.expansion.refused[parent_id] = reason
        else:
            self._parents[parent_id] = node
        return reason is None

    def _filler(self, parent_id: str, node_id: str) -> BaseNode | None:
        """Return the child in a gap if it is loaded, may be added, and hides no hit."""
        node, parent = self.ancestry.node(node_id), self.ancestry.node(parent_id)
        if node is None or parent is None or node_id in self.levels:
            return None
        if node_id not in self._fillers:
            fits = self.ancestry.same_document(node, parent)
            reason = self.expansion.refusal(node) if fits else "other_document"
            self.expansion.stops.update((reason,) if reason else ())
            self._fillers[node_id] = None if reason else node
        return self._fillers[node_id]

    def _scores(self) -> dict[str, float | None]:
        """Return the scores from the leaves up; a retrieved parent keeps the better of its two scores."""
        scores = {id_: chunk.score for id_, chunk in self.expansion.hits.items()}
        replaced = [(id_, ids) for id_, ids in self.pieces.items() if id_ is not None]
        replaced.sort(key=lambda item: sum(1 for _ in self.tree.above(item[0])), reverse=True)
        for id_, ids in replaced:
            score = merged_score((scores[piece] for piece in ids), self.policy.parent_score)
            scores[id_] = max(score, scores.get(id_), key=score_key)
        return scores

    def _parent(self, parent_id: str, hit_ids: list[str], score: float | None) -> Chunk:
        hits = self.expansion.hits
        hit_ids = sorted(hit_ids, key=self.tree.path)
        hit_ids.sort(key=lambda id_: score_key(hits[id_].score), reverse=True)
        rank = min(hits[id_].rank for id_ in hit_ids)
        if parent_id in hits:
            role: Role = "hit" if hits[parent_id].role == "hit" else "parent"
            return replace(
                hits[parent_id], role=role, hits=tuple(hit_ids), rank=rank, score=score, origin=None
            )
        return Chunk(
            self._parents[parent_id],
            "parent",
            tuple(hit_ids),
            rank,
            hops=self.levels[parent_id],
            score=score,
        )

    def _filled(self, node: BaseNode, ends: tuple[str, str], chunks: Mapping[str, Chunk]) -> Chunk:
        places = self.tree.children[self.tree.parents[ends[0]]].places
        by = [(abs(places[end] - places[node.node_id]), chunks[end]) for end in ends]
        by.sort(key=lambda reached: (reached[0], best_first(reached[1])))
        (hops, nearest), (_, other) = by
        hits = tuple(dict.fromkeys((*nearest.hits, *other.hits)))
        return Chunk(node, "neighbor", hits, nearest.rank, hops=hops, score=nearest.score)

    def _tokens(self, node_id: str) -> int:
        return self._count(node_id, MetadataMode.NONE)

    def _cost(self, node_id: str) -> int:
        return self._count(node_id, MetadataMode.LLM)

    def _count(self, node_id: str, mode: MetadataMode) -> int:
        """Return the tokens of a node, counted once; 0 for a node that is not loaded."""
        key, node = (node_id, mode), self.ancestry.node(node_id)
        if node is None or self.tokenizer is None:
            return 0
        if key not in self._lengths:
            self._lengths[key] = len(self.tokenizer(node.get_content(metadata_mode=mode)))
        return self._lengths[key]


def _text(node: BaseNode) -> str:
    return node.get_content(metadata_mode=MetadataMode.NONE)


def _held(texts: Sequence[str], whole: str) -> list[bool]:
    """Return for each text whether it is part of the whole, whatever white space a splitter changed."""
    if all(text in whole for text in texts):
        return [True] * len(texts)
    whole = squeezed(whole)
    return [squeezed(text) in whole for text in texts]

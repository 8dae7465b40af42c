"""Set PREVIOUS and NEXT where they are missing or wrong, before nodes are indexed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from llama_index.core.bridge.pydantic import ConfigDict, Field, model_validator
from llama_index.core.schema import BaseNode, NodeRelationship, RelatedNodeInfo, TransformComponent

from llama_index_ext_ctxaug.structure.document_order import ReadingOrder
from llama_index_ext_ctxaug.structure.link_problems import LinkProblem, ProblemKind
from llama_index_ext_ctxaug.structure.neighbor_links import NeighborLinks
from llama_index_ext_ctxaug.structure.order_keys import OrderParameters
from llama_index_ext_ctxaug.structure.relationships import related_ids

_HINTS: Mapping[ProblemKind, str] = {
    "not_at_hand": "the nodes begin or end inside a document: pass whole documents in one call, "
    "in distributed runs with WholeDocuments([parser, linker, ...])",
    "repeated_page": "documents of one file repeat a page label and are kept apart: name more keys in "
    "document_key",
    "differing_page": "pages of one file differ in metadata: name its key in document_key if it tells files "
    "apart",
    "cut_file": "the nodes begin or end inside a file of pages: pass all its pages in one call, or read it "
    "as one document",
}

logger = logging.getLogger(__name__)


class LinkReport(NamedTuple):
    """The findings of a `NeighborLinker`.

    Attributes:
        set: number of missing or wrong relationships that it can set.
        removed: number of wrong relationships that it can only remove.
        problems: contradictions, in the order of the nodes.
    """

    set: int
    removed: int
    problems: tuple[LinkProblem, ...]


class NeighborLinker(TransformComponent, OrderParameters):
    """Set PREVIOUS and NEXT where they are missing or wrong.

    The first source that answers counts: a link that both nodes state; a link that one of them states;
    ids in metadata; the parent's CHILD list; a chunk number in metadata; character offsets; the order in
    which the nodes were passed in. The last child of a parent is followed by the first child of the next
    parent, and with `document_key` the last chunk of a page by the first chunk of the next page.

    Place it after the parser: LlamaIndex sets no NEXT where nodes are parsed from nodes
    (`HierarchicalNodeParser`, a `MarkdownNodeParser` followed by a `SentenceSplitter`).

    **Requires**: SOURCE relationships, or metadata under `document_key`. Nodes with neither are linked
    only by their own links and the ids in their metadata. All chunks of a document in one call.

    **Guarantees**: no links across documents or over a missing chunk number or child. Right links are
    kept. Input nodes are not changed: nodes with new links are copies, all others are returned as they
    are. A second run changes nothing.

    **On failure**: contradictions, and links to nodes that were not passed in, are reported in one warning;
    `check` returns them.

    Example:
        ```python
        from llama_index.core.ingestion import IngestionPipeline
        from llama_index.core.node_parser import MarkdownNodeParser, SentenceSplitter
        from llama_index_ext_ctxaug import NeighborLinker

        pipeline = IngestionPipeline(
            transformations=[MarkdownNodeParser(), SentenceSplitter(), NeighborLinker()]
        )
        ```
    """

    model_config = ConfigDict(extra="forbid")

    complete_documents: bool = Field(
        default=False,
        description="Treat links to nodes that are not passed in as wrong.",
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_class_name(cls, data: Any) -> Any:
        """Accept the class name that a transformation saved inside another one carries."""
        return {k: v for k, v in data.items() if k != "class_name"} if isinstance(data, dict) else data

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which the transformation is serialized."""
        return "NeighborLinker"

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """Link nodes.

        Args:
            nodes: the nodes of whole documents, in reading order where nothing else gives it.
            **kwargs: not used.

        Returns:
            The nodes in the same order; copies of those whose links changed.
        """
        links = self.neighbor_links(nodes)
        if links.problems:
            warn_of_problems(self.class_name(), links.problems)
        return [_with_links(node, links) for node in nodes]

    def check(self, nodes: Sequence[BaseNode]) -> LinkReport:
        """Report what a call on these nodes would change, without changing it."""
        links = self.neighbor_links(nodes)
        done = Counter(
            new is not None
            for node in links.nodes.values()
            for relationship, new in links.links(node).items()
            if not _is_linked(node, relationship, new)
        )
        return LinkReport(done[True], done[False], tuple(links.problems))

    def neighbor_links(self, nodes: Sequence[BaseNode]) -> NeighborLinks:
        """Find the links that hold between nodes; of nodes with the same id the first counts."""
        by_id: dict[str, BaseNode] = {}
        for node in nodes:
            by_id.setdefault(node.node_id, node)
        return NeighborLinks(ReadingOrder(by_id, self.order_keys), self.complete_documents)


def _is_linked(node: BaseNode, relationship: NodeRelationship, wanted: str | None) -> bool:
    stated = related_ids(node, relationship)
    return stated == ([] if wanted is None else [wanted])


def _with_links(node: BaseNode, links: NeighborLinks) -> BaseNode:
    """Return the node if its links are right, else a copy with the right ones."""
    wrong = {r: id_ for r, id_ in links.links(node).items() if not _is_linked(node, r, id_)}
    if not wrong:
        return node
    relationships = {**node.relationships}
    for relationship, id_ in wrong.items():
        relationships.pop(relationship, None)
        if id_ is not None:
            relationships[relationship] = _related(id_, links.nodes.get(id_))
    copy = node.model_copy()
    copy.relationships = relationships
    return copy


def _related(id_: str, node: BaseNode | None) -> RelatedNodeInfo:
    """Return a link with id and type alone, so that the neighbor's metadata is not stored again."""
    return RelatedNodeInfo(node_id=id_, node_type=node.get_type() if node else None)


def warn_of_problems(name: str, problems: Mapping[LinkProblem, None]) -> None:
    """Log all problems of a call as one warning.

    Args:
        name: the transformation that found them.
        problems: at least one problem.
    """
    counts = Counter(problem.kind for problem in problems)
    first = next(iter(problems))
    logger.warning(
        "%s: %d problems with links (%s); the first is %r%s",
        name,
        len(problems),
        ", ".join(f"{kind}: {count}" for kind, count in counts.items()),
        tuple(first),
        "".join(f"; {hint}" for kind, hint in _HINTS.items() if counts[kind]),
    )

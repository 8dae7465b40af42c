"""PREVIOUS and NEXT set where they are missing or wrong, before the nodes go into an index."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from llama_index.core.bridge.pydantic import ConfigDict, Field, model_validator
from llama_index.core.schema import BaseNode, NodeRelationship, RelatedNodeInfo, TransformComponent

from llama_index_ext_ctxaug.structure.document_order import LinkProblem, OrderKeys, Sequences
from llama_index_ext_ctxaug.structure.link_resolution import Chains
from llama_index_ext_ctxaug.structure.relationships import related_ids

logger = logging.getLogger(__name__)


class LinkReport(NamedTuple):
    """What a `NeighborLinker` finds in nodes.

    Attributes:
        set: number of relationships that were missing or wrong, and that it can set.
        removed: number of relationships that are wrong, with nothing to put in their place.
        problems: what does not fit together, in the order of the nodes.
    """

    set: int
    removed: int
    problems: tuple[LinkProblem, ...]


class NeighborLinker(TransformComponent):
    """Sets PREVIOUS and NEXT where they are missing or wrong, from whatever else tells the order.

    For each place the first that answers: a link that both nodes state; a link that one of them states;
    ids in metadata; the parent's CHILD list; a chunk number in metadata; character offsets; the order in
    which the nodes of a source were handed in. The last child of a parent is followed by the first child
    of the next parent, and with `document_key` the last chunk of a page by the first of the next page.

    Put it behind the parser: LlamaIndex sets no NEXT where nodes are parsed from nodes
    (`HierarchicalNodeParser`, a `MarkdownNodeParser` followed by a `SentenceSplitter`).

    **Requires**: SOURCE relationships, or metadata under `document_key`; nodes of which neither is known
    are linked by what they and their metadata state only. All chunks of a document in one call.

    **Guarantees**: never links across documents, never over a missing chunk number or child; links that
    are right stay as they are; nodes handed in are not changed (changed ones are copies, others come back
    as they are); a second run changes nothing.

    **On failure**: what does not fit together is reported, with one warning a call; `check` returns it.

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

    document_key: str | None = Field(
        default=None,
        description="Metadata key (such as file_path) that makes documents of one file count as one.",
    )
    page_key: str = Field(
        default="page_label", description="Metadata key that orders the documents of one file."
    )
    previous_id_key: str = Field(default="prev_id", description="Metadata key of the id of the node before.")
    next_id_key: str = Field(default="next_id", description="Metadata key of the id of the node after.")
    number_keys: list[str] = Field(
        default=["chunk_id", "split_id", "page_label"],
        description="Metadata keys of chunk numbers; the first that numbers all chunks of a source counts.",
    )
    across_parents: bool = Field(
        default=True, description="Link the last child of a parent to the first child of the next parent."
    )
    complete_documents: bool = Field(
        default=False,
        description="All chunks of the documents are handed in: a link to any other node is wrong.",
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_class_name(cls, data: Any) -> Any:
        """A transformation that was saved as a field of another one carries its name."""
        return {k: v for k, v in data.items() if k != "class_name"} if isinstance(data, dict) else data

    @classmethod
    def class_name(cls) -> str:
        """Name under which the transformation is serialized."""
        return "NeighborLinker"

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """Link nodes.

        Args:
            nodes: the nodes of whole documents, in reading order where nothing else tells it.
            **kwargs: not used.

        Returns:
            The nodes, in the order in which they came; copies of those whose links changed.
        """
        chains = self.chains(nodes)
        if chains.problems:
            warn_of_problems(self.class_name(), chains.problems)
        return [_with_links(node, chains) for node in nodes]

    def check(self, nodes: Sequence[BaseNode]) -> LinkReport:
        """Tell what a call would do, without doing it.

        Args:
            nodes: as for a call.

        Returns:
            The report.
        """
        chains = self.chains(nodes)
        done = Counter(
            new is not None
            for node in chains.nodes.values()
            for relationship, new in chains.links(node).items()
            if not _is_linked(node, relationship, new)
        )
        return LinkReport(done[True], done[False], tuple(chains.problems))

    def chains(self, nodes: Sequence[BaseNode]) -> Chains:
        """Which node follows which.

        Args:
            nodes: as for a call.

        Returns:
            The links that hold.
        """
        by_id: dict[str, BaseNode] = {}
        for node in nodes:
            by_id.setdefault(node.node_id, node)
        keys = OrderKeys(self.document_key, self.page_key, self.number_keys, self.across_parents)
        chains = Chains(Sequences(by_id, keys), self.complete_documents)
        chains.build((self.previous_id_key, self.next_id_key))
        return chains


def _is_linked(node: BaseNode, relationship: NodeRelationship, wanted: str | None) -> bool:
    stated = related_ids(node, relationship)
    return stated == ([] if wanted is None else [wanted])


def _with_links(node: BaseNode, chains: Chains) -> BaseNode:
    """The node itself where its links are right, else a copy with the right ones."""
    wrong = {r: id_ for r, id_ in chains.links(node).items() if not _is_linked(node, r, id_)}
    if not wrong:
        return node
    relationships = {**node.relationships}
    for relationship, id_ in wrong.items():
        relationships.pop(relationship, None)
        if id_ is not None:
            relationships[relationship] = _related(id_, chains.nodes.get(id_))
    copy = node.model_copy()
    copy.relationships = relationships
    return copy


def _related(id_: str, node: BaseNode | None) -> RelatedNodeInfo:
    """A link with id and type alone: the neighbor's metadata need not be stored a second time."""
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
        "%s: %d problems with links (%s); the first is %r",
        name,
        len(problems),
        ", ".join(f"{kind}: {count}" for kind, count in counts.items()),
        tuple(first),
    )

"""The ways of giving context that `evidence.py` compares, all over the same chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from evidence_data import Chunks
from llama_index.core.postprocessor import MetadataReplacementPostProcessor
from llama_index.core.postprocessor import PrevNextNodePostprocessor as UpstreamPrevNext
from llama_index.core.retrievers import AutoMergingRetriever, BaseRetriever
from llama_index.core.schema import (
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.storage import StorageContext

from llama_index_ext_ctxaug import (
    AutoMergingPostprocessor,
    PrevNextNodePostprocessor,
    RelevantSegmentsPostprocessor,
    read_provenance,
)
from llama_index_ext_ctxaug.testing import ObservedDocstore, docstore_of

FAMILY = 4
"""Chunks under one parent, and parents under one grandparent, for merging."""

Call = Callable[[list[NodeWithScore], str, int], list[NodeWithScore]]


class CountingStore(ObservedDocstore):
    """A docstore that counts the keys that are read."""

    @property
    def reads(self) -> int:
        """Keys read so far."""
        return len(self.node_reads) + len(self.document_reads)


@dataclass
class Way:
    """A way of giving context: hits in, nodes out; it does not know of budgets.

    Attributes:
        call: the hits, the question, the budget in tokens (0 where it does not matter).
        store: the docstore that it reads.
        members: chunk ids that a node of the output stands for, where its text is that of several.
    """

    call: Call
    store: CountingStore
    members: dict[str, list[str]] = field(default_factory=dict)

    def chunks_of(self, hit: NodeWithScore) -> list[str]:
        """Ids of the chunks whose text a node of the output holds."""
        provenance = read_provenance(hit.node)
        if provenance is not None and provenance.pieces:
            return [piece.node_id for piece in provenance.pieces]
        return self.members.get(hit.node.node_id, [hit.node.node_id])

    @staticmethod
    def text(hit: NodeWithScore) -> str:
        """The text that a model gets of a node."""
        return str(hit.node.get_content(metadata_mode=MetadataMode.LLM))


class Wide(Way):
    """A way that takes the whole pool and fills the budget by itself."""


def ways_over(chunks: Chunks, plain: bool = False) -> dict[str, Way | Wide]:
    """All ways over these chunks, or the plain one alone."""
    top = Way(lambda hits, text, budget: hits, CountingStore(docstore_of()))
    if plain:
        return {"top-k": top}
    docstore = CountingStore(docstore_of(chunks.nodes))

    def fixed(kind: type, **parameters: Any) -> Way:
        augmenter = kind(docstore=docstore, **parameters)
        return Way(lambda hits, text, budget: augmenter.postprocess_nodes(hits, query_str=text), docstore)

    def chosen(**parameters: Any) -> Wide:
        def call(hits: list[NodeWithScore], text: str, budget: int) -> list[NodeWithScore]:
            augmenter = RelevantSegmentsPostprocessor(
                docstore=docstore, token_budget=budget, output="passages", **parameters
            )
            return augmenter.postprocess_nodes(hits, query_str=text)

        return Wide(call, docstore)

    upstream_merging, our_merging = merging(chunks)
    return {
        "top-k": top,
        "LlamaIndex PrevNext, next 1": fixed(UpstreamPrevNext, num_nodes=1, mode="next"),
        "LlamaIndex PrevNext, both 1": fixed(UpstreamPrevNext, num_nodes=1, mode="both"),
        "LlamaIndex PrevNext, both 2": fixed(UpstreamPrevNext, num_nodes=2, mode="both"),
        "LlamaIndex MetadataReplacement, 1 each side": replacement(chunks, docstore, 1),
        "LlamaIndex AutoMerging, families of 4": upstream_merging,
        "AutoMerging, families of 4": our_merging,
        "PrevNext, both 1": fixed(PrevNextNodePostprocessor, num_nodes=1, mode="both", output="passages"),
        "PrevNext, both 2": fixed(PrevNextNodePostprocessor, num_nodes=2, mode="both", output="passages"),
        "dsRAG's sums (balanced)": chosen(method="rse", overall_max_length=400),
        "dsRAG's sums (find_all)": chosen(method="rse", preset="find_all", overall_max_length=400),
        "dsRAG's sums (penalty 0.2, no minimum)": chosen(
            method="rse", irrelevant_chunk_penalty=0.2, minimum_value=0.0, overall_max_length=400
        ),
        "RelevantSegments": chosen(),
    }


def replacement(chunks: Chunks, store: CountingStore, reach: int) -> Way:
    """LlamaIndex's window in metadata, the window being the chunks on both sides of each."""
    members: dict[str, list[str]] = {}
    windows: dict[str, str] = {}
    for place, node in enumerate(chunks.nodes):
        around = chunks.nodes[max(0, place - reach) : place + reach + 1]
        inside = [one for one in around if one.ref_doc_id == node.ref_doc_id]
        members[node.node_id] = [one.node_id for one in inside]
        windows[node.node_id] = " ".join(one.text for one in inside)
    postprocessor = MetadataReplacementPostProcessor(target_metadata_key="window")

    def call(hits: list[NodeWithScore], text: str, budget: int) -> list[NodeWithScore]:
        copies = []
        for hit in hits:
            node = hit.node.model_copy(deep=True)
            node.metadata["window"] = windows[node.node_id]
            node.excluded_llm_metadata_keys = ["window"]
            copies.append(NodeWithScore(node=node, score=hit.score))
        return postprocessor.postprocess_nodes(copies)

    return Way(call, store, members)


class Given(BaseRetriever):
    """Returns the hits that it was given."""

    hits: list[NodeWithScore] = []  # noqa: RUF012

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.hits


def merging(chunks: Chunks) -> tuple[Way, Way]:
    """LlamaIndex's AutoMergingRetriever over parents of 4 chunks and their parents of 4, and ours."""
    members: dict[str, list[str]] = {}
    level = [node.model_copy(deep=True) for node in chunks.nodes]
    leaves = {node.node_id: node for node in level}
    everything = list(level)
    for depth in range(2):
        parents: list[TextNode] = []
        for family in _families(level):
            parent = TextNode(
                id_=f"parent-{depth}-{family[0].node_id}", text=" ".join(n.text for n in family)
            )
            parent.relationships[NodeRelationship.SOURCE] = family[0].relationships[NodeRelationship.SOURCE]
            parent.relationships[NodeRelationship.CHILD] = [
                RelatedNodeInfo(node_id=n.node_id) for n in family
            ]
            for node in family:
                node.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id=parent.node_id)
            members[parent.node_id] = [
                id_ for node in family for id_ in members.get(node.node_id, [node.node_id])
            ]
            parents.append(parent)
        everything += parents
        level = parents
    docstore = CountingStore(docstore_of(everything))
    retriever = Given()
    merger = AutoMergingRetriever(
        retriever, StorageContext.from_defaults(docstore=docstore), simple_ratio_thresh=0.5
    )

    augmenter = AutoMergingPostprocessor(docstore=docstore)

    def leaves_of(hits: list[NodeWithScore]) -> list[NodeWithScore]:
        return [NodeWithScore(node=leaves[hit.node.node_id], score=hit.score) for hit in hits]

    def upstream(hits: list[NodeWithScore], text: str, budget: int) -> list[NodeWithScore]:
        retriever.hits = leaves_of(hits)
        return merger.retrieve(text)

    def ours(hits: list[NodeWithScore], text: str, budget: int) -> list[NodeWithScore]:
        return augmenter.postprocess_nodes(leaves_of(hits), query_str=text)

    return Way(upstream, docstore, members), Way(ours, docstore, members)


def _families(nodes: list[TextNode]) -> list[list[TextNode]]:
    """Neighbors of one document, four at a time."""
    families: list[list[TextNode]] = []
    for node in nodes:
        last = families[-1] if families else []
        if last and len(last) < FAMILY and last[0].ref_doc_id == node.ref_doc_id:
            last.append(node)
        else:
            families.append([node])
    return families

"""LlamaIndex's auto-merging retriever over `AutoMergingPostprocessor`."""

from __future__ import annotations

import logging

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import IndexNode, MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.storage import StorageContext
from llama_index.core.utils import truncate_text

from llama_index_ext_ctxaug.engine.verbose import show
from llama_index_ext_ctxaug.passages.provenance import read_provenance
from llama_index_ext_ctxaug.postprocessors.auto_merging import AutoMergingPostprocessor

logger = logging.getLogger(__name__)


class AutoMergingRetriever(BaseRetriever):
    """Retrieves, then replaces children by their parent if enough of them were retrieved.

    Name and signature are those of LlamaIndex's retriever: change the import, nothing else. It is
    `AutoMergingPostprocessor` with the mean of the children's scores and `fill_gaps=0`; use the postprocessor
    for its other parameters.

    **Guarantees**: those of `AutoMergingPostprocessor`. Async calls retrieve and read with async methods.

    **On failure**: a parent that is not in the docstore does not merge, with one warning per call.

    Example:
        ```python
        from llama_index_ext_ctxaug import AutoMergingRetriever

        storage_context.docstore.add_documents(nodes)  # all levels; the index holds the leaves
        retriever = AutoMergingRetriever(index.as_retriever(similarity_top_k=12), storage_context)
        engine = RetrieverQueryEngine.from_args(retriever)
        ```
    """

    def __init__(  # noqa: PLR0917 - the signature is LlamaIndex's
        self,
        vector_retriever: BaseRetriever,
        storage_context: StorageContext,
        simple_ratio_thresh: float = 0.5,
        verbose: bool = False,
        callback_manager: CallbackManager | None = None,
        object_map: dict[str, object] | None = None,
        objects: list[IndexNode] | None = None,
    ) -> None:
        """Make the retriever.

        Args:
            vector_retriever: retrieves the children.
            storage_context: its docstore holds the parents.
            simple_ratio_thresh: a parent merges if the retrieved share of its children exceeds this.
            verbose: show each merge.
            callback_manager: LlamaIndex's callbacks.
            object_map: objects of index nodes by id.
            objects: index nodes with their objects.
        """
        self._vector_retriever = vector_retriever
        self._merger = AutoMergingPostprocessor(
            docstore=storage_context.docstore,
            simple_ratio_thresh=simple_ratio_thresh,
            fill_gaps=0,
            parent_score="mean",
        )
        super().__init__(
            callback_manager=callback_manager, object_map=object_map, objects=objects, verbose=verbose
        )

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = self._vector_retriever.retrieve(query_bundle)
        return self._shown(self._merger.postprocess_nodes(found, query_bundle))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = await self._vector_retriever.aretrieve(query_bundle)
        return self._shown(await self._merger.apostprocess_nodes(found, query_bundle))

    def _shown(self, result: list[NodeWithScore]) -> list[NodeWithScore]:
        for hit in result if self._verbose else ():
            provenance = read_provenance(hit.node)
            if provenance is not None and provenance.role == "parent":
                text = truncate_text(hit.node.get_content(metadata_mode=MetadataMode.NONE), 100)
                show(
                    logger,
                    "> Merging %d nodes into parent node %s: %s",
                    len(provenance.hits),
                    hit.node.node_id,
                    text,
                )
        return result

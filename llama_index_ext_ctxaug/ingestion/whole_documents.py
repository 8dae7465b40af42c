"""Run several transformations on whole documents as one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.bridge.pydantic import ConfigDict, Field, SerializeAsAny
from llama_index.core.schema import BaseNode, TransformComponent


class WholeDocuments(TransformComponent):
    """Run transformations on whole documents as one step, so that no batch ends inside a document.

    Distributed engines batch nodes anew before each transformation: a linker that follows a parser would see
    parts of documents and lose the links and windows at the edges of batches. In one step the parser and all
    transformations after it see the documents of the batch whole, and the result is the same with any number
    of workers and any size of batch.

    **Requires**: documents as input, each of them whole. Documents that `NeighborLinker.document_key` joins,
    such as the pages of a file, must be in the same batch: read the file as one document where the engine
    chooses the batches.

    **On failure**: errors of the transformations are raised.

    Example:
        ```python
        from llama_index.core.ingestion import IngestionPipeline
        from llama_index.core.node_parser import SentenceSplitter
        from llama_index_ext_ctxaug import NeighborLinker, WholeDocuments, WindowExtractor

        step = WholeDocuments([SentenceSplitter(chunk_size=128), NeighborLinker(), WindowExtractor()])
        pipeline = IngestionPipeline(transformations=[step])
        nodes = pipeline.run(documents=[Document(text="One is. Two is.")], num_workers=2)
        ```
    """

    model_config = ConfigDict(extra="forbid")

    transformations: list[SerializeAsAny[TransformComponent]] = Field(
        min_length=1, description="Transformations in order, the parser first."
    )

    def __init__(self, transformations: Sequence[TransformComponent], **kwargs: Any) -> None:
        """Take the transformations, positionally or by name."""
        super().__init__(**{**kwargs, "transformations": list(transformations)})

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which the transformation is serialized."""
        return "WholeDocuments"

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """Run all transformations on whole documents; keyword arguments are passed to each."""
        for transformation in self.transformations:
            nodes = transformation(nodes, **kwargs)
        return nodes

    async def acall(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """Run all transformations on whole documents through their async methods."""
        for transformation in self.transformations:
            nodes = await transformation.acall(nodes, **kwargs)
        return nodes

"""The base of postprocessors that read a docstore, with the parameters that they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from llama_index.core.bridge.pydantic import (
    BeforeValidator,
    Field,
    field_serializer,
    field_validator,
    model_validator,
)
from llama_index.core.indices.base import BaseIndex
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.vector_stores import MetadataFilters
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from typing_extensions import Self

from llama_index_ext_ctxaug.docstores.batch_reader import BatchReader
from llama_index_ext_ctxaug.docstores.index_docstore import docstore_of_index
from llama_index_ext_ctxaug.engine.flow_postprocessor import FlowPostprocessor
from llama_index_ext_ctxaug.expansion.expansion import Expansion
from llama_index_ext_ctxaug.expansion.filters import NeighborFilter, node_filter
from llama_index_ext_ctxaug.expansion.walk import Filter
from llama_index_ext_ctxaug.passages.passage import Chunk
from llama_index_ext_ctxaug.structure.adjacency import Adjacency
from llama_index_ext_ctxaug.structure.order_keys import OrderParameters


def _explain_wrong_docstore(value: Any) -> Any:
    if isinstance(value, BaseDocumentStore):
        return value
    kind = type(value).__name__
    if isinstance(value, BaseIndex):
        hint = "use from_index(index, ...) of this class"
    elif isinstance(value, BasePydanticVectorStore):
        hint = "pass docstore=VectorStoreDocstore(vector_store)"
    elif isinstance(getattr(value, "docstore", None), BaseDocumentStore):
        hint = f"the docstore of this {kind} is its attribute: pass docstore=....docstore"
    elif isinstance(value, Sequence) and not isinstance(value, str):
        hint = "put the nodes into a store: docstore = SimpleDocumentStore(); docstore.add_documents(nodes)"
    else:
        hint = "pass index.docstore, storage_context.docstore, or another store that holds the nodes"
    raise ValueError(f"docstore must be a BaseDocumentStore, got {kind}; {hint}")


def _is_saved(filters: Any) -> bool:
    return isinstance(filters, dict) and "filters" in filters


class DocstorePostprocessor(FlowPostprocessor, OrderParameters):
    """A postprocessor that reads neighbors from a docstore."""

    _ignored: ClassVar[frozenset[str]] = frozenset()
    """Parameters without effect that LlamaIndex's class of the same name accepts too."""

    docstore: Annotated[BaseDocumentStore, BeforeValidator(_explain_wrong_docstore)] = Field(
        description="The document store that holds the nodes.", exclude=True
    )
    neighbor_filters: MetadataFilters | NeighborFilter | None = Field(
        default=None, description="Nodes that may be added: LlamaIndex's MetadataFilters, or a function."
    )
    strict: bool = Field(default=False, description="Raise if a neighbor is not in the docstore.")
    on_store_error: Literal["raise", "return_hits"] = Field(
        default="raise", description="What happens if the docstore raises."
    )
    timeout: float | None = Field(
        default=None,
        gt=0,
        description="Maximum seconds to wait for one read of the docstore; then it fails (TimeoutError).",
    )
    max_concurrency: int = Field(
        default=8,
        ge=1,
        description="Maximum concurrent reads if the docstore is slow and reads nodes one by one only.",
    )
    repair_links: bool = Field(
        default=True, description="Look for the neighbors of nodes that lack their own relationships."
    )

    @classmethod
    def from_index(cls, index: BaseIndex[Any], **parameters: Any) -> Self:
        """Create a postprocessor that reads the nodes of an index.

        Args:
            index: the index; nodes are read from its docstore, and from its vector store if that keeps them.
            parameters: the parameters of this class, except `docstore`.

        Raises:
            ConfigurationError: neither store of the index can be read.
        """
        return cls(docstore=docstore_of_index(index), **parameters)

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if "docstore" not in data:
            raise ValueError(
                f"{cls.__name__} needs docstore=..., for instance docstore=index.docstore; a saved one does "
                "not hold its docstore: from_dict(data, docstore=...)"
            )
        return {name: value for name, value in data.items() if name not in cls._ignored}

    @field_validator("neighbor_filters", mode="before")
    @classmethod
    def _check_filters(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(  # noqa: TRY004
                f"neighbor_filters was the function {value!r}, which cannot be saved: "
                "pass it again, from_dict(data, docstore=..., neighbor_filters=...)"
            )
        if not (value is None or callable(value) or isinstance(value, MetadataFilters) or _is_saved(value)):
            raise ValueError(
                f"neighbor_filters must be MetadataFilters or a function of a node, got {value!r}; "
                "for equal values pass MetadataFilters.from_dict({key: value})"
            )
        return value

    @field_serializer("neighbor_filters", when_used="always")
    def _name_function(self, value: Any) -> Any:
        if callable(value):
            return getattr(value, "__qualname__", repr(type(value)))
        return value

    def _new_expansion(self, hits: dict[str, Chunk]) -> Expansion:
        reader = BatchReader(
            self.docstore,
            {id_: chunk.node for id_, chunk in hits.items()},
            max_concurrency=self.max_concurrency,
            timeout=self.timeout,
        )
        return Expansion(hits, Adjacency(reader, self.order_keys, self.repair_links), self._filter())

    def _filter(self) -> Filter | None:
        passes = node_filter(self.neighbor_filters)
        if passes is None:
            return None
        return lambda node: None if passes(node) else "filter"

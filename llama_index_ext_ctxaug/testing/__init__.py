"""Tools for testing augmenters and docstores, the package's and your own.

They need nothing but llama-index-core; run `DocstoreConformance` with pytest.
"""

from llama_index_ext_ctxaug.testing.docstore_conformance import DocstoreConformance
from llama_index_ext_ctxaug.testing.kit import (
    ObservedDocstore,
    ScriptedLLM,
    WordEmbedding,
    docstore_of,
    hits,
    linked_document,
)
from llama_index_ext_ctxaug.testing.relay import Relay

__all__ = [
    "DocstoreConformance",
    "ObservedDocstore",
    "Relay",
    "ScriptedLLM",
    "WordEmbedding",
    "docstore_of",
    "hits",
    "linked_document",
]

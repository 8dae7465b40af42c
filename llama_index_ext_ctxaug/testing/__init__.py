"""A kit for tests of augmenters and of docstores, for those who write one of their own too.

It needs nothing but llama-index-core; `DocstoreConformance` is meant to be run by pytest.
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

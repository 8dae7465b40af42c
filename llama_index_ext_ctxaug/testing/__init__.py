"""A kit for tests of augmenters and docstores.

It needs nothing but llama-index-core, except `AugmenterConformance` and `PostprocessorConformance`, which
need hypothesis and blockbuster. Run the conformance suites with pytest.
"""

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from llama_index_ext_ctxaug.testing.augmenter_conformance import (
        AugmenterConformance,
        PostprocessorConformance,
    )

__all__ = [
    "AugmenterConformance",
    "DocstoreConformance",
    "ObservedDocstore",
    "PostprocessorConformance",
    "Relay",
    "ScriptedLLM",
    "WordEmbedding",
    "docstore_of",
    "hits",
    "linked_document",
]


def __getattr__(name: str) -> Any:
    if name not in ("AugmenterConformance", "PostprocessorConformance"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from llama_index_ext_ctxaug.testing import augmenter_conformance
    except ImportError as error:
        raise ImportError(
            f"{name} needs hypothesis and blockbuster: pip install 'llama-index-ext-ctxaug[test]'"
        ) from error
    return getattr(augmenter_conformance, name)

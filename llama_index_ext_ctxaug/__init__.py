"""Context augmentation for LlamaIndex: gives each retrieved chunk back what surrounds it."""

from llama_index_ext_ctxaug.docstores.bulk import register_bulk_read
from llama_index_ext_ctxaug.docstores.vector_store import VectorStoreDocstore
from llama_index_ext_ctxaug.errors import (
    ConfigurationError,
    ContextAugmentationError,
    MissingNodeError,
    RefusedNodeError,
    UnclearAnswerError,
)
from llama_index_ext_ctxaug.events import (
    ContextAugmentationEndEvent,
    ContextAugmentationStartEvent,
    DirectionsChosenEvent,
)
from llama_index_ext_ctxaug.expansion.expansion import Expansion, Reach
from llama_index_ext_ctxaug.expansion.walk import StopAfter, StopCondition, Walk
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.ingestion.neighbor_linker import LinkReport, NeighborLinker
from llama_index_ext_ctxaug.ingestion.sentences import SentenceWindowParser, SentencexSplitter
from llama_index_ext_ctxaug.ingestion.source_offsets import SourceOffsets
from llama_index_ext_ctxaug.ingestion.whole_documents import WholeDocuments
from llama_index_ext_ctxaug.ingestion.window_extractor import WindowExtractor
from llama_index_ext_ctxaug.passages.citations import Citation, cite
from llama_index_ext_ctxaug.passages.passage import Chunk, StopReason
from llama_index_ext_ctxaug.passages.pieces import Piece, Provenance
from llama_index_ext_ctxaug.passages.provenance import PROVENANCE_KEY, read_provenance
from llama_index_ext_ctxaug.postprocessors.auto_merging import AutoMergingPostprocessor
from llama_index_ext_ctxaug.postprocessors.auto_prev_next import AutoPrevNextNodePostprocessor
from llama_index_ext_ctxaug.postprocessors.base import ContextAugmenter
from llama_index_ext_ctxaug.postprocessors.brsr import BRSRPostprocessor
from llama_index_ext_ctxaug.postprocessors.embedding_rescore import EmbeddingRescorePostprocessor
from llama_index_ext_ctxaug.postprocessors.metadata_replacement import MetadataReplacementPostProcessor
from llama_index_ext_ctxaug.postprocessors.prev_next import PrevNextNodePostprocessor
from llama_index_ext_ctxaug.postprocessors.relevant_segment_extraction import (
    RelevantSegmentExtractionPostprocessor,
)
from llama_index_ext_ctxaug.postprocessors.relevant_segments import RelevantSegmentsPostprocessor
from llama_index_ext_ctxaug.postprocessors.rerank import RerankPostprocessor
from llama_index_ext_ctxaug.postprocessors.section import SectionPostprocessor
from llama_index_ext_ctxaug.postprocessors.sliding_window import SlidingWindowPostprocessor
from llama_index_ext_ctxaug.postprocessors.token_budget import TokenBudgetPostprocessor
from llama_index_ext_ctxaug.postprocessors.whole_documents import WholeDocumentsPostprocessor
from llama_index_ext_ctxaug.retrievers.auto_merging import AutoMergingRetriever
from llama_index_ext_ctxaug.structure.diagnosis import Diagnosis, Finding, diagnose
from llama_index_ext_ctxaug.structure.headings import Sections
from llama_index_ext_ctxaug.structure.link_problems import LinkProblem
from llama_index_ext_ctxaug.tools.failures import ReadingError
from llama_index_ext_ctxaug.tools.read_around import ReadAroundToolSpec
from llama_index_ext_ctxaug.tools.reading import Reading

__version__ = "0.2.0"

__all__ = [
    "PROVENANCE_KEY",
    "AutoMergingPostprocessor",
    "AutoMergingRetriever",
    "AutoPrevNextNodePostprocessor",
    "BRSRPostprocessor",
    "Chunk",
    "Citation",
    "ConfigurationError",
    "ContextAugmentationEndEvent",
    "ContextAugmentationError",
    "ContextAugmentationStartEvent",
    "ContextAugmenter",
    "Diagnosis",
    "DirectionsChosenEvent",
    "EmbeddingRescorePostprocessor",
    "Expansion",
    "Finding",
    "Flow",
    "LinkProblem",
    "LinkReport",
    "MetadataReplacementPostProcessor",
    "MissingNodeError",
    "NeighborLinker",
    "Piece",
    "PrevNextNodePostprocessor",
    "Provenance",
    "Reach",
    "ReadAroundToolSpec",
    "Reading",
    "ReadingError",
    "RefusedNodeError",
    "RelevantSegmentExtractionPostprocessor",
    "RelevantSegmentsPostprocessor",
    "RerankPostprocessor",
    "SectionPostprocessor",
    "Sections",
    "SentenceWindowParser",
    "SentencexSplitter",
    "SlidingWindowPostprocessor",
    "SourceOffsets",
    "StopAfter",
    "StopCondition",
    "StopReason",
    "TokenBudgetPostprocessor",
    "UnclearAnswerError",
    "VectorStoreDocstore",
    "Walk",
    "WholeDocuments",
    "WholeDocumentsPostprocessor",
    "WindowExtractor",
    "cite",
    "diagnose",
    "read_provenance",
    "register_bulk_read",
]

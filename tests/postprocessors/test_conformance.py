"""Every postprocessor of the package passes the conformance suites."""

from __future__ import annotations

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import QueryBundle

import llama_index_ext_ctxaug as package
from llama_index_ext_ctxaug import (
    AutoMergingPostprocessor,
    AutoPrevNextNodePostprocessor,
    BRSRPostprocessor,
    ContextAugmenter,
    EmbeddingRescorePostprocessor,
    Expansion,
    Flow,
    MetadataReplacementPostProcessor,
    PrevNextNodePostprocessor,
    Reach,
    RelevantSegmentExtractionPostprocessor,
    RelevantSegmentsPostprocessor,
    RerankPostprocessor,
    SectionPostprocessor,
    Sections,
    SlidingWindowPostprocessor,
    TokenBudgetPostprocessor,
    WholeDocumentsPostprocessor,
)
from llama_index_ext_ctxaug.testing import (
    AugmenterConformance,
    PostprocessorConformance,
    ScriptedLLM,
    WordEmbedding,
)


class TestPrevNext(AugmenterConformance):
    augmenter = PrevNextNodePostprocessor
    parameters = {"num_previous": 2, "num_next": 4}


class TestPrevNextPassages(AugmenterConformance):
    augmenter = PrevNextNodePostprocessor
    parameters = {"num_nodes": 1, "mode": "both", "output": "passages"}


class TestAutoPrevNext(AugmenterConformance):
    augmenter = AutoPrevNextNodePostprocessor
    parameters = {"llm": ScriptedLLM(answers=lambda prompt: "NEXT" if "chunk 3" in prompt else "PREVIOUS")}


class TestSection(AugmenterConformance):
    augmenter = SectionPostprocessor
    parameters = {"expansion_tokens": 40}


class TestSectionWithSubsections(AugmenterConformance):
    augmenter = SectionPostprocessor
    parameters = {"expansion_tokens": 15, "stop_at": "same_or_higher", "output": "passages"}
    max_round_trips = 5


class TestAutoMerging(AugmenterConformance):
    augmenter = AutoMergingPostprocessor


class TestRelevantSegments(AugmenterConformance):
    augmenter = RelevantSegmentsPostprocessor
    parameters = {"token_budget": 60}
    drops_hits = True


class TestRelevantSegmentExtraction(AugmenterConformance):
    augmenter = RelevantSegmentExtractionPostprocessor
    drops_hits = True


class TestWholeDocuments(AugmenterConformance):
    augmenter = WholeDocumentsPostprocessor
    parameters = {"token_budget": None}


class TestBRSR(AugmenterConformance):
    augmenter = BRSRPostprocessor
    parameters = {"embed_model": WordEmbedding(), "window_tokens": 12, "stride_tokens": 4, "top_n": 3}
    drops_hits = True
    rescores = True
    max_round_trips = 5


class TestMetadataReplacement(PostprocessorConformance):
    augmenter = MetadataReplacementPostProcessor
    parameters = {"target_metadata_key": "window"}


class TestSlidingWindow(PostprocessorConformance):
    augmenter = SlidingWindowPostprocessor
    parameters = {"window_tokens": 5, "stride_tokens": 3}
    drops_hits = True


class TestRerank(PostprocessorConformance):
    augmenter = RerankPostprocessor
    parameters = {"embed_model": WordEmbedding(), "top_n": 100}
    rescores = True


class TestEmbeddingRescore(PostprocessorConformance):
    augmenter = EmbeddingRescorePostprocessor
    parameters = {"embed_model": WordEmbedding()}
    rescores = True


class TestTokenBudget(PostprocessorConformance):
    augmenter = TokenBudgetPostprocessor
    parameters = {"token_budget": 30}
    drops_hits = True


class TwoBeforePostprocessor(ContextAugmenter):
    """Adds the two chunks before each hit, unless the hit opens a section: the example of README.md."""

    def expand(self, expansion: Expansion, query: QueryBundle | None) -> Flow[None]:
        """Walk back from the hits that are inside a section."""
        sections = Sections()
        inside = [id_ for id_, hit in expansion.hits.items() if sections.opening(hit.node) is None]
        yield from expansion.expand(dict.fromkeys(inside, Reach(previous=2)))


class TestTwoBefore(AugmenterConformance):
    augmenter = TwoBeforePostprocessor


def test_no_postprocessor_is_left_out() -> None:
    """Each postprocessor that the package exports has a conformance class here."""
    held = {
        kind.augmenter
        for kind in globals().values()
        if isinstance(kind, type) and issubclass(kind, PostprocessorConformance) and "augmenter" in vars(kind)
    }
    exported = {
        kind
        for name in package.__all__
        if isinstance(kind := getattr(package, name), type) and issubclass(kind, BaseNodePostprocessor)
    }
    assert exported - {ContextAugmenter} == held - {TwoBeforePostprocessor}

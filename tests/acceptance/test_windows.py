"""Windows in metadata, as users of LlamaIndex, AutoRAG, DocETL and LangChain expect them.

LlamaIndex's splitters are kept, not replaced: these tests cover windows over their chunks. Without a
counterpart: DocETL's markers and its note of skipped characters, since a window is the document's own text.
"""

from __future__ import annotations

import copy
import logging

import pytest
from helpers import Postprocess
from llama_index.core.node_parser import SentenceSplitter, SentenceWindowNodeParser, TokenTextSplitter
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import Document, MetadataMode, NodeRelationship, NodeWithScore, TextNode
from llama_index.core.utils import get_tokenizer
from pydantic import ValidationError

from llama_index_ext_ctxaug import (
    MetadataReplacementPostProcessor,
    NeighborLinker,
    SentenceWindowParser,
    SentencexSplitter,
    WindowExtractor,
)
from llama_index_ext_ctxaug.testing import ScriptedLLM, linked_document

CHINESE = "今天天气很好。我们去公园散步。他在家看书！你呢？"


def hit(text: str, **metadata: object) -> NodeWithScore:
    """A hit with this text and metadata."""
    return NodeWithScore(node=TextNode(text=text, metadata=metadata), score=0.5)


def test_the_text_under_the_key_replaces(postprocess: Postprocess) -> None:
    """Text "a" with "b" under the key becomes "b", one node."""
    out = postprocess(MetadataReplacementPostProcessor(target_metadata_key="key"), [hit("a", key="b")])
    assert [one.node.get_content() for one in out] == ["b"]


def test_without_the_key_the_text_stays(postprocess: Postprocess) -> None:
    """Without the key, or with None under it, the text is kept."""
    out = postprocess(MetadataReplacementPostProcessor("key"), [hit("a", other="b"), hit("c", key=None)])
    assert [one.node.get_content() for one in out] == ["a", "c"]


@pytest.mark.parametrize("parser", [SentenceWindowNodeParser, SentenceWindowParser])
def test_windows_of_three_sentences(parser: type[SentenceWindowNodeParser]) -> None:
    """Three sentences make 3 nodes; the first window holds all three, the metadata the original text."""
    nodes = parser.from_defaults().get_nodes_from_documents([Document(text="One is. Two is. Three is.")])
    assert len(nodes) == 3
    assert nodes[0].metadata["window"].split() == ["One", "is.", "Two", "is.", "Three", "is."]
    assert [node.metadata["original_text"].strip() for node in nodes] == ["One is.", "Two is.", "Three is."]


@pytest.mark.parametrize("windows", [True, False])
def test_the_prompt_holds_the_windows(windows: bool) -> None:
    """The prompt holds the windows joined by a blank line, or the contents if there are no windows."""
    hits = [
        hit("own 1", **({"window": "wide 1"} if windows else {})),
        hit("own 2", **({"window": "wide 2"} if windows else {})),
    ]
    out = MetadataReplacementPostProcessor("window").postprocess_nodes(hits)
    llm = ScriptedLLM(answers=["answer"])
    get_response_synthesizer(llm=llm).synthesize("question", nodes=out)
    expected = "wide 1\n\nwide 2" if windows else "own 1\n\nown 2"
    assert expected in llm.prompts[0]
    assert llm.prompts[0].count("1") == 1


@pytest.mark.parametrize(("layout", "size"), [("joined", 1), ("sides", 1), ("joined", 4)])
def test_fields_survive_and_no_model_is_called(layout: str, size: int) -> None:
    """12 chunks of two documents give 12 nodes with all their fields, and no model is called."""
    nodes = [
        *linked_document(6, source_id="one", metadata={"author": "A"}, offsets=True),
        *linked_document(6, source_id="two", metadata={"author": "B"}),
    ]
    out = WindowExtractor(window_size=size, layout=layout)(nodes)
    assert len(out) == 12
    for node, wide in zip(nodes, out, strict=True):
        same = wide.model_copy(
            update={
                "metadata": node.metadata,
                "excluded_llm_metadata_keys": [],
                "excluded_embed_metadata_keys": [],
            }
        )
        assert same == node
        assert node.metadata.items() <= wide.metadata.items()


def test_the_chunk_s_text_is_unchanged() -> None:
    """The chunk's own text is unchanged."""
    nodes = linked_document(3)
    assert [node.text for node in WindowExtractor()(nodes)] == [node.text for node in nodes]


def test_a_window_needs_a_size() -> None:
    """A window without a number of chunks is rejected."""
    for size in (0, -1, None):
        with pytest.raises(ValidationError):
            WindowExtractor(window_size=size)


def test_empty_input_gives_empty_output(postprocess: Postprocess) -> None:
    """Empty input gives empty output."""
    assert WindowExtractor()([]) == []
    assert NeighborLinker()([]) == []
    assert postprocess(MetadataReplacementPostProcessor("window"), []) == []


def test_text_before_and_after_under_custom_keys() -> None:
    """The text before and after a chunk is written under custom keys."""
    extractor = WindowExtractor(
        window_size=1, layout="sides", previous_metadata_key="before", next_metadata_key="after"
    )
    out = extractor(linked_document(["a", "b", "c"]))
    assert (out[1].metadata["before"], out[1].metadata["after"]) == ("a ", " c")


def test_chinese_sentences() -> None:
    """Four Chinese sentences are 4 nodes, and a window has no added spaces."""
    nodes = SentenceWindowParser(window_size=1)([Document(text=CHINESE)])
    assert len(nodes) == 4
    assert nodes[1].metadata["window"] == "今天天气很好。我们去公园散步。他在家看书！"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("今日は晴れ。公園へ行く。", 2),
        ("मैं गया। वह आया।", 2),
        ("안녕. 반가워. 네.", 3),
        ("نعم. هل أنت هنا؟ لا.", 3),
    ],
)
def test_sentences_of_other_scripts(text: str, count: int) -> None:
    """Japanese, Hindi, Korean and Arabic are split into sentences too."""
    assert len(SentencexSplitter()(text)) == count


def test_windows_over_overlapping_chinese_chunks() -> None:
    """Windows over Chinese chunks of 512 tokens, 128 of them shared, hold shared text once."""
    text = "".join(chr(0x4E00 + n) for n in range(2000))
    nodes = SentenceSplitter(chunk_size=512, chunk_overlap=128)([Document(text=text)])
    assert nodes[0].end_char_idx > nodes[1].start_char_idx
    for node in WindowExtractor(window_size=1)(nodes):
        assert node.metadata["window"] in text


def test_windows_over_a_run_without_punctuation() -> None:
    """A run of 3,000 characters without punctuation has chunks within the limit, and windows."""
    text = "".join(chr(0x4E00 + n % 700) for n in range(3000))
    nodes = SentenceSplitter(chunk_size=512, chunk_overlap=128)([Document(text=text)])
    assert all(len(get_tokenizer()(node.text)) <= 512 for node in nodes)
    assert all(node.metadata["window"] in text for node in WindowExtractor()(nodes))
    assert SentencexSplitter()(text) == [text]


def test_windows_over_characters_of_many_tokens() -> None:
    """Small chunks of characters that take several tokens have windows too."""
    nodes = TokenTextSplitter(chunk_size=12, chunk_overlap=0)([Document(text="보험" * 10)])
    assert all(node.metadata["window"] in "보험" * 10 for node in WindowExtractor(window_size=2)(nodes))
    assert SentencexSplitter()("🚀") == ["🚀"]


def test_sentences_are_linked() -> None:
    """Sentences carry SOURCE, PREVIOUS and NEXT."""
    nodes = SentenceWindowParser()([Document(text=CHINESE, id_="doc")])
    assert all(node.ref_doc_id == "doc" for node in nodes)
    assert [NodeRelationship.NEXT in node.relationships for node in nodes] == [True, True, True, False]
    assert [NodeRelationship.PREVIOUS in node.relationships for node in nodes] == [False, True, True, True]


@pytest.mark.parametrize("parser", [SentenceWindowNodeParser, SentenceWindowParser])
def test_overlapping_windows_are_sent_once(
    postprocess: Postprocess, parser: type[SentenceWindowNodeParser]
) -> None:
    """Of 20 sentences with window 3, hits 8, 9 and 10 send 9 distinct sentences, each once."""
    sentences = [f"Sentence {n} tells of thing {n * 7}." for n in range(20)]
    nodes = parser.from_defaults(window_size=3)([Document(text=" ".join(sentences))])
    hits = [NodeWithScore(node=nodes[n], score=0.5) for n in (8, 9, 10)]
    out = postprocess(MetadataReplacementPostProcessor("window", merge_overlaps=True), hits)
    assert " ".join(out[0].node.get_content().split()) == " ".join(sentences[5:14])
    assert len(out) == 1


def test_hits_of_another_parser_keep_their_text(caplog: pytest.LogCaptureFixture) -> None:
    """Hits of another parser keep their text, and one warning names the keys that they have."""
    hits = [hit("a", file_name="f"), hit("b", file_name="g")]
    with caplog.at_level(logging.WARNING):
        out = MetadataReplacementPostProcessor("window").postprocess_nodes(hits)
    assert [one.node.get_content() for one in out] == ["a", "b"]
    assert len(caplog.records) == 1
    assert "file_name" in caplog.text


@pytest.mark.parametrize("value", [None, "", 3, ["x"], {"x": 1}])
def test_values_that_are_no_text(postprocess: Postprocess, value: object) -> None:
    """None, "" and non-text values keep the original text, and the other hits are replaced."""
    hits = [hit("a", window="A"), hit("b", window=value), hit("c", window="C")]
    out = postprocess(MetadataReplacementPostProcessor("window"), hits)
    assert [one.node.get_content() for one in out] == ["A", "b", "C"]


def test_the_first_sentence_has_a_full_window() -> None:
    """With window 1, four sentences have windows of 2, 3, 3 and 2, with no double spaces."""
    nodes = SentenceWindowParser(window_size=1)(
        [Document(text="The cat sat. The dog ran. The bird flew. The fish swam.")]
    )
    assert [node.metadata["window"].count(".") for node in nodes] == [2, 3, 3, 2]
    assert not any("  " in node.metadata["window"] for node in nodes)


def test_window_keys_are_never_embedded() -> None:
    """Window keys are in no embedded text and in no prompt, whatever the parser includes."""
    parser = SentenceWindowParser(window_size=1, include_metadata=False)
    nodes = parser([Document(text=CHINESE, metadata={"title": "T"})])
    assert [node.get_content(MetadataMode.EMBED) for node in nodes] == [node.text for node in nodes]


def test_nodes_without_a_document() -> None:
    """Nodes of an unknown document are kept, with a window of their own text."""
    nodes = [TextNode(text="alone"), *linked_document(["a", "b"])]
    assert [node.metadata["window"] for node in WindowExtractor()(nodes)] == ["alone", "a b", "a b"]


@pytest.mark.parametrize("merge", [False, True])
def test_inputs_are_not_changed(postprocess: Postprocess, merge: bool) -> None:
    """No input changes, and a second run equals the first."""
    nodes = SentenceWindowParser()([Document(text=CHINESE * 3)])
    hits = [NodeWithScore(node=node, score=0.1 * n) for n, node in enumerate(nodes)]
    given, before, hashes = list(hits), copy.deepcopy(hits), [one.node.hash for one in hits]
    augmenter = MetadataReplacementPostProcessor("window", merge_overlaps=merge)
    first = postprocess(augmenter, hits)
    second = postprocess(augmenter, hits)
    assert first == second
    assert all(one is other for one, other in zip(hits, given, strict=True))
    assert hits == before
    assert [one.node.hash for one in hits] == hashes

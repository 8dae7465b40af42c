"""Sentences in any script, and their windows."""

from __future__ import annotations

import builtins
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.node_parser import SentenceWindowNodeParser
from llama_index.core.schema import Document, NodeRelationship

from llama_index_ext_ctxaug import SentenceWindowParser, SentencexSplitter


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("今天天气很好。我们去公园散步。他在家看书！你呢？", 4),
        ("今日は天気です。公園へ行きました。", 2),
        ("मैं घर गया। वह आया। तुम कहाँ हो?", 3),
        ("ذهبت إلى البيت. هل أنت هنا؟ نعم!", 3),
        ("안녕하세요. 반갑습니다. 네!", 3),
        ("Mr. Smith came.\n\nHe left. And then?", 3),
        ("今天很好。 It rained. 你呢？", 3),
        ("\n\n  One.  \n\nTwo.\n", 2),
        ("", 0),
        (" \n ", 0),
        ("🚀", 1),
        ("မြန်မာစကား။ ကျွန်တော်သွားမယ်။ သူလာတယ်။", 3),
        ("ខ្ញុំទៅ។ គាត់មក។ ល្អ៕", 3),
        ("བཀྲ་ཤིས། ། ང་འགྲོ། ཁོང་ཡོང་།", 3),
        ("Բարև։ Ինչպե՞ս ես։ Լավ եմ։", 3),
        ("ሰላም። እንዴት ነህ፧ ደህና።", 3),
        ("Πού είσαι; Εδώ είμαι. Έλα!", 3),
        ("یہ ہے۔ وہ ہے۔", 2),
        ("円周率は３．１４です。次です。", 2),
        ("圆周率是３.１４。好。", 2),
        ("他（你好。再见。）走了。好。", 2),
    ],
)
def test_scripts(text: str, sentences: int) -> None:
    """Sentences end by the rules of their script, and joined they are the text."""
    found = SentencexSplitter()(text)
    assert len(found) == sentences
    assert "".join(found) == (text if text.strip() else "")
    assert all(sentence.strip() for sentence in found)


@given(st.text("ab .。\n\r\t３．１;Ω།។“”。!", max_size=40) | st.text(max_size=40))
def test_sentences_cover_any_text(text: str) -> None:
    """Joined sentences are the text, and none of them is blank."""
    found = SentencexSplitter()(text)
    assert "".join(found) == (text if text.strip() else "")
    assert all(sentence.strip() for sentence in found)


def test_languages() -> None:
    """The language decides which abbreviations do not end a sentence."""
    text = "Das ist z. B. gut. Ja."
    assert len(SentencexSplitter("de")(text)) == 2


def test_repeated_sentence() -> None:
    """A sentence repeated on purpose is two sentences at two places."""
    nodes = SentenceWindowParser(window_size=1)([Document(text="好。好。")])
    assert [(node.text, node.start_char_idx) for node in nodes] == [("好。", 0), ("好。", 2)]
    assert [node.metadata["window"] for node in nodes] == ["好。好。"] * 2


@pytest.mark.parametrize("size", [1, 2, 5])
def test_windows_are_slices(size: int) -> None:
    """A window is a slice of the document, without added spaces between sentences."""
    text = "今天天气很好。我们去公园散步。他在家看书！你呢？ Then we left.  It rained.\n\n第二段。"
    nodes = SentenceWindowParser(window_size=size)([Document(text=text)])
    for place, node in enumerate(nodes):
        first, last = nodes[max(0, place - size)], nodes[min(len(nodes) - 1, place + size)]
        assert node.metadata["window"] == text[first.start_char_idx : last.end_char_idx]


def test_any_splitter() -> None:
    """Any splitting function works, even one that drops white space, which windows keep."""
    text = "one. two.  three."
    parser = SentenceWindowParser(sentence_splitter=str.split, window_size=1)
    nodes = parser([Document(text=text)])
    assert [node.metadata["window"] for node in nodes] == ["one. two.", text, "two.  three."]


def test_links_and_source() -> None:
    """Sentences have SOURCE, PREVIOUS and NEXT, without copies of the windows."""
    document = Document(text="今天。明天。后天。", id_="doc", metadata={"file": "f"})
    nodes = SentenceWindowParser()([document])
    assert all(node.ref_doc_id == "doc" and node.metadata["file"] == "f" for node in nodes)
    middle = nodes[1].relationships
    assert middle[NodeRelationship.PREVIOUS].node_id == nodes[0].node_id
    assert middle[NodeRelationship.NEXT].node_id == nodes[2].node_id
    assert all("window" not in info.metadata for info in middle.values())


def test_keys_of_ones_own() -> None:
    """Window and sentence are under the configured keys, and only there."""
    parser = SentenceWindowParser(window_metadata_key="around", original_text_metadata_key="sentence")
    nodes = parser([Document(text="今天。明天。")])
    assert [node.metadata for node in nodes] == [
        {"around": "今天。明天。", "sentence": "今天。"},
        {"around": "今天。明天。", "sentence": "明天。"},
    ]


def test_like_the_parser_it_extends() -> None:
    """Metadata keys, exclusions and English sentences are those of LlamaIndex's parser."""
    text = "One thing is so. Another is not. The third one? Nobody knows. The end."
    ours = SentenceWindowParser(window_size=2)([Document(text=text)])
    theirs = SentenceWindowNodeParser(window_size=2)([Document(text=text)])
    assert [node.text for node in ours] == [node.text for node in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.metadata.keys() == other.metadata.keys()
        assert mine.metadata["original_text"] == other.metadata["original_text"]
        assert mine.metadata["window"].split() == other.metadata["window"].split()
        assert set(mine.excluded_llm_metadata_keys) == set(other.excluded_llm_metadata_keys)
        assert set(mine.excluded_embed_metadata_keys) == set(other.excluded_embed_metadata_keys)


async def test_async_and_saved() -> None:
    """The async call gives the same windows; parser and splitter can be saved."""
    document = Document(text="今天。明天。")
    parser = SentenceWindowParser(window_size=1)
    nodes = await parser.acall([document])
    assert [node.metadata["window"] for node in nodes] == ["今天。明天。"] * 2
    assert SentenceWindowParser.from_dict(parser.to_dict(), id_func=parser.id_func).window_size == 1
    assert pickle.loads(pickle.dumps(SentencexSplitter("zh"))) == SentencexSplitter("zh")


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without sentencex, the error at construction names the extra to install."""
    original = builtins.__import__

    def without(name: str, *args: object, **kwargs: object) -> object:
        if name == "sentencex":
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"llama-index-ext-ctxaug\[sentences\]"):
        SentencexSplitter()
    assert SentenceWindowParser(sentence_splitter=str.split).window_size == 3

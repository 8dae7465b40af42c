"""Hypothesis strategies for texts and the chunks that real parsers make of them."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st
from llama_index.core import Document
from llama_index.core.node_parser import (
    MarkdownNodeParser,
    NodeParser,
    SentenceSplitter,
    SentenceWindowNodeParser,
    TokenTextSplitter,
)
from llama_index.core.schema import TextNode

SENTENCES = (
    "The harbor was built in 1904. ",
    "Ships of every size come and go.\n",
    "A storm broke the old pier, and nobody repaired it for years.\n\n",
    "Yes. ",
    "Yes. ",
    "Why? Because of the tide!  ",
    "| a | b |\n",
    "| 12 | 34 |\n",
    "## The next part\n\n",
    "   indented, and with a comma; and more\n",
    "港口建于一九〇四年。",
    "好。",
    "好。",
    "他说：好。",
    "暴风雨毁了旧码头，多年无人修理！\n",
    "supercalifragilisticexpialidocious",
)


class Parsed(NamedTuple):
    """A document and its chunks."""

    text: str
    nodes: list[TextNode]


def _words(text: str) -> list[str]:
    return text.split()


def texts() -> st.SearchStrategy[str]:
    """Draw prose, tables, headings and repeated sentences, English and Chinese, and some noise."""
    sentence = st.sampled_from(SENTENCES) | st.text("ab .。\n好", min_size=1, max_size=12)
    return st.lists(sentence, min_size=1, max_size=40).map("".join).filter(str.strip)


@st.composite
def parsers(draw: st.DrawFn) -> NodeParser:
    """Draw a common splitter of small chunks, with an overlap of 0 to 50 %."""
    kind = draw(st.sampled_from(["sentence", "token", "window", "markdown"]))
    if kind == "window":
        return SentenceWindowNodeParser.from_defaults()
    if kind == "markdown":
        return MarkdownNodeParser()
    size = draw(st.sampled_from([52, 64, 90]))
    overlap = int(size * draw(st.sampled_from([0, 0.1, 0.25, 0.5])))
    if kind == "sentence":
        return SentenceSplitter(chunk_size=size, chunk_overlap=overlap)
    return TokenTextSplitter(chunk_size=size, chunk_overlap=overlap)


@st.composite
def parsed_documents(draw: st.DrawFn, source_id: str = "doc") -> Parsed:
    """Draw a document and its chunks, with ids that are the same in each run."""
    text = draw(texts())
    nodes = draw(parsers()).get_nodes_from_documents([Document(text=text, id_=source_id)])
    return Parsed(text, [node for node in nodes if node.text])

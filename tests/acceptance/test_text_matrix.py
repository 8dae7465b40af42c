"""Passages over chunks of many parsers, alone and chained, on many kinds of text."""

from __future__ import annotations

import inspect
import itertools
import json
import reprlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest
import tree_sitter
import tree_sitter_python
from helpers import Postprocess
from langchain_text_splitters import RecursiveCharacterTextSplitter
from llama_index.core import Document
from llama_index.core.node_parser import (
    CodeSplitter,
    HierarchicalNodeParser,
    HTMLNodeParser,
    JSONNodeParser,
    LangchainNodeParser,
    MarkdownElementNodeParser,
    MarkdownNodeParser,
    SemanticSplitterNodeParser,
    SentenceSplitter,
    SentenceWindowNodeParser,
    TokenTextSplitter,
    get_leaf_nodes,
)
from llama_index.core.schema import BaseNode, NodeWithScore, TextNode

from llama_index_ext_ctxaug import (
    AutoMergingPostprocessor,
    AutoPrevNextNodePostprocessor,
    PrevNextNodePostprocessor,
    RelevantSegmentsPostprocessor,
    SectionPostprocessor,
    WholeDocumentsPostprocessor,
    read_provenance,
)
from llama_index_ext_ctxaug.testing import ScriptedLLM, WordEmbedding, docstore_of, linked_document

DATA = Path(__file__).parent / "data"
HOLE = "\n\n[...]\n\n"

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")[:6000]
LICENSE = (Path(__file__).parents[2] / "LICENSE").read_text(encoding="utf-8")
CHINESE = (
    "港口建于一九〇四年，后来扩建过两次。大大小小的船只来来往往，多数运粮食。他说：好。好。走吧。"
    "一九一一年的暴风雨毁了旧码头，多年无人修理！灯塔看守人每天晚上点灯。你看见船了吗？没有看见。\n\n"
    "第二章讲的是渔民的生活。他们清早出海，傍晚回来。\n"
) * 2
HTML = "".join(
    f"<h2>Part {n}</h2>\n<p class='x'>It says {n * n} things, and more.</p>\n<ul><li>{n}</li></ul>\n"
    for n in range(8)
)
TEXTS = {
    "prose": topics["context-managers"] + topics["assignment"],
    "readme": README,
    "license": LICENSE,
    "chinese": CHINESE,
    "crlf": topics["integers"].replace("\n", "\r\n") + topics["callable-types"].replace("\n", "\r\n"),
    "html": f"<html><body>{HTML}</body></html>",
    "json": json.dumps([{"name": f"n{n}", "age": n, "tags": ["a", "b"]} for n in range(12)]),
    "code": inspect.getsource(reprlib),
}
OWN_TEXT = {"html": ("html",), "json": ("json",), "code": ("code",)}
PLAIN = ("prose", "readme", "license", "chinese", "crlf")


def sentences(size: int = 60, overlap: int = 15) -> SentenceSplitter:
    """Return a splitter into small chunks."""
    return SentenceSplitter(chunk_size=size, chunk_overlap=overlap, include_metadata=False)


def code() -> CodeSplitter:
    """Return a Python code splitter, with its grammar from a package."""
    language = tree_sitter.Language(tree_sitter_python.language())
    return CodeSplitter(language="python", parser=tree_sitter.Parser(language), max_chars=500)


def hierarchy() -> HierarchicalNodeParser:
    """Return a parser of two levels."""
    return HierarchicalNodeParser.from_defaults([256, 64], chunk_overlap=10)


PARSERS: dict[str, Callable[[], list[Any]]] = {
    "sentence": lambda: [sentences()],
    "sentence without overlap": lambda: [sentences(60, 0)],
    "token": lambda: [TokenTextSplitter(chunk_size=50, chunk_overlap=12, include_metadata=False)],
    "markdown": lambda: [MarkdownNodeParser()],
    "elements": lambda: [MarkdownElementNodeParser(llm=ScriptedLLM(answers=["{}"]), num_workers=1)],
    "semantic": lambda: [
        SemanticSplitterNodeParser(embed_model=WordEmbedding(), breakpoint_percentile_threshold=60)
    ],
    "window": lambda: [SentenceWindowNodeParser.from_defaults()],
    "hierarchy": lambda: [hierarchy()],
    "langchain": lambda: [
        LangchainNodeParser(RecursiveCharacterTextSplitter(chunk_size=200, chunk_overlap=40))
    ],
    "markdown, sentence": lambda: [MarkdownNodeParser(), sentences()],
    "sentence, sentence": lambda: [sentences(200, 0), sentences()],
    "sentence, token": lambda: [
        sentences(200, 0),
        TokenTextSplitter(chunk_size=40, chunk_overlap=10, include_metadata=False),
    ],
    "window, sentence": lambda: [SentenceWindowNodeParser.from_defaults(), sentences(40, 0)],
    "html": lambda: [HTMLNodeParser()],
    "html, sentence": lambda: [HTMLNodeParser(), sentences(40, 10)],
    "json": lambda: [JSONNodeParser()],
    "json, sentence": lambda: [JSONNodeParser(), sentences(40, 0)],
    "code": lambda: [code()],
}
CELLS = [(parser, text) for parser in PARSERS for text in OWN_TEXT.get(parser.partition(",")[0], PLAIN)]
KEEPS_TEXT = {name for name in PARSERS if name.partition(",")[0] not in ("html", "json", "elements")}

AUGMENTERS: dict[str, Callable[[Any], Any]] = {
    "prev_next": lambda store: PrevNextNodePostprocessor(
        docstore=store, num_nodes=2, mode="both", output="passages"
    ),
    "auto_prev_next": lambda store: AutoPrevNextNodePostprocessor(
        docstore=store, llm=ScriptedLLM(answers=["BOTH"]), num_nodes=1, output="passages"
    ),
    "section": lambda store: SectionPostprocessor(docstore=store, expansion_tokens=120, output="passages"),
    "auto_merging": lambda store: AutoMergingPostprocessor(docstore=store, output="passages"),
    "segments": lambda store: RelevantSegmentsPostprocessor(
        docstore=store, token_budget=300, budget_unit="chunk", output="passages"
    ),
    "documents": lambda store: WholeDocumentsPostprocessor(
        docstore=store, token_budget=None, output="passages"
    ),
}


@cache
def parsed(parser: str, text: str) -> tuple[Document, tuple[BaseNode, ...], tuple[BaseNode, ...]]:
    """Return a document, its nodes, and the retrieved ones."""
    document = Document(text=TEXTS[text], id_="doc")
    nodes: Sequence[BaseNode] = [document]
    for transformation in PARSERS[parser]():
        nodes = transformation(nodes)
    nodes = [node for node in nodes if type(node) is TextNode and node.text.strip()]
    leaves = get_leaf_nodes(nodes) if parser == "hierarchy" else nodes
    return document, tuple(nodes), tuple(leaves)


def squeezed(text: str) -> str:
    """Return a text without white space."""
    return "".join(text.split())


def check_claims(result: Sequence[NodeWithScore], document: Document, known: bool) -> None:
    """Check that claims about the document are true, and exact only if the text was compared with it."""
    for hit in result:
        node, provenance = hit.node, read_provenance(hit.node)
        if provenance is None or provenance.role != "passage":
            continue
        assert known or not provenance.exact
        if provenance.exact:
            assert node.text == document.text[node.start_char_idx : node.end_char_idx]
        for piece in provenance.pieces:
            assert known or not piece.exact
            if known and piece.source_start is not None:
                source = document.text[piece.source_start : piece.source_end]
                assert node.text[piece.start : piece.end] == source


CASES = [
    (way, parser, text, augmenter)
    for parser, text in CELLS
    for augmenter in AUGMENTERS
    for way in (["sync", "async"] if augmenter == "segments" else ["sync"])
    if augmenter != "auto_merging" or parser == "hierarchy"
]
"""Parents are in hierarchies alone. The conformance suite also checks that sync and async give the same."""


@pytest.mark.parametrize("stored", [True, False], ids=["document", "no document"])
@pytest.mark.parametrize(("postprocess", "parser", "text", "augmenter"), CASES, indirect=["postprocess"])
def test_matrix(postprocess: Postprocess, parser: str, text: str, stored: bool, augmenter: str):
    """Claims are true, hits whole, chunks in order, holes real, and the text exact if possible."""
    document, nodes, leaves = parsed(parser, text)
    store = docstore_of(nodes, [document] if stored else [])
    order = {node.node_id: number for number, node in enumerate(leaves)}
    for place in range(0, len(leaves), max(1, len(leaves) // 3)):
        found = [NodeWithScore(node=leaves[place], score=0.5)]
        result = postprocess(AUGMENTERS[augmenter](store), found, query_str="What is said?")
        check_claims(result, document, stored)
        whole = squeezed("".join(hit.node.text for hit in result))
        assert squeezed(leaves[place].text) in whole
        for hit in result:
            provenance = read_provenance(hit.node)
            if provenance is None or provenance.role != "passage":
                continue
            numbers = [order[piece.node_id] for piece in provenance.pieces if piece.node_id in order]
            chunks = sorted(set(numbers))
            assert list(dict.fromkeys(numbers)) == chunks
            one_run = chunks == list(range(chunks[0], chunks[-1] + 1)) if chunks else False
            if one_run and parser in KEEPS_TEXT:
                assert provenance.exact == stored
                # Without the document, a parser's wrong offset of repeated text looks like a hole.
                assert HOLE not in hit.node.text or (not stored and (parser, text) == ("window", "readme"))
            for number in chunks:
                assert squeezed(leaves[number].text) in squeezed(hit.node.text)


def recorded(name: str) -> tuple[Document, list[TextNode]]:
    """Return a document and another library's chunks of it, as its reader gives them."""
    data = json.loads((DATA / name).read_text(encoding="utf-8"))
    records = data.get("chunks") or data["elements"]
    nodes = linked_document([record["text"] for record in records])
    for node, record in zip(nodes, records, strict=True):
        node.metadata = record.get("meta") or {**record["metadata"], "category": record["type"]}
    return Document(text=data["document"], id_="doc"), nodes


@pytest.mark.parametrize("stored", [True, False], ids=["document", "no document"])
@pytest.mark.parametrize("name", ["docling_chunks.json", "unstructured_elements.json"])
def test_recorded_elements(postprocess: Postprocess, name: str, stored: bool):
    """All elements appear once, each on a new line, without holes; so does a repeated table header."""
    document, nodes = recorded(name)
    store = docstore_of(nodes, [document] if stored else [])
    augmenter = PrevNextNodePostprocessor(docstore=store, num_nodes=9, mode="both", output="passages")
    (passage,) = postprocess(augmenter, [NodeWithScore(node=nodes[4], score=0.5)])
    text = passage.node.text
    check_claims([passage], document, stored)
    assert HOLE not in text
    assert text.count("| year | ships | grain |") == (name == "docling_chunks.json")
    place = 0
    for node in nodes:
        rows = node.text.replace("| year | ships | grain |\n|------|-------|-------|\n", "")
        words = rows.split()
        for word in words:
            place = text.index(word, place) + len(word)
    for one, two in itertools.pairwise(nodes):
        assert one.text[-9:] + two.text[:9] not in text
    assert [piece.node_id for piece in read_provenance(passage.node).pieces] == [n.node_id for n in nodes]

"""Quotes lead back to the chunks, documents and pages that they come from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pydoc_data.topics import topics

import pytest
from helpers import Postprocess
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core import Document
from llama_index.core.node_parser import HierarchicalNodeParser, MarkdownNodeParser, SentenceSplitter
from llama_index.core.query_engine import CitationQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import BaseNode, NodeRelationship, NodeWithScore, QueryBundle, TextNode
from text_strategies import parsed_documents

from llama_index_ext_ctxaug import (
    PROVENANCE_KEY,
    AutoMergingPostprocessor,
    AutoPrevNextNodePostprocessor,
    BRSRPostprocessor,
    Citation,
    ContextAugmenter,
    MetadataReplacementPostProcessor,
    PrevNextNodePostprocessor,
    RelevantSegmentExtractionPostprocessor,
    RelevantSegmentsPostprocessor,
    SectionPostprocessor,
    SlidingWindowPostprocessor,
    WholeDocumentsPostprocessor,
    cite,
    read_provenance,
)
from llama_index_ext_ctxaug.testing import ScriptedLLM, WordEmbedding, docstore_of, hits, linked_document

NAMES = sorted(topics)[:40]
DOCUMENTS = {name: Document(text=topics[name], id_=name) for name in NAMES if len(topics[name]) > 4000}
CHUNKS = SentenceSplitter(chunk_size=128, chunk_overlap=20).get_nodes_from_documents([*DOCUMENTS.values()])
STORE = docstore_of(CHUNKS, [*DOCUMENTS.values()])
TREE = HierarchicalNodeParser.from_defaults([512, 128], chunk_overlap=10).get_nodes_from_documents(
    [*DOCUMENTS.values()]
)
LEAVES = [node for node in TREE if NodeRelationship.CHILD not in node.relationships]
QUERY = "Which operators and expressions are evaluated first?"


def plain(text: str) -> str:
    """Return a text without white space and typographic marks."""
    return "".join(text.translate({ord("’"): "'", ord("”"): '"', ord("–"): "-"}).split())


def quotes_of(text: str, count: int, rng: random.Random) -> Iterator[str]:
    """Draw quotes of whole words, with other white space and typographic marks."""
    for _ in range(count):
        words = text.split(" ")
        start = rng.randrange(len(words))
        quote = " ".join(words[start : start + rng.randint(4, 30)])
        if quote.strip():
            yield " ".join(quote.split()).replace("'", "’").replace('"', "”").replace(" - ", " – ")


AUGMENTERS: dict[str, ContextAugmenter] = {
    "prev_next": PrevNextNodePostprocessor(docstore=STORE, mode="both", num_nodes=3, output="passages"),
    "section": SectionPostprocessor(docstore=STORE, output="passages"),
    "auto": AutoPrevNextNodePostprocessor(
        docstore=STORE, llm=ScriptedLLM(answers=["BOTH"]), num_nodes=2, output="passages"
    ),
    "merging": AutoMergingPostprocessor(
        docstore=docstore_of(TREE, [*DOCUMENTS.values()]), simple_ratio_thresh=0.1, output="passages"
    ),
    "segments": RelevantSegmentsPostprocessor(docstore=STORE, token_budget=2000, output="passages"),
    "extraction": RelevantSegmentExtractionPostprocessor(docstore=STORE, output="passages"),
    "documents": WholeDocumentsPostprocessor(docstore=STORE, token_budget=9000, output="passages"),
    "brsr": BRSRPostprocessor(docstore=STORE, embed_model=WordEmbedding(), top_n=8),
}


@pytest.mark.parametrize("name", AUGMENTERS)
def test_quotes_of_pydoc_lead_back_to_their_chunks(postprocess: Postprocess, name: str) -> None:
    """Each of 25 quotes is cited by exactly the chunks that contain it, in order and whole."""
    rng = random.Random(name)
    pool = LEAVES if name == "merging" else CHUNKS
    by_id = {node.node_id: node for node in (TREE if name == "merging" else CHUNKS)}
    found = [
        NodeWithScore(node=pool[place], score=1 - rank / 9) for rank, place in enumerate((5, 30, 31, 77))
    ]
    nodes = [hit.node for hit in postprocess(AUGMENTERS[name], found, query_str=QUERY)]
    for node in rng.choices(nodes, k=5):
        for quote in quotes_of(node.text, 5, rng):
            citations = cite(node, quote)
            parts = [topics[c.document_id][c.start : c.end] for c in citations if c.start is not None]
            assert citations
            assert len(parts) < len(citations) or plain(quote) in plain("".join(parts))
            for citation in citations:
                chunk = by_id[citation.node_id]
                assert citation.document_id == chunk.ref_doc_id == node.ref_doc_id
                assert citation.metadata == chunk.metadata
                if citation.start is not None:
                    part = topics[citation.document_id][citation.start : citation.end]
                    assert part.strip()
                    assert part in chunk.text
                    assert part in node.text
            shuffled = quote.split()
            rng.shuffle(shuffled)
            if plain(" ".join(shuffled)) not in plain(node.text):
                assert cite(node, " ".join(shuffled)) == []


def sliced(node: BaseNode, start: int, end: int) -> TextNode:
    """Cut a node as a step without knowledge of provenance does: copy its metadata, and set another text."""
    return TextNode.model_validate(
        {**node.model_dump(exclude={"id_", "class_name"}), "text": f"Source 1:\n{node.text[start:end]}\n"}
    )


@st.composite
def changed(draw: st.DrawFn, nodes: list[BaseNode]) -> list[BaseNode]:
    """Draw the result of a later step: nodes cut, masked, joined, split or left alone."""
    step = draw(st.sampled_from(["none", "cut", "mask", "join", "split", "window"]))
    result: list[BaseNode] = []
    for node in nodes:
        text = node.text
        if step == "cut":
            start = draw(st.integers(0, len(text)))
            result.append(sliced(node, start, draw(st.integers(start, len(text)))))
        elif step == "mask":
            start = draw(st.integers(0, len(text)))
            masked = text[:start] + "X" * draw(st.integers(0, 9)) + text[start + draw(st.integers(0, 9)) :]
            result.append(node.model_copy(update={"text": masked}))
        elif step == "join":
            other = draw(st.sampled_from(nodes)).text
            result.append(
                node.model_copy(update={"text": draw(st.sampled_from([text + other, other + text]))})
            )
        elif step == "split":
            result += SentenceSplitter(chunk_size=60, chunk_overlap=10)([node])
        else:
            result.append(node)
    if step == "window" or draw(st.booleans()):
        cutter = SlidingWindowPostprocessor(window_tokens=30, stride_tokens=20)
        result = [hit.node for hit in cutter.postprocess_nodes([NodeWithScore(node=node) for node in result])]
    return result


@given(st.data())
def test_what_is_stated_of_characters_is_true(data: st.DataObject) -> None:
    """After any augmenter and any later step, a stated range of a document has exactly that text."""
    documents = [data.draw(parsed_documents(source_id=id_), label=id_) for id_ in ("one", "two")]
    sources = {f"{id_}": document.text for id_, document in zip(("one", "two"), documents, strict=True)}
    stored = [Document(text=text, id_=id_, metadata={"file": "f"}) for id_, text in sources.items()]
    chunks: list[BaseNode] = [node for document in documents for node in document.nodes]
    tree: list[BaseNode] = []
    kind = data.draw(st.sampled_from(["parsed", "parsed", "split twice", "tree"]))
    if kind == "split twice":  # offsets count in the first chunks, and their ids are gone
        chunks = SentenceSplitter(chunk_size=40, chunk_overlap=12)(chunks)
    elif kind == "tree":
        tree = HierarchicalNodeParser.from_defaults([90, 40], chunk_overlap=8).get_nodes_from_documents(
            stored
        )
        chunks = [node for node in tree if NodeRelationship.CHILD not in node.relationships]
    if not chunks:
        return
    store = docstore_of(chunks, tree, stored if data.draw(st.booleans(), label="documents stored") else [])
    found = [
        NodeWithScore(node=node, score=0.5)
        for node in data.draw(st.lists(st.sampled_from(chunks), min_size=1, max_size=4))
    ]
    augmenter = data.draw(
        st.sampled_from(
            [
                PrevNextNodePostprocessor(docstore=store, mode="both", num_nodes=2, output="passages"),
                PrevNextNodePostprocessor(
                    docstore=store, mode="both", mark_hits=("<<", ">>"), output="passages"
                ),
                SectionPostprocessor(docstore=store, output="passages", passage_scope="document"),
                SectionPostprocessor(docstore=store),
                PrevNextNodePostprocessor(
                    docstore=store, num_nodes=9, output="passages", document_key="file"
                ),
                AutoMergingPostprocessor(docstore=store, simple_ratio_thresh=0.3, output="passages"),
                AutoMergingPostprocessor(docstore=store, simple_ratio_thresh=0.3),
                MetadataReplacementPostProcessor("window", merge_overlaps=True),
                MetadataReplacementPostProcessor("window"),
            ]
        )
    )
    nodes = [hit.node for hit in augmenter.postprocess_nodes(found)]
    for node in data.draw(changed(nodes)):
        provenance = read_provenance(node)
        for piece in provenance.pieces if provenance else ():
            assert 0 <= piece.start < piece.end <= len(node.text)
            if piece.exact:
                text = sources[piece.document_id]
                assert text[piece.source_start : piece.source_end] == node.text[piece.start : piece.end]
        start = data.draw(st.integers(0, len(node.text)))
        for quote in (None, node.text[start : start + 40]):
            for citation in cite(node, quote):
                if citation.start is not None:
                    part = sources[citation.document_id][citation.start : citation.end]
                    assert part
                    assert part in (node.text if quote is None else quote)


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("sections", [True, False])
def test_offsets_that_nobody_compared(postprocess: Postprocess, stored: bool, sections: bool) -> None:
    """Places are stated only if the document is stored, even if offsets count in a section."""
    text = "\n\n".join(f"# Part {n}\n\n" + f"Line {n} of the part says {n * n}. " * 12 for n in range(4))
    document = Document(text=text, id_="doc")
    parts = MarkdownNodeParser()([document]) if sections else [document]
    chunks = SentenceSplitter(chunk_size=40, chunk_overlap=12)(parts)
    store = docstore_of(chunks, [document] if stored else [])
    augmenter = PrevNextNodePostprocessor(docstore=store, mode="both", output="passages")
    (passage,) = postprocess(augmenter, hits(chunks, [len(chunks) - 3]))
    assert len(cite(passage)) == 3
    for citation in cite(passage):
        if stored:
            assert text[citation.start : citation.end] in passage.node.text
        else:
            assert (citation.start, citation.end) == (None, None)


class Fixed(BaseRetriever):
    """Retrieves the same nodes for every question."""

    def __init__(self, nodes: list[NodeWithScore]) -> None:
        super().__init__()
        self.nodes = nodes

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.nodes


PAGES = [
    "The lighthouse was built in 1871 by Anna Reuter. It had a lamp of eight wicks, fed with whale oil. "
    "Its keeper lived below the lamp with his family and two goats, and wrote a log of every ship that came.",
    "In 1904 a storm broke the old pier. Nobody repaired it for years, since the town had no money. "
    "The fishermen moved their boats to the river mouth, where the current was strong but the wind weak.",
    "The tower was electrified in 1931. The keeper's log ends that year: “No more oil, no more night watch.” "
    "Today the house is a museum, open from May to September, and the log lies on a desk by the window.",
]


def pages() -> list[TextNode]:
    """Return three linked chunks with the metadata of three pages."""
    nodes = linked_document(PAGES, metadata={"file_name": "harbor.pdf"}, offsets=True)
    for number, node in enumerate(nodes, start=2):
        node.metadata |= {"page_label": str(number), "start_s": number * 10.5}
        node.excluded_llm_metadata_keys = ["start_s"]
    return nodes


def page_store(nodes: list[TextNode]) -> object:
    """Return a docstore of the pages and their document."""
    return docstore_of(nodes, [Document(text="".join(PAGES), id_=nodes[0].ref_doc_id)])


def test_a_passage_of_several_pages(postprocess: Postprocess) -> None:
    """The passage shows its hit's page, and each quote the page of its own chunk."""
    nodes = pages()
    augmenter = PrevNextNodePostprocessor(docstore=page_store(nodes), mode="both", output="passages")
    (passage,) = postprocess(augmenter, hits(nodes, [1]))
    assert passage.node.metadata["page_label"] == "3"
    assert "page_label: 3" in passage.node.get_content(metadata_mode="llm")
    assert "start_s" not in passage.node.get_content(metadata_mode="llm")
    (citation,) = cite(passage, 'log ends  that year:\n"No more oil, no more night watch."')
    start = passage.node.text.index("log ends")
    assert citation == Citation(
        nodes[2].node_id,
        nodes[0].ref_doc_id,
        start,
        passage.node.text.index("watch.”") + 7,
        nodes[2].metadata,
    )
    across = cite(passage, f"{PAGES[0][-30:]}{PAGES[1][:20]}")
    assert [c.metadata["page_label"] for c in across] == ["2", "3"]
    assert [c.metadata["page_label"] for c in cite(passage)] == ["2", "3", "4"]
    assert cite(passage, "a museum, open from June") == cite(passage, "") == cite(passage, " \n") == []


@pytest.mark.parametrize("chunk_size", [64, 512])
def test_citation_query_engine(chunk_size: int) -> None:
    """Chunks that LlamaIndex's citation engine cuts from a passage lead back to pages and characters."""
    nodes = pages()
    engine = CitationQueryEngine(
        retriever=Fixed(hits(nodes, [1])),
        llm=ScriptedLLM(answers=["It was electrified in 1931 [1]."]),
        response_synthesizer=get_response_synthesizer(llm=ScriptedLLM(answers=["In 1931 [3]."])),
        citation_chunk_size=chunk_size,
        citation_chunk_overlap=0,
        node_postprocessors=[
            PrevNextNodePostprocessor(docstore=page_store(nodes), mode="both", output="passages")
        ],
    )
    source = "".join(PAGES)
    sources = engine.query("When was the tower electrified?").source_nodes
    assert len(sources) == (1 if chunk_size == 512 else 3)
    cited = set()
    for hit in sources:
        for citation in cite(hit):
            part = source[citation.start : citation.end]
            assert part in hit.node.text
            cited.add((citation.metadata["page_label"], citation.node_id))
    assert cited == {(str(page), node.node_id) for page, node in enumerate(nodes, start=2)}
    quote = "The tower was electrified in 1931."
    (citation,) = [citation for hit in sources for citation in cite(hit, quote)]
    assert source[citation.start : citation.end] in quote
    assert citation.metadata["page_label"] == "4"
    assert not any(cite(hit, "Source 1:") for hit in sources)


def test_nodes_of_their_own(postprocess: Postprocess) -> None:
    """A hit, a neighbor and a merged parent are cited themselves, without unverified places."""
    nodes = pages()
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode="both")
    for hit, node in zip(postprocess(augmenter, hits(nodes, [1])), nodes, strict=True):
        own = Citation(node.node_id, node.ref_doc_id, None, None, node.metadata)
        assert cite(hit) == cite(hit, node.text[5:25]) == [own]
        (cut,) = cite(sliced(hit.node, 5, 60))
        assert hit.node.metadata.get(PROVENANCE_KEY) is None or cut == own


@pytest.mark.parametrize("merge_overlaps", [False, True])
def test_windows_in_metadata(postprocess: Postprocess, merge_overlaps: bool) -> None:
    """A quote of a window is cited by the hit that has the window, whatever node the text is from."""
    nodes = pages()
    nodes[1].metadata["window"] = "".join(PAGES)
    augmenter = MetadataReplacementPostProcessor("window", merge_overlaps=merge_overlaps)
    (window,) = postprocess(augmenter, hits(nodes, [1]))
    for quote in ("built in 1871", "the wind weak", "is a museum"):
        (citation,) = cite(window, quote)
        assert (citation.node_id, citation.start) == (nodes[1].node_id, None)
        assert citation.metadata == {
            key: value for key, value in nodes[1].metadata.items() if key != "window"
        }


def test_merged_windows(postprocess: Postprocess) -> None:
    """Each character of merged windows is cited by a hit, and its own text by the hit itself."""
    nodes = pages()
    nodes[0].metadata["window"] = PAGES[0] + PAGES[1]
    nodes[2].metadata["window"] = PAGES[1] + PAGES[2]
    augmenter = MetadataReplacementPostProcessor("window", merge_overlaps=True)
    (passage,) = postprocess(augmenter, hits(nodes, [0, 2]))
    assert passage.node.text == "".join(PAGES)
    quotes = ("built in 1871", "a storm broke the old pier", "is a museum")
    cited = [cite(passage, quote) for quote in quotes]
    assert [[c.node_id for c in citations] for citations in cited] == [
        [nodes[0].node_id],
        [nodes[0].node_id],
        [nodes[2].node_id],
    ]


def test_a_quote_that_occurs_twice() -> None:
    """Each place of a quote is cited once."""
    nodes = linked_document(["Yes, he said. No. ", "Perhaps. ", "Yes, he said. And no."])
    (passage,) = PrevNextNodePostprocessor(
        docstore=docstore_of(nodes), mode="both", output="passages"
    ).postprocess_nodes(hits(nodes, [1]))
    assert [c.node_id for c in cite(passage, "Yes, he said.")] == [nodes[0].node_id, nodes[2].node_id]


def test_scripts_without_spaces() -> None:
    """Line breaks in Chinese text are not part of a quote."""
    nodes = linked_document(["港口建于一九〇四年。\n暴风雨毁了", "旧码头，\n多年无人修理！"])
    (passage,) = PrevNextNodePostprocessor(
        docstore=docstore_of(nodes), mode="both", output="passages"
    ).postprocess_nodes(hits(nodes, [0]))
    assert [c.node_id for c in cite(passage, "九〇四年。暴风雨毁了 旧码头，多年")] == [
        n.node_id for n in nodes
    ]

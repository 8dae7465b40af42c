"""Sections and new scores as users of AutoRAG, PrivateGPT, Dify, Morphik and DocETL expect them."""

from __future__ import annotations

import pytest
from helpers import Postprocess
from llama_index.core.schema import NodeRelationship, NodeWithScore, TextNode
from llama_index.core.utils import get_tokenizer

from llama_index_ext_ctxaug import (
    EmbeddingRescorePostprocessor,
    PrevNextNodePostprocessor,
    SectionPostprocessor,
    read_provenance,
)
from llama_index_ext_ctxaug.structure.headings import find_headings, heading_path
from llama_index_ext_ctxaug.testing import WordEmbedding, docstore_of, hits, linked_document


def autorag_corpus() -> list[TextNode]:
    """AutoRAG's corpus: 30 passages of one file, ordered only by metadata."""
    nodes = []
    for place in range(30):
        ids = {
            "prev_id": f"p{place - 1}" if place else None,
            "next_id": f"p{place + 1}" if place < 29 else None,
        }
        nodes.append(TextNode(id_=f"p{place}", text=f"word{place} word{place + 1}", metadata=ids))
    for node in nodes:
        node.excluded_embed_metadata_keys = ["prev_id", "next_id"]
    return nodes


@pytest.mark.parametrize(("place", "question"), [([1], "word2"), ([3], "word4 word5"), ([0, 29], "word29")])
def test_augment_then_score_by_embedding(postprocess: Postprocess, place: list[int], question: str) -> None:
    """Next neighbors, then the two nearest by embedding: falling scores, with ids and texts of the corpus."""
    corpus = autorag_corpus()
    grow = PrevNextNodePostprocessor(docstore=docstore_of(corpus), mode="next")
    rescore = EmbeddingRescorePostprocessor(embed_model=WordEmbedding(), top_k=2)
    result = postprocess(rescore, postprocess(grow, hits(corpus, place)), query_str=question)
    assert len(result) == 2
    scores = [hit.score for hit in result]
    assert all(isinstance(score, float) for score in scores)
    assert scores == sorted(scores, reverse=True)
    texts = {node.node_id: node.text for node in corpus}
    assert all(texts[hit.node.node_id] == hit.node.text for hit in result)


@pytest.mark.parametrize("scores", [(0.8, 0.1), (0.2, 0.1)])
def test_the_pass_module(postprocess: Postprocess, scores: tuple[float, float]) -> None:
    """Without neighbors, texts, ids and scores stay as they are."""
    corpus = autorag_corpus()
    found = hits(corpus, [4, 9], scores)
    result = postprocess(PrevNextNodePostprocessor(docstore=docstore_of(corpus), num_nodes=0), found)
    assert [(hit.node.node_id, hit.node.text, hit.score) for hit in result] == [
        (hit.node.node_id, hit.node.text, hit.score) for hit in found
    ]


def test_sub_sections_before_the_next_section(postprocess: Postprocess) -> None:
    """A hit in a section with four sub-sections expands into them, never into the next section."""
    texts = (
        ["# Top\n\nThe hit."] + [f"## Sub {n}\n\nText." for n in range(4)] + ["# Forbidden\n\nText.", "Text."]
    )
    nodes = linked_document(texts)
    for tokens in (10, 20, 50, 1000):
        augmenter = SectionPostprocessor(
            docstore=docstore_of(nodes), stop_at="same_or_higher", expansion_tokens=tokens
        )
        places = [texts.index(hit.node.text) for hit in postprocess(augmenter, hits(nodes, [0]))]
        assert places == list(range(len(places)))
        assert max(places) <= 4
        added = sum(len(get_tokenizer()(texts[place])) for place in places[1:])
        assert added <= tokens
    assert max(places) == 4


def test_tables_after_the_hit(postprocess: Postprocess) -> None:
    """Tables after the hit are added whole, within the token limit."""
    header = "| name | value |\n|---|---|\n"
    tables = [header + "\n".join(f"| n{row} | {row} |" for row in range(20)) for _ in range(5)]
    nodes = linked_document(["The tables show it.", *(f"Table {n}:\n\n{t}" for n, t in enumerate(tables))])
    augmenter = SectionPostprocessor(docstore=docstore_of(nodes), expansion_tokens=550)
    result = postprocess(augmenter, hits(nodes, [0]))
    added = [len(get_tokenizer()(hit.node.text)) for hit in result[1:]]
    assert added
    assert sum(added) <= 550 < sum(added) + added[0]


def test_disabled_chunks_are_left_out(postprocess: Postprocess) -> None:
    """A metadata filter excludes a disabled chunk."""
    nodes = linked_document(["One.", "Hit.", "Off.", "Four."])
    nodes[2].metadata["enabled"] = False
    augmenter = SectionPostprocessor(
        docstore=docstore_of(nodes), neighbor_filters=lambda node: node.metadata.get("enabled", True)
    )
    result = postprocess(augmenter, hits(nodes, [1]))
    assert [hit.node.text for hit in result] == ["One.", "Hit."]


def test_pages_around_pages(postprocess: Postprocess) -> None:
    """Pages 3 and 4 with one page around them give 2 to 5 once; added pages are marked and have no score."""
    pages = []
    for page in range(1, 8):
        [node] = linked_document([f"Page {page}."], source_id=f"page-{page}")
        node.metadata = {"file_path": "a.pdf", "page_label": str(page)}
        pages.append(node)
    augmenter = SectionPostprocessor(
        docstore=docstore_of(pages), document_key="file_path", expansion_tokens=4, heading_kinds=()
    )
    result = postprocess(augmenter, hits(pages, [2, 3], [0.9, 0.8]))
    by_page: dict[str, NodeWithScore] = {hit.node.metadata["page_label"]: hit for hit in result}
    assert list(by_page) == ["2", "3", "4", "5"]
    added = {
        page for page, hit in by_page.items() if (p := read_provenance(hit.node)) and p.role == "neighbor"
    }
    assert added == {"2", "5"}
    assert [hit.score for hit in result] == [None, 0.9, 0.8, None]
    assert all(NodeRelationship.SOURCE in hit.node.relationships for hit in result)


def test_headings_above_a_chunk() -> None:
    """The path shows the headings above a chunk, not its own; a later h2 ends the h3."""
    text = "# Top\n\nText.\n\n## Middle\n\nText.\n\n### Low\n\nText.\n\n## Later\n\nText."
    headings = find_headings(text)
    assert heading_path(headings, text.index("### Low")) == ("Top", "Middle")
    assert heading_path(headings, text.index("## Later")) == ("Top",)
    assert heading_path(headings, len(text)) == ("Top", "Later")

"""Offsets into the source document, set at ingestion."""

from __future__ import annotations

from pydoc_data.topics import topics

import pytest
from helpers import Postprocess
from llama_index.core import Document
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser import (
    HierarchicalNodeParser,
    MarkdownNodeParser,
    NodeParser,
    SentenceSplitter,
)
from llama_index.core.schema import MetadataMode

from llama_index_ext_ctxaug import NeighborLinker, PrevNextNodePostprocessor, SourceOffsets, read_provenance
from llama_index_ext_ctxaug.testing import docstore_of, hits

MARKDOWN = "".join(
    f"# Part {number}\n\n{topics[name]}\n\n" for number, name in enumerate(["assignment", "class", "with"])
)


def chain() -> list[NodeParser]:
    """Return a parser of sections and a splitter of these."""
    return [MarkdownNodeParser(), SentenceSplitter(chunk_size=80, chunk_overlap=20)]


async def test_chunks_of_chained_parsers_get_true_offsets() -> None:
    """Sync and async, in a pipeline or not, each chunk is at its offsets in the document."""
    document = Document(text=MARKDOWN, id_="doc")
    parser = SourceOffsets(chain())
    nodes = parser([document])
    assert len(nodes) > 20
    for node in nodes:
        assert MARKDOWN[node.start_char_idx : node.end_char_idx] == node.text
        assert node.get_content(MetadataMode.LLM).count("char_offsets") == 0
    _, splitter = chain()
    raw = splitter(MarkdownNodeParser()([document]))
    assert any(MARKDOWN[node.start_char_idx : node.end_char_idx] != node.text for node in raw)
    again = await IngestionPipeline(transformations=[parser]).arun(documents=[document])
    assert [(n.text, n.start_char_idx) for n in again] == [(n.text, n.start_char_idx) for n in nodes]
    assert parser.to_dict()["class_name"] == "SourceOffsets"


def test_stores_without_documents_profit(postprocess: Postprocess) -> None:
    """Without the document in the store, each piece of a passage still has a true place."""
    nodes = NeighborLinker()(SourceOffsets(chain())([Document(text=MARKDOWN, id_="doc")]))
    augmenter = PrevNextNodePostprocessor(
        docstore=docstore_of(nodes), num_nodes=2, mode="both", output="passages"
    )
    for place in range(0, len(nodes), 5):
        (passage,) = postprocess(augmenter, hits(nodes, [place]))
        provenance = read_provenance(passage.node)
        assert not provenance.exact
        for piece in provenance.pieces:
            source = MARKDOWN[piece.source_start : piece.source_end]
            assert piece.source_start is not None
            assert passage.node.text[piece.start : piece.end] == source


def test_leaves_keep_offsets_in_their_parents() -> None:
    """Offsets in a hierarchy count within the parent, and are correct or None."""
    document = Document(text=topics["class"], id_="doc")
    nodes = SourceOffsets([HierarchicalNodeParser.from_defaults([256, 64], chunk_overlap=10)])([document])
    texts = {node.node_id: node.text for node in (*nodes, document)}
    for node in nodes:
        base = texts[node.parent_node.node_id if node.parent_node else "doc"]
        assert base[node.start_char_idx : node.end_char_idx] == node.text


def test_text_that_is_not_in_the_document_has_no_offsets() -> None:
    """A chunk that a transformation changed gets no offsets, and the input is not changed."""
    document = Document(text="One is. Two is. Three is.", id_="doc")

    class Masking(SentenceSplitter):
        def _split_text(self, text: str, chunk_size: int) -> list[str]:
            return ["One is.", "XXX is.", "Three is."]

    nodes = SourceOffsets([Masking(include_metadata=False)])([document])
    assert [node.start_char_idx for node in nodes] == [0, None, 16]
    assert document.text == "One is. Two is. Three is."


@pytest.mark.parametrize("parsers", [[], None])
def test_no_parsers_are_refused(parsers: list[NodeParser] | None) -> None:
    """An empty chain of parsers is rejected."""
    with pytest.raises((ValueError, TypeError)):
        SourceOffsets(parsers)

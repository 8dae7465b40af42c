"""The doctor finds what hinders augmenters, and nothing in a sound index."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from llama_index.core import Document, MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser import (
    HierarchicalNodeParser,
    MarkdownNodeParser,
    SentenceSplitter,
    get_leaf_nodes,
)
from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
from llama_index.core.storage.docstore.types import BaseDocumentStore

from llama_index_ext_ctxaug import ConfigurationError, NeighborLinker, diagnose
from llama_index_ext_ctxaug.evaluation.cli import ctxaug
from llama_index_ext_ctxaug.testing import ObservedDocstore, hits, linked_document

TEXT = "".join(f"# Part {part}\n\n" + f"Sentence of part {part}. " * 40 + "\n\n" for part in range(6))


def split(documents: list[Document]) -> list[BaseNode]:
    """Return chunks of documents, as one splitter makes them."""
    return SentenceSplitter(chunk_size=64, chunk_overlap=8).get_nodes_from_documents(documents)


def store_of(*groups: list) -> SimpleDocumentStore:
    """Return a docstore with these nodes."""
    docstore = SimpleDocumentStore()
    for nodes in groups:
        docstore.add_documents(nodes)
    return docstore


def kinds(docstore: BaseDocumentStore, nodes: list | None = None) -> set[str]:
    """Return the kinds of findings."""
    return {finding.kind for finding in diagnose(docstore, nodes).findings}


def test_a_sound_docstore_has_no_findings() -> None:
    """Documents and chunks of one splitter in one docstore give no findings."""
    documents = [Document(text=TEXT, metadata={"file_path": f"{name}.md"}) for name in "ab"]
    diagnosis = diagnose(store_of(documents, split(documents)))
    assert diagnosis.findings == []
    assert diagnosis.chunks >= 20
    assert str(diagnosis).endswith("chunks examined: no findings")


def test_an_index_is_examined_by_its_hits() -> None:
    """An index is sampled through its retriever; only the documents, which no index keeps, are missing."""
    index = VectorStoreIndex.from_documents([Document(text=TEXT)], embed_model=MockEmbedding(embed_dim=4))
    assert kinds(index) == {"documents_missing"}


def test_chunks_that_are_not_in_the_docstore() -> None:
    """An empty docstore and one that holds input documents only are distinguished."""
    documents = [Document(text=TEXT)]
    nodes = split(documents)
    assert "chunks_missing" in kinds(SimpleDocumentStore(), nodes)
    docstore = SimpleDocumentStore()
    pipeline = IngestionPipeline(
        transformations=[SentenceSplitter(chunk_size=64, chunk_overlap=0)], docstore=docstore
    )
    nodes = list(pipeline.run(documents=documents))
    [finding] = diagnose(docstore, nodes).findings
    assert finding.kind == "documents_only"
    assert "add_documents([*documents, *nodes])" in finding.remedy


def test_leaves_without_next() -> None:
    """The leaves of a hierarchy lack NEXT, unless they were linked at ingestion."""
    documents = [Document(text=TEXT)]
    nodes = HierarchicalNodeParser.from_defaults([256, 64], chunk_overlap=0).get_nodes_from_documents(
        documents
    )
    assert "next_missing" in kinds(store_of(documents, nodes), get_leaf_nodes(nodes))
    linked = NeighborLinker()(nodes)
    assert "next_missing" not in kinds(store_of(documents, list(linked)), get_leaf_nodes(list(linked)))


def test_offsets_of_parsers_in_a_row_are_false() -> None:
    """Offsets that count in a section instead of the document are found; those of one splitter are not."""
    documents = [Document(text=TEXT)]
    sections = MarkdownNodeParser().get_nodes_from_documents(documents)
    nodes = SentenceSplitter(chunk_size=64, chunk_overlap=0).get_nodes_from_documents(sections)
    assert "offsets_false" in kinds(store_of(documents, nodes))


def pages(count: int, path: str, tenant: str = "") -> list[Document]:
    """Return the pages of a file, each its own document, as PDF readers make them."""
    return [
        Document(
            id_=f"{tenant}{path}-{number}",
            text=f"Page {number} of {path} for {tenant}. " * 10,
            metadata={"file_path": path, "page_label": str(number)},
        )
        for number in range(1, count + 1)
    ]


def test_pages_that_are_documents() -> None:
    """Pages of one file need a document_key; one page label in two documents is named."""
    documents = pages(4, "manual.pdf")
    [finding] = diagnose(store_of(documents, split(documents))).findings
    assert finding.kind == "page_documents"
    assert finding.remedy.startswith("pass document_key='file_path'")
    documents += pages(4, "manual.pdf", tenant="other")
    assert kinds(store_of(documents, split(documents))) == {"page_documents", "page_labels_twice"}


def test_a_document_that_was_ingested_twice() -> None:
    """Chunks with one text at one place of a file are two generations; a repeated text is not."""
    documents = [Document(text=TEXT, metadata={"file_path": "a.md"}) for _ in range(2)]
    assert "duplicates" in kinds(store_of(documents, split(documents)))
    repeated = [Document(text="The same sentence. " * 200, metadata={"file_path": "a.md"})]
    assert "duplicates" not in kinds(store_of(repeated, split(repeated)))


def test_a_docstore_that_is_read_one_key_at_a_time() -> None:
    """A store that reads one key at a time is named, and the examination itself makes few reads."""
    documents = [Document(text=TEXT)]
    nodes = split(documents)
    slow = ObservedDocstore(store_of(documents, nodes), single_reads=True)
    assert kinds(slow, nodes) == {"single_reads"}
    quick = ObservedDocstore(store_of(documents, nodes))
    assert kinds(quick, nodes) == set()
    assert len(quick.batches) <= 2
    assert len(quick.node_reads) == len(set(quick.node_reads))


def test_a_remote_docstore_needs_a_sample() -> None:
    """A docstore that cannot list a few chunks is reported with what to pass; a retriever's hits suffice."""
    chain = linked_document(9)
    docstore = KVDocumentStore(store_of(chain)._kvstore)
    with pytest.raises(ConfigurationError, match=r"KVDocumentStore cannot list.*nodes=retriever\.retrieve"):
        diagnose(docstore)
    assert diagnose(docstore, hits(chain, [1, 2])).chunks == 2
    assert diagnose(docstore, []).findings == []


def test_the_size_of_the_docstore_does_not_matter() -> None:
    """A sample is taken without decoding the nodes of a large docstore."""
    docstore = store_of(linked_document(30))
    collection = docstore._kvstore._collections_mappings[docstore._node_collection]
    record = next(iter(collection.values()))
    collection.update({f"more-{number}": record for number in range(200_000)})
    start = time.perf_counter()
    diagnose(docstore)
    assert time.perf_counter() - start < 2


def test_the_command_checks_a_persisted_index(tmp_path: Path) -> None:
    """`ctxaug check` prints the findings on a folder, and names what a folder without a docstore lacks."""
    documents = pages(4, "manual.pdf")
    StorageContext.from_defaults(docstore=store_of(documents, split(documents))).persist(str(tmp_path))
    result = CliRunner().invoke(ctxaug, ["check", str(tmp_path)])
    assert result.exit_code == 0
    assert "page_documents" in result.output
    assert "document_key='file_path'" in result.output
    result = CliRunner().invoke(ctxaug, ["check", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "holds no docstore.json" in result.output

"""Every augmenter gives the same output over every store as over SimpleDocumentStore, sync and async."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import postprocessors.test_conformance as registry
import pytest
from llama_index.core.node_parser import HierarchicalNodeParser, MarkdownNodeParser, SentenceSplitter
from llama_index.core.schema import BaseNode, Document, NodeWithScore, TextNode
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
from servers import VECTOR_STORES
from vector_stores import MAKERS, FilledVectorStore, make_uuid

from llama_index_ext_ctxaug.passages.provenance import PROVENANCE_KEY
from llama_index_ext_ctxaug.testing import AugmenterConformance, docstore_of, hits, linked_document
from llama_index_ext_ctxaug.testing.calls import dicts, run_async, run_sync

pytestmark = pytest.mark.stores

SERVERS = ("redis_docstore", "postgres_docstore", "duckdb_docstore")
DATABASES = ("mongodb", "sync_mongodb", "dynamodb", "firestore", "elasticsearch")

HELD = [kind() for kind in vars(registry).values() if "augmenter" in getattr(kind, "__dict__", ())]
AUGMENTERS = [one for one in HELD if isinstance(one, AugmenterConformance)]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"document_key": "file_path", "output": "passages", "neighbor_score": "decay"},
    {
        "document_key": ("tenant", "file_path"),
        "neighbor_filters": MetadataFilters(filters=[MetadataFilter(key="tenant", value="a")]),
    },
]


class Stored(NamedTuple):
    """Nodes to store, and the hits of a query among them."""

    nodes: Sequence[BaseNode]
    hits: list[NodeWithScore]


def parts(count: int) -> str:
    """Return a text with headings."""
    return "".join(f"# Part {part}\n\n" + f"Chunk {part} of doc0 says more. " * 20 for part in range(count))


def documents(texts: Sequence[str], **metadata: Any) -> list[Document]:
    """Return documents with metadata and ids that every store accepts."""
    made = [Document(text=text, metadata={"tenant": "a", **metadata}) for text in texts]
    for place, document in enumerate(made):
        document.id_ = make_uuid(f"{metadata} {place}")
    return made


def split(nodes: Sequence[BaseNode]) -> list[BaseNode]:
    """Return small chunks."""
    return SentenceSplitter(chunk_size=48, chunk_overlap=8)(list(nodes))


def bare(found: list[NodeWithScore]) -> list[NodeWithScore]:
    """Return hits without relationships."""
    return [NodeWithScore(node=one.node.model_copy(update={"relationships": {}})) for one in found]


def linked() -> Stored:
    """Return chunks with all links, of two tenants, with their documents."""
    chunks: list[TextNode] = []
    whole = []
    for tenant in ("a", "b"):
        texts = [f"# Part {number}\n\nChunk {number} of {tenant}.\n" for number in range(14)]
        whole += documents(["".join(texts)], tenant=tenant, file_path=f"{tenant}.md")
        metadata = {"file_path": f"{tenant}.md", "tenant": tenant, "window": "text"}
        chunks += linked_document(
            texts, source_id=whole[-1].node_id, offsets=True, metadata=metadata, make_id=make_uuid
        )
    for place in (4, 9):
        chunks[place].metadata["tenant"] = "b"
    return Stored([*whole, *chunks], hits(chunks, [3, 10, 11, 20, 0, 27]))


def half_linked() -> Stored:
    """Return chunks that link only to the previous chunk, and hits without any relationship."""
    chunks = linked_document(12, links="previous", make_id=make_uuid, metadata={"tenant": "a"})
    return Stored(chunks, bare(hits(chunks, [3, 7, 8])))


def unlinked() -> Stored:
    """Return chunks without links, ordered by their offsets and added out of order."""
    chunks = linked_document(12, links="none", offsets=True, make_id=make_uuid, metadata={"tenant": "a"})
    return Stored([*chunks[6:], *chunks[:6]], hits(chunks, [3, 7, 8]))


def numbered() -> Stored:
    """Return chunks without links or offsets that metadata numbers or names."""
    chunks = linked_document(12, links="none", make_id=make_uuid, metadata={"tenant": "a"})
    for place, chunk in enumerate(chunks):
        chunk.metadata["chunk_id"] = place
    return Stored(chunks[::-1], hits(chunks, [3, 7, 8]))


def hierarchy() -> Stored:
    """Return leaves under two levels of parents, without NEXT, as LlamaIndex leaves them."""
    whole = documents([parts(5)], file_path="h.md")
    nodes = HierarchicalNodeParser.from_defaults(chunk_sizes=[256, 96, 48]).get_nodes_from_documents(whole)
    leaves = [node for node in nodes if not node.child_nodes]
    return Stored([*whole, *nodes], hits(leaves, [2, 3, 4, 9, 17]))


def headings() -> Stored:
    """Return chunks of two chained parsers, of two documents."""
    whole = [*documents([parts(3)], file_path="s.md"), *documents([parts(2)], file_path="t.md")]
    chunks = split(MarkdownNodeParser()(whole))
    return Stored([*whole, *chunks], hits(chunks, [1, 6, 7, 11]))


def pages() -> Stored:
    """Return pages of two files, each its own document, stored out of order."""
    whole = [
        *documents([f"Page {place} of doc0. " * 15 for place in range(4)], file_path="p.pdf"),
        *documents([f"Page {place} of doc1. " * 15 for place in range(3)], file_path="q's.pdf"),
    ]
    for place, document in enumerate(whole):
        document.metadata["page_label"] = str(place % 4 + 9)
    chunks = split(whole)
    ends = [place for place, one in enumerate(chunks) if one.next_node is None]
    return Stored([*whole, *chunks[::-1]], hits(chunks, [ends[0], ends[1] - 1, ends[4]]))


def page_nodes() -> Stored:
    """Return pages that are nodes without a source document."""
    whole = documents([f"Page {place} of doc0." for place in range(6)], file_path="p.pdf")
    for place, document in enumerate(whole):
        document.metadata["page_label"] = place + 1
    nodes = [TextNode(id_=one.node_id, text=one.text, metadata=one.metadata) for one in whole]
    return Stored(nodes, hits(nodes, [2, 5]))


def incomplete() -> Stored:
    """Return linked chunks, some of which are not in the store."""
    chunks = linked_document(14, make_id=make_uuid, metadata={"tenant": "a"})
    return Stored([*chunks[:5], *chunks[6:]], hits(chunks, [3, 8, 11]))


STORED = [linked, half_linked, unlinked, numbered, hierarchy, headings, pages, page_nodes, incomplete]


def plain(result: list[NodeWithScore]) -> list[dict[str, Any]]:
    """Return nodes for comparison, ignoring the order of metadata keys, which Firestore does not keep."""
    nodes = dicts(result)
    for one in nodes:
        if text := one["node"]["metadata"].get(PROVENANCE_KEY):
            provenance = json.loads(text)
            provenance["shared"] = sorted(provenance.get("shared", ()))
            one["node"]["metadata"][PROVENANCE_KEY] = provenance
    return nodes


@cache
def wanted(stored: Callable[[], Stored]) -> tuple[Stored, list[tuple[Any, dict[str, Any], Any]]]:
    """Return what to store, and each augmenter with its options and its result in memory."""
    given = stored()
    in_memory = docstore_of(given.nodes)
    results = [
        (held, options, plain(run_sync(held.make(in_memory, **options), given.hits)))
        for held, options in product(AUGMENTERS, OPTIONS)
        if options.keys() <= held.augmenter.model_fields.keys()
    ]
    return given, results


def lacks(kind: str, stored: Callable[[], Stored], options: dict[str, Any]) -> bool:
    """Return True for what the Firestore emulator cannot do: list documents, and keep lists by number."""
    return kind == "firestore" and (stored is hierarchy or "document_key" in options)


@pytest.mark.parametrize("stored", STORED, ids=lambda made: made.__name__)
@pytest.mark.parametrize("kind", [*SERVERS, *DATABASES, *VECTOR_STORES])
def test_a_store_gives_what_one_in_memory_gives(
    kind: str, stored: Callable[[], Stored], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Text, metadata, order and scores are equal for all augmenters and common parameters."""
    if kind in MAKERS:
        docstore: BaseDocumentStore = FilledVectorStore(MAKERS[kind](tmp_path))
    else:
        made = request.getfixturevalue(f"make_{kind}")()
        docstore = FilledVectorStore(made) if kind in VECTOR_STORES else made
    given, results = wanted(stored)
    docstore.add_documents(list(given.nodes))
    different = [
        (type(held).__name__, call.__name__, options)
        for (held, options, expected), call in product(results, (run_sync, run_async))
        if not lacks(kind, stored, options)
        and plain(call(held.make(docstore, **options), given.hits)) != expected
    ]
    assert different == []

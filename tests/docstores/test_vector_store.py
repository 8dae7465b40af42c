"""Vector stores as docstores: conformance on each, and the pitfalls of reading nodes from them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from blockbuster import blockbuster_ctx
from helpers import Postprocess, ids
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from vector_stores import DIMENSIONS, MAKERS, FilledVectorStore, make_uuid

from llama_index_ext_ctxaug import ConfigurationError, PrevNextNodePostprocessor, VectorStoreDocstore
from llama_index_ext_ctxaug.docstores import store_call, vector_store
from llama_index_ext_ctxaug.docstores.vector_reads import qdrant as qdrant_read
from llama_index_ext_ctxaug.testing import DocstoreConformance, docstore_of, hits, linked_document

pytestmark = pytest.mark.stores


T = TypeVar("T")
MakeStore = Callable[[], BasePydanticVectorStore]


class TestVectorStores(DocstoreConformance):
    """A docstore over each vector store."""

    metadata: ClassVar[dict[str, Any]] = {"page": 3, "name": "a 'quoted' \" name"}

    def make_id(self, name: str) -> str:
        """Return a UUID, since Qdrant accepts no other id."""
        return make_uuid(name)

    @pytest.fixture
    def make_docstore(self, make_store: MakeStore) -> Callable[[], FilledVectorStore]:
        """Return a factory of empty docstores."""
        return lambda: FilledVectorStore(make_store())


def filled(store: BasePydanticVectorStore, count: int = 12) -> tuple[VectorStoreDocstore, list[TextNode]]:
    """Add a document's chunks to a vector store; return a docstore over it, and the chunks."""
    chain = linked_document(count, make_id=make_uuid, offsets=True)
    FilledVectorStore(store).add_documents(chain)
    return VectorStoreDocstore(store), chain


def test_nodes_are_read_in_the_order_of_their_ids(make_store: MakeStore) -> None:
    """Order, repetitions and unknown ids are handled as by a docstore; embeddings are left out."""
    docstore, chain = filled(make_store())
    wanted = [chain[place].node_id for place in (7, 2, 7, 11, 0)]
    for nodes in (docstore.get_nodes(wanted), asyncio.run(docstore.aget_nodes(wanted))):
        assert ids(nodes) == wanted
        assert [node.text for node in nodes] == [chain[place].text for place in (7, 2, 7, 11, 0)]
        assert {node.embedding for node in nodes} == {None}
    unknown = [make_uuid("unknown"), "no uuid 'quoted'"]
    assert ids(docstore.get_nodes([*unknown, wanted[0]], raise_error=False)) == wanted[:1]
    assert docstore.get_document(unknown[1], raise_error=False) is None
    with pytest.raises(ValueError, match="2 nodes not found, the first is"):
        docstore.get_nodes([*unknown, wanted[0]])


@pytest.mark.parametrize("make_store", ["chroma", "lancedb", "milvus", "pgvector"], indirect=True)
def test_ids_with_quotes_are_found(make_store: MakeStore) -> None:
    """Ids of nodes and documents reach the store as values, whatever characters they contain."""
    store, name = make_store(), 'it\'s "the" \\ document'
    chain = linked_document(2, source_id=name)
    FilledVectorStore(store).add_documents(chain)
    docstore = VectorStoreDocstore(store)
    assert ids(docstore.get_nodes(ids(chain))) == ids(chain)
    assert docstore.get_ref_doc_info(name).node_ids == ids(chain)


def test_no_ids_give_no_nodes(make_store: MakeStore) -> None:
    """An empty list of ids gives no nodes, though many vector stores answer it with all of them."""
    docstore, _ = filled(make_store())
    assert docstore.get_nodes([]) == asyncio.run(docstore.aget_nodes([])) == []


def test_a_document_is_listed_in_reading_order(make_store: MakeStore) -> None:
    """A document's nodes are listed in the order of their links, whatever the order of insertion."""
    store = make_store()
    chain = linked_document(30, make_id=make_uuid)
    FilledVectorStore(store).add_documents([*chain[20:], *chain[5:20], *chain[:5]])
    FilledVectorStore(store).add_documents(linked_document(3, source_id="other", make_id=make_uuid))
    docstore = VectorStoreDocstore(store)
    for info in (docstore.get_ref_doc_info("doc"), asyncio.run(docstore.aget_ref_doc_info("doc"))):
        assert info.node_ids == ids(chain)
    assert docstore.get_ref_doc_info("none") is None


@pytest.mark.parametrize("output", ["nodes", "passages"])
def test_a_vector_store_gives_what_a_docstore_gives(
    make_store: MakeStore, postprocess: Postprocess, output: str
) -> None:
    """A vector store gives the same neighbors as a docstore with the same chunks, off the event loop."""
    docstore, chain = filled(make_store(), 40)
    found = hits(chain, [0, 17, 20, 39])
    for num_nodes in (1, 4):
        results = [
            postprocess(
                PrevNextNodePostprocessor(docstore=one, num_nodes=num_nodes, mode="both", output=output),
                found,
            )
            for one in (docstore, docstore_of(chain))
        ]
        assert [hit.to_dict() for hit in results[0]] == [hit.to_dict() for hit in results[1]]


def test_a_document_is_not_listed_at_its_ends(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, postprocess: Postprocess
) -> None:
    """One hop from the ends of a linked document reads neighbors only, not the whole document."""
    docstore, chain = filled(make_store())
    listed: list[str] = []
    monkeypatch.setattr(vector_store, "_documents", lambda ids, _: listed.extend(ids) or {})
    augmenter = PrevNextNodePostprocessor(docstore=docstore, mode="both")
    assert ids(postprocess(augmenter, hits(chain, [0, 11]))) == ids([*chain[:2], *chain[10:]])
    assert listed == []


def test_a_long_document_in_qdrant_is_listed_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of nodes is read page by page."""
    monkeypatch.setattr(qdrant_read, "_PAGE", 7)
    docstore, chain = filled(MAKERS["qdrant"](tmp_path), 30)
    assert docstore.get_ref_doc_info("doc").node_ids == ids(chain)


@pytest.mark.parametrize("page", [7, 1000])
def test_qdrant_with_an_async_client_is_read_with_it(page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes and lists are read with the async client; in another event loop, with the sync one."""
    from llama_index.vector_stores.qdrant import QdrantVectorStore
    from qdrant_client import AsyncQdrantClient, QdrantClient

    monkeypatch.setattr(qdrant_read, "_PAGE", page)
    store = QdrantVectorStore("nodes", client=QdrantClient(":memory:"), aclient=AsyncQdrantClient(":memory:"))
    chain = linked_document(20, make_id=make_uuid)
    for place, node in enumerate(chain):
        node.embedding = [float(place), *[0.5] * (DIMENSIONS - 1)]
    docstore = VectorStoreDocstore(store)

    async def read() -> list[str]:
        with blockbuster_ctx():
            assert (await docstore.aget_ref_doc_info("doc")).node_ids == ids(chain)
            return ids(await docstore.aget_nodes(ids(chain)))

    async def fill_and_read() -> list[str]:
        await store.async_add(chain)
        return await read()

    assert asyncio.run(fill_and_read()) == ids(chain)
    QdrantVectorStore("nodes", client=store.client).add(chain)
    assert asyncio.run(read()) == ids(chain)


def in_a_new_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a loop of its own; `asyncio.run` keeps one loop once nest_asyncio has patched it."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def test_milvus_with_an_async_client_of_another_loop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nodes are read in each event loop; after the first, in a thread, logged once each."""
    from llama_index.vector_stores.milvus import MilvusVectorStore

    async def fill() -> tuple[VectorStoreDocstore, list[TextNode]]:
        uri = str(tmp_path / "milvus.db")
        docstore, chain = filled(MilvusVectorStore(uri=uri, dim=DIMENSIONS, use_async_client=True))
        assert ids(await docstore.aget_nodes(ids(chain))) == ids(chain)
        return docstore, chain

    docstore, chain = in_a_new_loop(fill())
    store_call._logged.clear()
    for _ in range(2):
        assert ids(in_a_new_loop(VectorStoreDocstore(docstore.vector_store).aget_nodes(ids(chain)))) == ids(
            chain
        )
    assert sum("belongs to another event loop" in line for line in caplog.messages) == 1


def test_vector_stores_that_cannot_serve_are_refused() -> None:
    """Stores without text or reads by id, and other objects, are rejected with the remedy."""

    class NoReads(SimpleVectorStore):
        stores_text: bool = True
        get_nodes = BasePydanticVectorStore.get_nodes

    for store, advice in (
        (SimpleVectorStore(), r"SimpleVectorStore keeps no text: pass docstore=index.docstore"),
        (NoReads(), r"cannot read nodes by id.*add_documents.*store_nodes_override=True"),
        ("chroma", r"must be a LlamaIndex vector store, got str: pass index.vector_store"),
    ):
        with pytest.raises(ConfigurationError, match=advice):
            VectorStoreDocstore(store)


def test_a_vector_store_is_not_written_to(tmp_path: Path) -> None:
    """All writing methods are rejected, and nothing that would read the whole store is listed."""
    docstore, chain = filled(MAKERS["chroma"](tmp_path))
    for call in (
        lambda: docstore.add_documents(chain),
        lambda: asyncio.run(docstore.async_add_documents(chain)),
        lambda: docstore.delete_document(chain[0].node_id),
        lambda: asyncio.run(docstore.adelete_document(chain[0].node_id)),
        lambda: docstore.delete_ref_doc("doc"),
        lambda: asyncio.run(docstore.adelete_ref_doc("doc")),
        lambda: docstore.set_document_hash("doc", "hash"),
        lambda: asyncio.run(docstore.aset_document_hash("doc", "hash")),
        lambda: docstore.set_document_hashes({}),
        lambda: asyncio.run(docstore.aset_document_hashes({})),
        lambda: docstore.docs,
        lambda: asyncio.run(docstore.aget_all_ref_doc_info()),
    ):
        with pytest.raises(NotImplementedError, match="VectorStoreDocstore"):
            call()
    assert docstore.document_exists(chain[0].node_id)
    assert asyncio.run(docstore.adocument_exists(chain[0].node_id))
    assert docstore.get_document_hash("doc") is asyncio.run(docstore.aget_document_hash("doc")) is None
    assert docstore.get_all_document_hashes() == asyncio.run(docstore.aget_all_document_hashes()) == {}

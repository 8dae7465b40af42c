"""MongoDB, DynamoDB, Firestore and Elasticsearch: conformance, and the number of requests per call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from databases import ElasticsearchStub, MakeDocstore
from helpers import Postprocess, ids

from llama_index_ext_ctxaug import PrevNextNodePostprocessor
from llama_index_ext_ctxaug.docstores import store_call
from llama_index_ext_ctxaug.docstores.bulk import dynamodb, registry
from llama_index_ext_ctxaug.testing import DocstoreConformance, Relay, hits, linked_document

pytestmark = pytest.mark.stores


class TestMongoDB(DocstoreConformance):
    """MongoDB with a sync and an async client."""

    @pytest.fixture
    def make_docstore(self, make_mongodb: MakeDocstore) -> MakeDocstore:
        """Return a factory of empty docstores."""
        return make_mongodb


class TestSyncMongoDB(DocstoreConformance):
    """MongoDB with a sync client only."""

    @pytest.fixture
    def make_docstore(self, make_sync_mongodb: MakeDocstore) -> MakeDocstore:
        """Return a factory of empty docstores."""
        return make_sync_mongodb


class TestDynamoDB(DocstoreConformance):
    """DynamoDB, which has no async client."""

    @pytest.fixture
    def make_docstore(self, make_dynamodb: MakeDocstore) -> MakeDocstore:
        """Return a factory of empty docstores."""
        return make_dynamodb


class TestFirestore(DocstoreConformance):
    """Firestore with a sync and an async client."""

    @pytest.fixture
    def make_docstore(self, make_firestore: MakeDocstore) -> MakeDocstore:
        """Return a factory of empty docstores."""
        return make_firestore


class TestElasticsearch(DocstoreConformance):
    """Elasticsearch, which has an async client only."""

    @pytest.fixture
    def make_docstore(self, make_elasticsearch: MakeDocstore) -> MakeDocstore:
        """Return a factory of empty docstores."""
        return make_elasticsearch


@pytest.mark.parametrize("kind", ["mongodb", "sync_mongodb", "dynamodb", "elasticsearch"])
def test_a_timeout_changes_nothing(
    kind: str, request: pytest.FixtureRequest, postprocess: Postprocess
) -> None:
    """With a timeout, sync and async reads return the same as without, off the event loop."""
    docstore = request.getfixturevalue(f"make_{kind}")()
    chain = linked_document(20)
    docstore.add_documents(chain)
    for timeout in (None, 20):
        augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=4, mode="both", timeout=timeout)
        assert ids(postprocess(augmenter, hits(chain, [10]))) == ids(chain[6:15])


def test_elasticsearch_takes_two_requests(
    make_elasticsearch: MakeDocstore, elasticsearch: ElasticsearchStub, postprocess: Postprocess
) -> None:
    """Three hops and more take two requests, with the client's credentials."""
    docstore = make_elasticsearch()
    chain = linked_document(60)
    docstore.add_documents(chain)
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=5, mode="both")
    elasticsearch.requests.clear()
    assert ids(postprocess(augmenter, hits(chain, [10, 30]))) == ids([*chain[5:16], *chain[25:36]])
    assert elasticsearch.requests == ["POST _mget"] * 2
    assert elasticsearch.credentials == {"Basic bWU6eA=="}


def test_mongodb_takes_two_queries_of_each_collection(mongodb_port: int, make_mongodb: MakeDocstore) -> None:
    """Three hops and more take two queries of nodes and one of lists, beyond a first batch of nodes too."""
    from llama_index.storage.docstore.mongodb import MongoDocumentStore

    writer = make_mongodb()
    chain = linked_document(400)
    writer.add_documents(chain)
    with Relay(("127.0.0.1", mongodb_port)) as relay:
        uri = f"mongodb://127.0.0.1:{relay.port}/?directConnection=true&heartbeatFrequencyMS=100000"
        docstore = MongoDocumentStore.from_uri(uri, db_name="nodes", namespace=writer._namespace)
        augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=90, mode="both")
        found, wanted = hits(chain, [100, 300]), ids([*chain[10:191], *chain[210:391]])
        assert ids(augmenter.postprocess_nodes(found)) == wanted  # opens the connections
        relay.sent.clear()
        assert ids(augmenter.postprocess_nodes(found)) == wanted
        assert relay.sent.count(b"\x02find\x00") == 3
        assert relay.sent.count(b"getMore") == 0


def test_dynamodb_reads_more_keys_than_a_batch_holds(
    make_dynamodb: MakeDocstore, monkeypatch: pytest.MonkeyPatch, postprocess: Postprocess
) -> None:
    """Keys are read in batches of a hundred; those that the table leaves unread are read again."""
    docstore = make_dynamodb()
    chain = linked_document(300)
    docstore.add_documents(chain)
    client = docstore._kvstore._table.meta.client
    sizes: list[int] = []
    read = client.batch_get_item

    def partly(RequestItems: dict[str, Any]) -> dict[str, Any]:
        [(table, wanted)] = RequestItems.items()
        keys = wanted["Keys"]
        sizes.append(len(keys))
        half = len(keys) // 2 if len(sizes) < 3 else len(keys)
        answer = read(RequestItems={table: {"Keys": keys[:half]}})
        answer["UnprocessedKeys"] = {table: {"Keys": keys[half:]}} if keys[half:] else {}
        return answer

    monkeypatch.setattr(client, "batch_get_item", partly)
    monkeypatch.setattr(dynamodb, "_PAUSE", 0.0)
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=140, mode="both")
    assert ids(postprocess(augmenter, hits(chain, [150]))) == ids(chain[10:291])
    assert max(sizes) == 100


def test_a_throttled_dynamodb_is_a_failing_store(
    make_dynamodb: MakeDocstore, monkeypatch: pytest.MonkeyPatch, postprocess: Postprocess
) -> None:
    """If several tries read no key, the call fails instead of reporting the nodes as missing."""
    docstore = make_dynamodb()
    monkeypatch.setattr(
        docstore._kvstore._table.meta.client,
        "batch_get_item",
        lambda RequestItems: {"Responses": {}, "UnprocessedKeys": RequestItems},
    )
    monkeypatch.setattr(dynamodb, "_PAUSE", 0.0)
    with pytest.raises(ConnectionError, match=r"DynamoDB left 1 keys of .* unread in 7 tries"):
        postprocess(PrevNextNodePostprocessor(docstore=docstore), hits(linked_document(3), [1]))


@pytest.mark.parametrize("timeout", [None, 20])
def test_keys_that_firestore_cannot_hold_are_missing(
    make_firestore: MakeDocstore, timeout: int | None
) -> None:
    """An id with a slash, which names no document in Firestore, does not affect the other reads."""
    docstore = make_firestore()
    chain = linked_document(9, source_id="doc")
    docstore.add_documents(chain)
    broken = linked_document(3, source_id="folder/file")
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=3, timeout=timeout)
    found = [*hits(broken, [0]), *hits(chain, [2])]
    # Google's client looks for certificates on its first call, which blocks the event loop once.
    for result in (augmenter.postprocess_nodes(found), asyncio.run(augmenter.apostprocess_nodes(found))):
        assert ids(result) == ids([broken[0], *chain[2:6]])


@pytest.mark.parametrize("kind", ["sync_mongodb", "mongodb"])
def test_a_store_without_an_async_client_is_read_in_a_thread(
    kind: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without a bulk read, the ValueError of a missing async client leads to a thread, logged once."""
    monkeypatch.setattr(store_call, "_logged", set())
    monkeypatch.setattr(registry, "registered", {})
    docstore = request.getfixturevalue(f"make_{kind}")()
    chain = linked_document(9)
    docstore.add_documents(chain)
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=3)
    for _ in range(2):
        assert ids(asyncio.run(augmenter.apostprocess_nodes(hits(chain, [2])))) == ids(chain[2:6])
    without = sum("was not initialized with an async client" in line for line in caplog.messages)
    assert without == (kind == "sync_mongodb")

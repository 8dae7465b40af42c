"""MongoDB, DynamoDB, Firestore and Elasticsearch: conformance, and how many requests a call costs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from helpers import Postprocess, ids
from llama_index.core.storage.docstore.types import BaseDocumentStore
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from llama_index_ext_ctxaug import PrevNextNodePostprocessor
from llama_index_ext_ctxaug.docstores import store_call
from llama_index_ext_ctxaug.docstores.bulk import dynamodb, registry
from llama_index_ext_ctxaug.testing import DocstoreConformance, Relay, hits, linked_document

pytestmark = pytest.mark.stores

MakeDocstore = Callable[[], BaseDocumentStore]


@pytest.fixture(scope="module")
def mongodb_port() -> Iterator[int]:
    """Port of a server that speaks MongoDB's protocol."""
    from mongoeco.wire import AsyncMongoEcoProxyServer

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = AsyncMongoEcoProxyServer(host="127.0.0.1", port=0)
    address = asyncio.run_coroutine_threadsafe(server.start(), loop).result(30)
    yield address.port
    asyncio.run_coroutine_threadsafe(server.close(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


@pytest.fixture
def make_mongodb(mongodb_port: int) -> MakeDocstore:
    """Make an empty docstore on MongoDB, with a sync and an async client."""
    from llama_index.storage.docstore.mongodb import MongoDocumentStore

    uri = f"mongodb://127.0.0.1:{mongodb_port}/?directConnection=true"
    return lambda: MongoDocumentStore.from_uri(uri, db_name="nodes", namespace=uuid4().hex)


@pytest.fixture
def make_sync_mongodb(mongodb_port: int) -> Iterator[MakeDocstore]:
    """Make an empty docstore on MongoDB from a sync client, which leaves it without an async one."""
    from llama_index.storage.docstore.mongodb import MongoDocumentStore
    from llama_index.storage.kvstore.mongodb import MongoDBKVStore
    from pymongo import MongoClient

    with MongoClient("127.0.0.1", mongodb_port, directConnection=True) as client:
        yield lambda: MongoDocumentStore(MongoDBKVStore(client), namespace=uuid4().hex)


@pytest.fixture(scope="module")
def dynamodb_url() -> Iterator[str]:
    """URL of a server that speaks DynamoDB's protocol."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def make_dynamodb(dynamodb_url: str) -> MakeDocstore:
    """Make an empty docstore on DynamoDB."""
    import boto3
    from llama_index.storage.docstore.dynamodb import DynamoDBDocumentStore
    from llama_index.storage.kvstore.dynamodb import DynamoDBKVStore

    keys = {"region_name": "us-east-1", "aws_access_key_id": "none", "aws_secret_access_key": "none"}
    resource = boto3.resource("dynamodb", endpoint_url=dynamodb_url, **keys)

    def make() -> DynamoDBDocumentStore:
        table = resource.create_table(
            TableName=f"t{uuid4().hex}",
            KeySchema=[
                {"AttributeName": "collection", "KeyType": "HASH"},
                {"AttributeName": "key", "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": "collection", "AttributeType": "S"},
                {"AttributeName": "key", "AttributeType": "S"},
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        return DynamoDBDocumentStore(DynamoDBKVStore(table))

    return make


@pytest.fixture(scope="module")
def firestore_port() -> Iterator[int]:
    """Port of a Firestore emulator; NODE_PATH names the directory of its package."""
    program = (
        "const {FirestoreServer} = require('@firestore-emulator/server');"
        "const net = require('net').createServer().listen(0, '127.0.0.1', () => {"
        "  const port = net.address().port;"
        "  net.close(() => new FirestoreServer().start(port).then(() => console.log(port)));"
        "});"
    )
    with subprocess.Popen(["node", "-e", program], stdout=subprocess.PIPE, text=True, env=os.environ) as node:
        assert node.stdout is not None
        yield int(node.stdout.readline())
        node.terminate()


@pytest.fixture
def make_firestore(firestore_port: int, monkeypatch: pytest.MonkeyPatch) -> MakeDocstore:
    """Make an empty docstore on Firestore."""
    from google.auth.credentials import AnonymousCredentials
    from llama_index.storage.docstore.firestore import FirestoreDocumentStore
    from llama_index.storage.kvstore.firestore import FirestoreKVStore

    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", f"127.0.0.1:{firestore_port}")
    return lambda: FirestoreDocumentStore(
        FirestoreKVStore(project="test", credentials=AnonymousCredentials()), namespace=uuid4().hex
    )


class ElasticsearchStub:
    """The requests that the docstore and the bulk read send, answered as Elasticsearch does."""

    def __init__(self) -> None:
        self.indices: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.credentials: set[str | None] = set()

    def answer(self, request: Request) -> Response:
        """Answer a request."""
        index, *rest = request.path.strip("/").split("/")
        self.requests.append(f"{request.method} {'/'.join(rest) or index}")
        if index in ("_mget", "_bulk"):
            status, body = 200, getattr(self, index)(request)
        else:
            status, body = getattr(self, f"_{request.method.lower()}")(index, rest)
        self.credentials.add(request.headers.get("Authorization"))
        headers = {"X-Elastic-Product": "Elasticsearch"}
        return Response(json.dumps(body), status, headers, content_type="application/json")

    def _head(self, index: str, rest: list[str]) -> tuple[int, Any]:
        return (200 if index in self.indices else 404), {}

    def _put(self, index: str, rest: list[str]) -> tuple[int, Any]:
        self.indices.setdefault(index, {})
        return 200, {"acknowledged": True}

    def _get(self, index: str, rest: list[str]) -> tuple[int, Any]:
        if not index:
            return 200, {"version": {"number": "8.19.0"}}
        source = self.indices[index].get(rest[1])
        return (200 if source else 404), {"found": bool(source), "_source": source}

    def _delete(self, index: str, rest: list[str]) -> tuple[int, Any]:
        found = self.indices[index].pop(rest[1], None)
        return (200 if found else 404), {"result": "deleted" if found else "not_found"}

    def _mget(self, request: Request) -> dict[str, Any]:
        return {"docs": [self._found(**one) for one in json.loads(request.get_data())["docs"]]}

    def _bulk(self, request: Request) -> dict[str, Any]:
        lines = [json.loads(line) for line in request.get_data().splitlines()]
        items = []
        for action, source in zip(lines[::2], lines[1::2], strict=True):
            [(kind, target)] = action.items()
            self.indices.setdefault(target["_index"], {})[target["_id"]] = source
            items.append({kind: {"_id": target["_id"], "status": 200}})
        return {"errors": False, "items": items}

    def _found(self, _index: str, _id: str) -> dict[str, Any]:
        source = self.indices.get(_index, {}).get(_id)
        found = {} if source is None else {"_source": source}
        return {"_index": _index, "_id": _id, "found": source is not None, **found}


@pytest.fixture
def elasticsearch(httpserver: HTTPServer) -> ElasticsearchStub:
    """A stub that speaks Elasticsearch's protocol, of which none runs on a test machine."""
    stub = ElasticsearchStub()
    httpserver.expect_request(re.compile(".*")).respond_with_handler(stub.answer)
    return stub


@pytest.fixture
def make_elasticsearch(elasticsearch: ElasticsearchStub, httpserver: HTTPServer) -> MakeDocstore:
    """Make an empty docstore on Elasticsearch."""
    from llama_index.storage.docstore.elasticsearch import ElasticsearchDocumentStore
    from llama_index.storage.kvstore.elasticsearch import ElasticsearchKVStore

    def make() -> BaseDocumentStore:
        name = uuid4().hex
        kvstore = ElasticsearchKVStore(
            index_name=name,
            es_client=None,
            es_url=httpserver.url_for("/").rstrip("/"),
            es_user="me",
            es_password="x",
        )
        return ElasticsearchDocumentStore(kvstore, namespace=name)

    return make


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
    """With a timeout, sync and async reads give what they give without one, off the event loop."""
    docstore = request.getfixturevalue(f"make_{kind}")()
    chain = linked_document(20)
    docstore.add_documents(chain)
    for timeout in (None, 20):
        augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=4, mode="both", timeout=timeout)
        assert ids(postprocess(augmenter, hits(chain, [10]))) == ids(chain[6:15])


def test_elasticsearch_takes_two_requests(
    make_elasticsearch: MakeDocstore, elasticsearch: ElasticsearchStub, postprocess: Postprocess
) -> None:
    """Three hops and more are two requests, with the credentials of the client that was given."""
    docstore = make_elasticsearch()
    chain = linked_document(60)
    docstore.add_documents(chain)
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=5, mode="both")
    elasticsearch.requests.clear()
    assert ids(postprocess(augmenter, hits(chain, [10, 30]))) == ids([*chain[5:16], *chain[25:36]])
    assert elasticsearch.requests == ["POST _mget"] * 2
    assert elasticsearch.credentials == {"Basic bWU6eA=="}


def test_mongodb_takes_two_queries_of_each_collection(mongodb_port: int, make_mongodb: MakeDocstore) -> None:
    """Three hops and more are two queries of nodes and one of lists, for more nodes than a first batch."""
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
    """Keys are read in hundreds; those that the table leaves unread are read again."""
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
    """Where no key is read in several tries the call fails, instead of taking the nodes for missing."""
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
    """A slash in the id of a neighbor or document, which names no document there, costs nothing else."""
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
    monkeypatch.setattr(registry, "_registered", {})
    docstore = request.getfixturevalue(f"make_{kind}")()
    chain = linked_document(9)
    docstore.add_documents(chain)
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=3)
    for _ in range(2):
        assert ids(asyncio.run(augmenter.apostprocess_nodes(hits(chain, [2])))) == ids(chain[2:6])
    without = sum("was not initialized with an async client" in line for line in caplog.messages)
    assert without == (kind == "sync_mongodb")

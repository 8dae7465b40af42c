"""Fixtures of MongoDB, DynamoDB, Firestore and Elasticsearch: each starts when a test first uses it."""

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
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

MakeDocstore = Callable[[], BaseDocumentStore]


@pytest.fixture(scope="session")
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


@pytest.fixture
def make_atlas(mongodb_port: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], BasePydanticVectorStore]:
    """Make an empty collection of MongoDB Atlas's vector store; searches need Atlas, reads do not."""
    from llama_index.vector_stores.mongodb import MongoDBAtlasVectorSearch
    from pymongo import AsyncMongoClient, MongoClient, pool_options

    # A client that connects looks for a file that containers have, which blocks the event loop once.
    monkeypatch.setattr(pool_options, "get_container_env_info", dict)
    uri = f"mongodb://127.0.0.1:{mongodb_port}/?directConnection=true"

    def make() -> MongoDBAtlasVectorSearch:
        return MongoDBAtlasVectorSearch(MongoClient(uri), AsyncMongoClient(uri), "nodes", uuid4().hex)

    return make


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
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
    """Answers the requests of the docstore and the bulk read as Elasticsearch does."""

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
        elif index == "_search" or rest == ["_search"]:
            status, body = 200, self._scroll(index)
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

    def _scroll(self, index: str) -> dict[str, Any]:
        """Answer a search with all documents in one page, and its continuation with an empty one."""
        found = [{"_id": id_, "_source": source} for id_, source in self.indices.get(index, {}).items()]
        shards = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
        return {"_scroll_id": "scroll", "_shards": shards, "hits": {"hits": found}}

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
    """A stub that speaks Elasticsearch's protocol, since test machines run no such server."""
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

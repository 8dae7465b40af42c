"""Bulk reads: all keys of a batch in one round trip, for the key-value stores that can.

Most docstores are a `KVDocumentStore` over a key-value store without a multi-key read, so core reads one
key after another. A bulk read reads nodes and the documents' node lists together. Stores are found by
the name of their class, so nothing is imported before a store of that class is in use.
"""

from llama_index_ext_ctxaug.docstores.bulk import (
    duckdb,
    dynamodb,
    elasticsearch,
    firestore,
    memory,
    mongodb,
    postgres,
    redis,
)
from llama_index_ext_ctxaug.docstores.bulk.registry import BulkRead, register_bulk_read, registered

__all__ = ["register_bulk_read"]

_READS = {
    "core.storage.kvstore.simple_kvstore.SimpleKVStore": BulkRead(memory.read, memory.aread),
    "storage.kvstore.duckdb.base.DuckDBKVStore": BulkRead(duckdb.read),
    "storage.kvstore.dynamodb.base.DynamoDBKVStore": BulkRead(dynamodb.read),
    "storage.kvstore.elasticsearch.base.ElasticsearchKVStore": BulkRead(
        elasticsearch.read, elasticsearch.aread, "_client"
    ),
    "storage.kvstore.firestore.base.FirestoreKVStore": BulkRead(firestore.read, firestore.aread, "_adb"),
    "storage.kvstore.mongodb.base.MongoDBKVStore": BulkRead(mongodb.read, mongodb.aread, "_aclient"),
    "storage.kvstore.postgres.base.PostgresKVStore": BulkRead(postgres.read, postgres.aread, "_async_engine"),
    "storage.kvstore.redis.base.RedisKVStore": BulkRead(redis.read, redis.aread, "_async_redis_client"),
}

for _name, _bulk in _READS.items():
    registered[f"llama_index.{_name}"] = _bulk

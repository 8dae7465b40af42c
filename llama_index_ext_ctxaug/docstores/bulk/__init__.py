"""Bulk reads: all keys of a batch in one round trip, for the key-value stores that can.

Most docstores are a `KVDocumentStore` over a key-value store without a multi-key read, so core reads one
key after another. A bulk read reads nodes and the documents' node lists together. Stores are found by
the name of their class, so nothing is imported before a store of that class is in use.
"""

from llama_index_ext_ctxaug.docstores.bulk import duckdb, memory, postgres, redis
from llama_index_ext_ctxaug.docstores.bulk.registry import register_bulk_read

__all__ = ["register_bulk_read"]

register_bulk_read("llama_index.core.storage.kvstore.simple_kvstore.SimpleKVStore", memory.read, memory.aread)
register_bulk_read("llama_index.storage.kvstore.redis.base.RedisKVStore", redis.read, redis.aread)
register_bulk_read("llama_index.storage.kvstore.postgres.base.PostgresKVStore", postgres.read, postgres.aread)
register_bulk_read("llama_index.storage.kvstore.duckdb.base.DuckDBKVStore", duckdb.read)

"""Reads of nodes from vector stores: by their public methods, or natively where those fall short.

Stores are found by the name of their class, so nothing is imported before a store of that class is in use.
"""

from functools import partial

from llama_index_ext_ctxaug.docstores.vector_reads import (
    lancedb,
    milvus,
    mongodb,
    neo4j,
    opensearch,
    postgres,
    qdrant,
    supabase,
    weaviate,
)
from llama_index_ext_ctxaug.docstores.vector_reads.registry import (
    VectorRead,
    read_publicly,
    registered,
)

_ASTRA_LIMIT = 100_000
"""Maximum nodes of a listed document; Astra's `get_nodes` returns 100 by default."""

_READS = {
    # Astra refuses more than 100 ids in one condition.
    "astra_db.base.AstraDBVectorStore": VectorRead(partial(read_publicly, limit=_ASTRA_LIMIT), batch=100),
    "lancedb.base.LanceDBVectorStore": VectorRead(lancedb.read),
    "milvus.base.MilvusVectorStore": VectorRead(milvus.read, milvus.aread),
    "mongodb.base.MongoDBAtlasVectorSearch": VectorRead(mongodb.read, mongodb.aread),
    "neo4jvector.base.Neo4jVectorStore": VectorRead(neo4j.read),
    "opensearch.base.OpensearchVectorStore": VectorRead(opensearch.read, opensearch.aread),
    "pinecone.base.PineconeVectorStore": None,
    "postgres.base.PGVectorStore": VectorRead(postgres.read, postgres.aread),
    "qdrant.base.QdrantVectorStore": VectorRead(qdrant.read, qdrant.aread),
    "supabase.base.SupabaseVectorStore": VectorRead(supabase.read),
    # By default its `get_nodes` returns nodes without text and relationships.
    "vertexaivectorsearch.base.VertexAIVectorStore": None,
    "weaviate.base.WeaviateVectorStore": VectorRead(weaviate.read, weaviate.aread),
}

for _name, _read in _READS.items():
    registered[f"llama_index.vector_stores.{_name}"] = _read

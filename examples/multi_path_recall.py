"""Fuse the hits of several retrievers over two corpora; expand, cut and rerank them by BRSR; apply a cutoff.

    python examples/multi_path_recall.py
    python examples/multi_path_recall.py --question "How is a generator resumed?" --cutoff 0.2

BM25 and a vector retriever search each of two corpora: the language reference that every CPython carries
(chapters on statements, and chapters on expressions and objects). Their scores have different scales, so
they decide nothing: BRSR takes the hits in the order of the fusion, and the
rerank scores them all alike. No key, model or download is needed: the vectors are counts of words, by an
embedding made for tests. With a real model the program is the same; only `WordEmbedding()` changes.
"""

from __future__ import annotations

import argparse
import logging
from pydoc_data.topics import topics

from llama_index.core import Document, VectorStoreIndex, get_response_synthesizer
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever, QueryFusionRetriever
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.retrievers.bm25 import BM25Retriever

from llama_index_ext_ctxaug import BRSRPostprocessor, read_provenance
from llama_index_ext_ctxaug.testing import WordEmbedding

QUESTION = "When is the else clause of a while loop executed?"
CORPORA = {
    "statements": ("assert", "break", "class", "del", "for", "if", "import", "raise", "try", "while", "with"),
    "expressions": (
        "atom-literals",
        "calls",
        "lambda",
        "numbers",
        "slicings",
        "strings",
        "typesseq",
        "yield",
    ),
}


def main() -> None:
    """Build both corpora and all retrievers, ask, and print the windows that are left."""
    parser = argparse.ArgumentParser(description="Several retrievers, two corpora, BRSR, a cutoff.")
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--cutoff", type=float, default=0.25, help="lowest similarity (default 0.25)")
    options = parser.parse_args()
    logging.getLogger("bm25s").setLevel(logging.WARNING)

    model = WordEmbedding()
    docstore = SimpleDocumentStore()
    retrievers: list[BaseRetriever] = []
    for corpus, names in CORPORA.items():
        retrievers += paths(corpus, names, docstore, model)
    fusion = QueryFusionRetriever(
        retrievers,
        num_queries=1,  # the question alone: no LLM generates others
        similarity_top_k=12,
        mode="reciprocal_rerank",
        llm=MockLLM(),
        use_async=False,
    )
    brsr = BRSRPostprocessor(docstore=docstore, embed_model=model, window_tokens=160, stride_tokens=40)
    cutoff = SimilarityPostprocessor(similarity_cutoff=options.cutoff)
    engine = RetrieverQueryEngine(
        fusion, get_response_synthesizer(llm=MockLLM(max_tokens=1)), node_postprocessors=[brsr, cutoff]
    )

    print(options.question)
    for retriever in retrievers:
        print(f"  {type(retriever).__name__:22} {len(retriever.retrieve(options.question))} hits")
    hits = fusion.retrieve(options.question)
    print(f"  fused {len(hits)} distinct hits: {', '.join(sorted({str(h.node.ref_doc_id) for h in hits}))}")
    response = engine.query(options.question)
    print(f"\n{len(response.source_nodes)} windows with a similarity of {options.cutoff} and more:")
    for hit in response.source_nodes:
        provenance = read_provenance(hit.node)
        chunks = len(provenance.pieces) if provenance else 1
        text = " ".join(hit.node.get_content().split())
        print(f"  {hit.score:.3f}  {hit.node.ref_doc_id:12} {chunks} chunks  {text[:64]}")


def paths(
    corpus: str, names: tuple[str, ...], docstore: SimpleDocumentStore, model: WordEmbedding
) -> list[BaseRetriever]:
    """Return the two retrievers of one corpus; its chunks and documents are added to the docstore."""
    documents = [
        Document(text=topics[name], id_=name, metadata={"corpus": corpus}) for name in names if name in topics
    ]
    nodes = SentenceSplitter(chunk_size=128, chunk_overlap=16).get_nodes_from_documents(documents)
    docstore.add_documents([*nodes, *documents])
    index = VectorStoreIndex(nodes, embed_model=model)
    return [
        BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=5),
        index.as_retriever(similarity_top_k=5),
    ]


if __name__ == "__main__":
    main()

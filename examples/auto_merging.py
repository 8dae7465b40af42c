"""Auto-merging, before and after: find leaves of a hierarchy by keywords and merge them into their parents.

The text is Python's own language reference, which comes with Python; retrieval is BM25. No key, no download.

    python -m pip install "llama-index-ext-ctxaug[examples]"
    python examples/auto_merging.py
"""

from __future__ import annotations

import asyncio
from pydoc_data.topics import topics

from llama_index.core import Document
from llama_index.core.node_parser import HierarchicalNodeParser, get_leaf_nodes
from llama_index.core.schema import MetadataMode, NodeWithScore
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.retrievers.bm25 import BM25Retriever

from llama_index_ext_ctxaug import AutoMergingPostprocessor, read_provenance

QUESTION = "How does a with statement call the context manager's __enter__ and __exit__ methods?"
SUBJECTS = ("compound", "context-managers", "try", "exceptions", "yield", "class", "function")


def show(title: str, result: list[NodeWithScore]) -> None:
    """Print one line for each node of a context."""
    characters = sum(len(hit.node.get_content(metadata_mode=MetadataMode.NONE)) for hit in result)
    print(f"\n{title}: {len(result)} nodes, {characters} characters")
    for hit in result:
        text = " ".join(hit.node.get_content(metadata_mode=MetadataMode.NONE).split())
        provenance = read_provenance(hit.node)
        kind = "hit"
        if provenance is not None:
            kind = "filled in" if provenance.role == "neighbor" else f"parent of {len(provenance.hits)}"
        score = "    -" if hit.score is None else f"{hit.score:5.2f}"
        print(f"  {score}  {hit.node.ref_doc_id:16}  {kind:12}  {len(text):5}  {text[:60]} ...")


async def main() -> None:
    """Cut the reference on three levels, find leaves, and show them before and after merging."""
    documents = [Document(id_=name, text=topics[name]) for name in SUBJECTS if name in topics]
    parser = HierarchicalNodeParser.from_defaults(chunk_sizes=[1024, 256, 64], chunk_overlap=0)
    nodes = parser.get_nodes_from_documents(documents)

    docstore = SimpleDocumentStore()
    docstore.add_documents(nodes)  # all levels; only the leaves are searched
    retriever = BM25Retriever.from_defaults(nodes=get_leaf_nodes(nodes), similarity_top_k=12)
    hits = await retriever.aretrieve(QUESTION)
    print(QUESTION)
    show("Before", hits)

    merger = AutoMergingPostprocessor(docstore=docstore, simple_ratio_thresh=0.4)
    show("More than 40 % of a parent retrieved", await merger.apostprocess_nodes(hits, query_str=QUESTION))

    parents = AutoMergingPostprocessor(docstore=docstore, simple_ratio_thresh=0, max_levels=1)
    show("Each chunk's parent", await parents.apostprocess_nodes(hits, query_str=QUESTION))

    budget = AutoMergingPostprocessor(docstore=docstore, merge_rule="budget", token_budget=1200)
    show("As far as 1200 tokens hold", await budget.apostprocess_nodes(hits, query_str=QUESTION))


if __name__ == "__main__":
    asyncio.run(main())

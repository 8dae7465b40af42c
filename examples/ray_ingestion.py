"""Ingestion on Ray: batches of documents, parsed, linked and given windows in one step.

    python examples/ray_ingestion.py
    python examples/ray_ingestion.py --batch-size 16

Needs the extra `ray`; no key, server or download. Ray starts on this machine; pass `--address` for a cluster.
The texts are the topics of Python's own help.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from pydoc_data.topics import topics

import llama_index.core
import ray
from llama_index.core import Document
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode, TransformComponent
from llama_index.ingestion.ray import RayIngestionPipeline, RayTransformComponent

from llama_index_ext_ctxaug import NeighborLinker, WholeDocuments, WindowExtractor


def chunk_id(number: int, node: BaseNode) -> str:
    """Return an id that is the same in every run, so that runs can be compared."""
    return f"{node.node_id}/{number}"


def on_ray(
    steps: list[TransformComponent], documents: list[Document], batch_size: int
) -> dict[str, BaseNode]:
    """Run the steps on Ray as one step; Ray returns nodes in any order."""
    step = RayTransformComponent(
        WholeDocuments,
        transform_kwargs={"transformations": steps},
        map_batches_kwargs={"batch_size": batch_size},
    )
    nodes = RayIngestionPipeline(transformations=[step]).run(documents=documents)
    return {node.node_id: node for node in nodes}


def main() -> None:
    """Ingest the topics on Ray, compare with one process and show a window."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=16, help="documents in a batch")
    parser.add_argument("--address", help="address of a Ray cluster")
    options = parser.parse_args()

    # Workers load the tokenizer from LlamaIndex's copy instead of downloading it.
    tokenizer = Path(llama_index.core.__file__).parent / "_static" / "tiktoken_cache"
    ray.init(
        address=options.address,
        runtime_env={"env_vars": {"TIKTOKEN_CACHE_DIR": str(tokenizer)}},
        include_dashboard=False,
        log_to_driver=False,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False

    documents = [Document(id_=name, text=text) for name, text in topics.items()]
    steps = [
        SentenceSplitter(chunk_size=128, chunk_overlap=16, id_func=chunk_id),
        NeighborLinker(),
        WindowExtractor(window_size=1),
    ]
    nodes = on_ray(steps, documents, options.batch_size)
    here = {node.node_id: node for node in WholeDocuments(steps)(documents)}
    print(f"{len(documents)} documents, {len(nodes)} chunks, in batches of {options.batch_size} documents")
    print(f"equal to one process: {nodes == here}\n")
    chunk = nodes["while/1"] if "while/1" in nodes else next(iter(nodes.values()))
    print(f"chunk {chunk.node_id} with its neighbors:\n\n{chunk.metadata['window']}")
    ray.shutdown()


if __name__ == "__main__":
    main()

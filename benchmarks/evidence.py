"""The evidence that reaches the model within a token budget, for every way of giving context.

    python benchmarks/evidence.py                                  # its own questions, BM25, no download
    python benchmarks/evidence.py --data DIR/chroma_chunking:64 DIR/cmrc2018:64:bm25 --model PATH --cache DIR
                                  --out benchmarks/results/evidence.md

A data set is a folder with `docs/*.txt` and `questions.jsonl` (a question, the id of its document, and
the characters of its evidence). `:SIZE` sets the tokens of its chunks, and `:bm25`, `:embedding` or
`:fusion` (several are possible) the retrievers. Each way gets the same pool of 100 hits
over the same chunks; plain top-k is also shown for other chunk sizes. A way with a token budget
of its own gets the pool and the budget. The others get the maximum number of hits whose output
fits, and as much of the next hit's output as still fits (cut inside a chunk, which favors them). Tokens are
counted on the final text, separators included. Questions of the split "eval" are reported;
nothing was tuned on them. With `--results DIR` a stopped run resumes.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from evidence_data import Corpus, Evidence, cut, load_corpus, own_corpus, spread_out
from evidence_measure import Result, try_way
from evidence_report import Results, Title, draw, report, section
from evidence_search import BM25, BM25Rescore, CachedEmbedding, Encoder, fused, pools
from evidence_settings import setting_ways
from evidence_ways import Way, Ways, all_ways
from llama_index.core.postprocessor.types import BaseNodePostprocessor

from llama_index_ext_ctxaug import EmbeddingRescorePostprocessor

T = TypeVar("T")
POOL = 100


@dataclass(frozen=True)
class Task:
    """A data set and its retriever.

    Attributes:
        folder: the data set; empty for this script's own questions.
        size: tokens of its chunks.
        retriever: "BM25", "embedding" or "fusion".
    """

    folder: str
    size: int
    retriever: str


def main() -> None:
    """Measure every data set with every retriever; print and write the report."""
    arguments = parse()
    tasks = [task for entry in arguments.data or [""] for task in tasks_of(entry, bool(arguments.model))]
    found: dict[Title, Results] = {}
    with ProcessPoolExecutor(arguments.jobs) as executor:
        for title, results in executor.map(run_task, [arguments] * len(tasks), tasks):
            found[title] = results
            print("\n".join(section(title, results)), flush=True)
            if arguments.out:  # after each one, since all of them take long
                arguments.out.parent.mkdir(parents=True, exist_ok=True)
                arguments.out.write_text(report(found, POOL), encoding="utf-8")
                draw(found, arguments.out.with_suffix(".png"))


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Evidence within a token budget.")
    parser.add_argument("--data", nargs="*", help="folders: DIR[:SIZE][:bm25][:embedding][:fusion]")
    parser.add_argument("--model", help="a sentence-transformers model, to retrieve by embedding too")
    parser.add_argument("--cache", type=Path, help="a folder that keeps the embeddings")
    parser.add_argument("--questions", type=int, default=250, help="maximum of each data set")
    parser.add_argument(
        "--rerank-questions", type=int, default=250, help="maximum for ways that embed what they added"
    )
    parser.add_argument(
        "--plain-sizes",
        nargs="*",
        type=int,
        default=[64, 128, 256, 512],
        help="tokens of the chunks of plain top-k",
    )
    parser.add_argument(
        "--settings", action="store_true", help="compare parameters of one augmenter, not all augmenters"
    )
    parser.add_argument("--only", default="", help="only ways with names that match this pattern, and top-k")
    parser.add_argument("--split", choices=["eval", "tune"], default="eval", help="which questions to ask")
    parser.add_argument("--results", type=Path, help="a folder that keeps results, for runs of the same code")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with a set and a retriever")
    parser.add_argument("--out", type=Path, help="file of the report; the chart is written beside it")
    return parser.parse_args()


def tasks_of(entry: str, has_model: bool) -> list[Task]:
    """Return the ways, questions and retrievers of one data set."""
    folder, *options = entry.split(":")
    sizes = [int(option) for option in options if option.isdigit()]
    wanted = [option for option in options if not option.isdigit()]
    kinds = ["BM25", "embedding", "fusion"] if has_model else ["BM25"]
    return [Task(folder, *(sizes or [64]), kind) for kind in kinds if not wanted or kind.lower() in wanted]


def run_task(arguments: argparse.Namespace, task: Task) -> tuple[Title, Results]:
    """Run one data set with one retriever."""
    logging.getLogger("llama_index_ext_ctxaug").setLevel(logging.ERROR)  # full budgets are expected
    corpus = load_corpus(Path(task.folder)) if task.folder else own_corpus()
    encoder = Encoder(arguments.model, arguments.cache) if task.retriever != "BM25" else None
    corpus.questions = [question for question in corpus.questions if question.split == arguments.split]
    asked = spread_out(len(corpus.questions), arguments.questions)
    few = spread_out(len(asked), arguments.rerank_questions if encoder else len(asked))
    every = range(len(asked))
    search = Search(corpus, asked, task, encoder)
    ways = (setting_ways if arguments.settings else all_ways)(search.chunks, search.scorer)
    ways = {name: way for name, way in ways.items() if name == "top-k" or re.search(arguments.only, name)}

    def measured(name: str, way: Way, search: Search, places: Sequence[int]) -> Result:
        kind = f"{corpus.name}-{task.retriever}-{task.size}-{arguments.split}-{len(asked)}-{len(places)}"
        path = arguments.results and arguments.results / kind / f"{name.replace('/', '_')}.json"
        if path and path.exists():
            return Result(**json.loads(path.read_text(encoding="utf-8")))
        result = measure(way, search, places)
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(asdict(result)), encoding="utf-8")
        return result

    results = {
        name: measured(name, way, search, few if way.reranked else every)
        for name, way in ways.items()
        if few or not way.reranked
    }
    for size in arguments.plain_sizes:
        if size != task.size and not arguments.settings:
            other = Search(corpus, asked, replace(task, size=size), encoder)
            name, plain = f"top-k, chunks of {size}", Ways(other.chunks, other.scorer).plain()
            results[name] = measured(name, plain, other, every)
    scorer = "the embedding model" if encoder else "BM25"
    return Title(corpus.name, task.retriever, task.size, len(asked), scorer), results


class Search:
    """A corpus, cut into chunks and searched.

    Attributes:
        chunks: the chunks.
        texts: the questions that are asked.
        evidence: their evidence.
        pools: their hits.
        scorer: ranks nodes by a question, as the retriever does (by the model where there is one).
    """

    def __init__(self, corpus: Corpus, asked: Sequence[int], task: Task, encoder: Encoder | None) -> None:
        questions = corpus.questions
        self.chunks = cut(corpus, task.size)
        self.texts = [questions[place].text for place in asked]
        self.evidence = [Evidence(corpus, questions[place]) for place in asked]
        nodes = self.chunks.nodes
        contents = [node.text for node in nodes]
        index = BM25(contents)
        self.scorer: BaseNodePostprocessor = BM25Rescore(index)
        found = []
        if task.retriever in ("BM25", "fusion"):
            found.append(pools(index.search(self.texts), nodes, POOL))
        if encoder:
            every = [question.text for question in questions]
            question_vectors = encoder.array(f"{corpus.name}-{questions[0].split}-questions", every)
            vectors = encoder.array(f"{corpus.name}-{task.size}-chunks", contents)
            found.append(pools(question_vectors[asked] @ vectors.T, nodes, POOL))
            known = {
                **dict(zip(contents, vectors, strict=True)),
                **dict(zip(every, question_vectors, strict=True)),
            }
            self.scorer = EmbeddingRescorePostprocessor(embed_model=CachedEmbedding(encoder, known))
        self.pools = [fused(pair, POOL) if len(pair) > 1 else pair[0] for pair in zip(*found, strict=True)]


def measure(way: Way, search: Search, places: Sequence[int]) -> Result:
    """Measure one way on the questions at these places."""

    def chosen(values: Sequence[T]) -> list[T]:
        return [values[place] for place in places]

    return try_way(way, chosen(search.pools), chosen(search.texts), chosen(search.evidence), places)


if __name__ == "__main__":
    main()

"""How much of the evidence reaches the model for a number of tokens: every way of giving context.

    python benchmarks/evidence.py                                  # its own questions, BM25, no download
    python benchmarks/evidence.py --data DIR/chroma_chunking DIR/qmsum:128 --model PATH --cache DIR
                                  --out benchmarks/results/evidence.md

A data set is a folder with `docs/*.txt` and `questions.jsonl` (a question, the id of its document, and
the characters of its evidence), with `:SIZE` for the tokens of its chunks, `:plain` to compare chunk
sizes, and `:bm25` or `:embedding` to retrieve in this way only. Each way gets the same pool
of 100 hits over the same chunks. What has a token budget of its own gets the budget and the pool;
of the others the greatest number of hits is taken whose output fits, and of the next hit's output as
much as still fits (cut inside a chunk, which favors them). Tokens are counted on the text that goes
out, separators included. Questions of the split "eval" are reported; nothing was tuned on them.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from evidence_data import Chunks, Corpus, Evidence, bm25, cosine, cut, load_corpus, own_corpus, pools
from evidence_ways import Way, Wide, ways_over
from llama_index.core import __version__ as core_version
from llama_index.core.schema import NodeWithScore
from llama_index.core.utils import get_tokenizer

from llama_index_ext_ctxaug.passages.budget import NODE_SEPARATOR

BUDGETS = (250, 500, 1000, 2000, 4000)
PLAIN_SIZES = (64, 128, 256, 512)
POOL = 100
TIMED = 5
"""Questions at which a way that needs no pool of 100 is given one, for its time."""


class Retriever(Protocol):
    """Scores of all texts for each query; `name` says for which chunks, as a key of a cache."""

    def __call__(self, texts: Sequence[str], queries: Sequence[str], name: str) -> np.ndarray:
        """An array of queries by texts."""


@dataclass
class Result:
    """What a way gave, question by question.

    Attributes:
        share: evidence covered, questions by budgets.
        precision: share of the text's characters that are evidence.
        repeated: share of the text's characters that stand in it more than once.
        reads: keys read from the docstore, for each call.
        seconds: time of each call.
        parts: pieces of evidence of each question.
    """

    share: list[list[float]] = field(default_factory=list)
    precision: list[list[float]] = field(default_factory=list)
    repeated: list[list[float]] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)


def main() -> None:
    """Measure on every data set with every retriever; print and write the report."""
    arguments = parse()
    kinds = ["BM25", "embedding"] if arguments.model else ["BM25"]
    tasks = [(entry, kind) for entry in arguments.data or [""] for kind in kinds]
    for kind in ("BM25", "embedding"):  # a set may name the one that it is to be measured with
        only = f":{kind.lower()}"
        tasks = [(entry, by) for entry, by in tasks if by == kind or only not in entry]
    curves: dict[str, dict[str, Result]] = {}
    with ProcessPoolExecutor(arguments.jobs) as executor:
        for title, results in executor.map(run_task, [arguments] * len(tasks), *zip(*tasks, strict=True)):
            curves[title] = results
            print("\n".join(section(title, results)), flush=True)
            if arguments.out:  # after each, since all together take long
                write(curves, arguments.out)


def write(curves: dict[str, dict[str, Result]], path: Path) -> None:
    """The report, and the chart beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [line for title, results in curves.items() for line in section(title, results)]
    path.write_text("\n".join([*heading(), *lines]) + "\n", encoding="utf-8")
    draw(curves, path.with_suffix(".png"))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="How much evidence a number of tokens holds.")
    parser.add_argument("--data", nargs="*", help="folders of data sets: DIR:SIZE[:bm25|:embedding][:plain]")
    parser.add_argument("--model", help="a sentence-transformers model, to retrieve by embedding as well")
    parser.add_argument("--cache", type=Path, help="a folder that keeps the embeddings")
    parser.add_argument("--questions", type=int, default=250, help="at most so many of each data set")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with a set and a retriever")
    parser.add_argument("--out", type=Path, help="where to write the report, with the chart beside it")
    return parser.parse_args()


def run_task(arguments: argparse.Namespace, entry: str, kind: str) -> tuple[str, dict[str, Result]]:
    """One data set with one retriever."""

    def embedding(texts: Sequence[str], queries: Sequence[str], name: str) -> np.ndarray:
        return cosine(texts, queries, arguments.model, arguments.cache and arguments.cache / name)

    folder, *options = entry.split(":")
    size = int(options[0]) if options else 64
    corpus = load_corpus(Path(folder)) if folder else own_corpus()
    retriever = embedding if kind == "embedding" else lambda texts, queries, name: bm25(texts, queries)
    sizes = PLAIN_SIZES if "plain" in options or not folder else [size]
    results, count = measure(corpus, [size, *sorted({*sizes} - {size})], retriever, arguments.questions)
    return f"{corpus.name}, {kind}, chunks of {size}, {count} questions", results


def measure(
    corpus: Corpus, sizes: Sequence[int], retriever: Retriever, most: int
) -> tuple[dict[str, Result], int]:
    """Every way over chunks of the first size, and plain top-k over chunks of the other sizes."""
    questions = [question for question in corpus.questions if question.split == "eval"]
    texts = [question.text for question in questions]
    questions = questions[:most]
    evidence = [Evidence(corpus, question) for question in questions]
    results: dict[str, Result] = {}
    for one in sizes:
        chunks = cut(corpus, one)
        contents = [node.text for node in chunks.nodes]
        scores = retriever(contents, texts, f"{corpus.name}-{one}")
        found = pools(scores[: len(questions)], chunks.nodes, POOL)
        for name, way in ways_over(chunks, plain=one != sizes[0]).items():
            label = name if one == sizes[0] else f"top-k, chunks of {one}"
            results[label] = try_way(way, chunks, found, texts[: len(questions)], evidence)
    return results, len(questions)


def try_way(
    way: Way | Wide,
    chunks: Chunks,
    found: list[list[NodeWithScore]],
    texts: list[str],
    evidence: list[Evidence],
) -> Result:
    """One way on every question at every budget."""
    result = Result()
    for pool, text, wanted in zip(found, texts, evidence, strict=True):
        calls = Calls(way, pool, text, result)
        rows = [wide(calls, budget) if isinstance(way, Wide) else narrow(calls, budget) for budget in BUDGETS]
        if not isinstance(way, Wide) and len(result.seconds) < TIMED:
            calls.output(len(pool))
        spans = [[span for id_ in row for span in _cut_span(chunks, *id_)] for row in rows]
        result.share.append([wanted.covered(row) / wanted.total for row in spans])
        sizes = [max(1, sum(end - start for _, start, end in row)) for row in spans]
        result.precision.append([wanted.covered(row) / size for row, size in zip(spans, sizes, strict=True)])
        once = [sum(end - start for _, start, end in set(row)) for row in spans]
        result.repeated.append(
            [1 - part / size if part else 0.0 for part, size in zip(once, sizes, strict=True)]
        )
        result.parts.append(wanted.parts)
    return result


def _cut_span(chunks: Chunks, node_id: str, part: float) -> list[tuple[str, int, int]]:
    document, start, end = chunks.spans[node_id]
    return [(document, start, start + int((end - start) * part))]


Row = list[tuple[str, float]]
"""Ids of the chunks that go out, in order, and which part of each."""


class Calls:
    """The calls of one question, each number of hits once."""

    def __init__(self, way: Way | Wide, pool: list[NodeWithScore], text: str, result: Result) -> None:
        self.way, self.pool, self.text, self.result = way, pool, text, result
        self._known: dict[tuple[int, int], tuple[list[list[str]], int, list[str]]] = {}

    def output(self, hits: int, budget: int = 0) -> tuple[list[list[str]], int, list[str]]:
        """Chunk ids of each node that goes out, tokens of the whole, and the texts."""
        key = (hits, budget)
        if key not in self._known:
            self.way.store.reset()
            started = time.thread_time()
            out = self.way.call(self.pool[:hits], self.text, budget)
            elapsed = time.thread_time() - started
            if hits == len(self.pool):
                self.result.seconds.append(elapsed)
                self.result.reads.append(self.way.store.reads)
            texts = [self.way.text(hit) for hit in out]
            self._known[key] = ([self.way.chunks_of(hit) for hit in out], tokens(texts), texts)
        return self._known[key]


_count = get_tokenizer()
_lengths: dict[str, int] = {}


def tokens(texts: list[str]) -> int:
    """Tokens of the texts as a synthesizer joins them; each separator is one token."""
    for text in texts:
        if text not in _lengths:
            _lengths[text] = len(_count(text))
    return sum(_lengths[text] for text in texts) + max(0, len(texts) - 1)


def wide(calls: Calls, budget: int) -> Row:
    """What an augmenter with a budget of its own chooses of the whole pool."""
    groups, _, texts = calls.output(len(calls.pool), budget)
    ids = [id_ for group in groups for id_ in group]
    used = len(_count(NODE_SEPARATOR.join(texts)))
    # Only one chunk that alone is over the budget may be more; it is cut as it is for the others.
    return [(id_, min(1.0, budget / max(1, used))) for id_ in ids]


def narrow(calls: Calls, budget: int) -> Row:
    """The most hits whose output fits, and of what the next hit brings as much as still fits."""
    low, high, guess = 0, len(calls.pool), 2
    while low < high:
        used = calls.output(guess)[1]
        if used <= budget:
            low = guess
        else:
            high = guess - 1
        guess = min(max(low + 1, round(guess * budget / max(1, used))), high)
    row: Row = []
    left = budget
    if low:
        groups, used, _ = calls.output(low)
        row, left = [(id_, 1.0) for group in groups for id_ in group], budget - used
    if low < len(calls.pool):
        known = {id_ for id_, _ in row}
        groups, _, texts = calls.output(low + 1)
        for group, text in zip(groups, texts, strict=True):
            new = [id_ for id_ in group if id_ not in known]
            share = len(new) / len(group)  # a node that grew pays for its new chunks
            price = 1 + tokens([text]) * share
            if new and left > 1:
                row += [(id_, part) for id_, part in _parts(new, min(1.0, left / price))]
                left -= int(price)
    return row


def _parts(ids: list[str], part: float) -> Row:
    """The first part of a text, as parts of its chunks."""
    whole = part * len(ids)
    return [(id_, min(1.0, whole - place)) for place, id_ in enumerate(ids) if whole > place]


def heading() -> list[str]:
    """What was measured, with which versions."""
    return [
        "# Evidence for tokens",
        "",
        f"llama-index-core {core_version}, Python {platform.python_version()}, pools of {POOL} hits. "
        "Each cell: mean share of the evidence covered / share of questions covered wholly, in a text of so "
        "many tokens.",
        "",
    ]


def section(title: str, results: dict[str, Result]) -> list[str]:
    """The tables of one data set and retriever."""
    lines = [f"## {title}", "", "| way | " + " | ".join(f"{budget:,}" for budget in BUDGETS) + " |"]
    lines.append("|---" * (len(BUDGETS) + 1) + "|")
    for name, result in results.items():
        share = np.array(result.share)
        cells = [f"{a:.3f}/{b:.3f}" for a, b in zip(share.mean(0), (share > 0.9999).mean(0), strict=True)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    middle = BUDGETS.index(1000)
    lines += [
        "",
        "At 1,000 tokens, and for a pool of 100 hits:",
        "",
        "| way | evidence in one place | in several | precision | repeated text | keys read | CPU ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        share, several = np.array(result.share)[:, middle], np.array(result.parts) > 1
        cells = [f"{share[mask].mean():.3f}" if mask.any() else "-" for mask in (~several, several)]
        cells += [f"{np.array(kind)[:, middle].mean():.3f}" for kind in (result.precision, result.repeated)]
        cells += (
            [f"{np.mean(result.reads):.0f}", f"{1e3 * np.median(result.seconds):.1f}"]
            if result.reads
            else ["-"] * 2
        )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return [*lines, "", *differences(results), ""]


def differences(results: dict[str, Result]) -> list[str]:
    """By how much RelevantSegments covers more: paired differences with bootstrap intervals."""
    ours = np.array(results["RelevantSegments"].share)
    lines = ["RelevantSegments covers more (paired difference of the mean, 95 % bootstrap interval):", ""]
    lines += ["| than | " + " | ".join(f"{budget:,}" for budget in BUDGETS) + " |"]
    lines.append("|---" * (len(BUDGETS) + 1) + "|")
    draws = np.random.default_rng(0).integers(0, len(ours), (2000, len(ours)))
    for name, result in results.items():
        if name != "RelevantSegments":
            difference = ours - np.array(result.share)
            low, high = np.percentile(difference[draws].mean(1), [2.5, 97.5], axis=0)
            cells = [
                f"{mean:+.3f} ({a:+.3f} to {b:+.3f})"
                for mean, a, b in zip(difference.mean(0), low, high, strict=True)
            ]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def draw(curves: dict[str, dict[str, Result]], path: Path) -> None:
    """The chart: evidence covered against tokens, a panel for each data set and retriever."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(2, len(curves))
    rows = -(-len(curves) // columns)
    size = (7.0 * columns, 4.4 * rows + 1.8)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis, (title, results) in zip(axes.flat, curves.items(), strict=False):
        for name, result in results.items():
            ours = name == "RelevantSegments"
            dashes = {"LlamaIndex": "--", "dsRAG": ":"}
            style = next((dash for start, dash in dashes.items() if name.startswith(start)), "-")
            axis.plot(
                BUDGETS,
                np.array(result.share).mean(0),
                label=name,
                marker="o",
                linestyle=style,
                markersize=4,
                linewidth=2.6 if ours else 1.1,
                color="black" if ours else None,
                zorder=3 if ours else 2,
            )
        axis.set_xscale("log")
        axis.set_xticks(BUDGETS, [f"{budget:,}" for budget in BUDGETS])
        axis.minorticks_off()
        axis.set(title=title, xlabel="tokens of the context", ylabel="mean share of evidence covered")
        axis.title.set_fontsize(10)
        axis.grid(alpha=0.3)
    for axis in list(axes.flat)[len(curves) :]:
        axis.remove()
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()

"""Model-chosen directions, compared with LlamaIndex's own postprocessor, in one run.

    python benchmarks/auto_prev_next.py [--latency 0.2] [--out benchmarks/results/auto_prev_next.md]

The model is scripted: each call takes the same time and answers NEXT. The systems differ only in how
many calls they make, how many of them wait for one another, and how long the prompts are. Times are given
as multiples of one call. Hits are chunks of 200 to 260 words; tokens are counted by LlamaIndex's tokenizer.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llama_index.core import Settings
from llama_index.core import __version__ as core_version
from llama_index.core.postprocessor import AutoPrevNextNodePostprocessor as UpstreamPostprocessor
from llama_index.core.schema import NodeWithScore

from llama_index_ext_ctxaug import AutoPrevNextNodePostprocessor
from llama_index_ext_ctxaug.testing import ScriptedLLM, docstore_of, hits, linked_document

QUERY = "What became of the harbor after the great storm?"
HITS = 10
REPEATS = 3


def main() -> None:
    """Measure both and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--latency", type=float, default=0.2, help="seconds that a call of the model takes")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    report = "\n".join([*heading(options.latency), *rows(options.latency), ""])
    print(report)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(report, encoding="utf-8")


def heading(latency: float) -> list[str]:
    """Return the heading, with the versions measured."""
    return [
        "# The model chooses the direction",
        "",
        f"A scripted model; times in calls (1.0 = {latency * 1e3:.0f} ms), best of {REPEATS}; "
        f"llama-index-core {core_version}, Python {platform.python_version()}.",
        "",
        "| hits | system | calls | time sync | time async | tokens sent |",
        "|---|---|---|---|---|---|",
    ]


def rows(latency: float) -> list[str]:
    """Return a line for each scenario and system."""
    texts = [text(place) for place in range(60)]
    document, copy = linked_document(texts), linked_document(texts, source_id="copy")
    store = docstore_of(document, copy)
    scenarios = {
        f"{HITS} scattered": hits(document, range(1, 60, 6)),
        f"{HITS} adjacent": hits(document, range(20, 20 + HITS)),
        f"{HITS}, half of them repeat a text": hits(document, range(1, 30, 6)) + hits(copy, range(1, 30, 6)),
    }
    return [
        f"| {scenario} | {system} | {measure(make, store, retrieved, latency)} |"
        for scenario, retrieved in scenarios.items()
        for system, make in SYSTEMS.items()
    ]


def text(place: int) -> str:
    """Return a chunk of 200 to 260 words."""
    entries = (f"The log of day {place} speaks of wind {n}." for n in range(22 + place % 7))
    return f"Part {place}. " + " ".join(entries)


Make = Callable[[Any, ScriptedLLM], Any]
SYSTEMS: dict[str, Make] = {
    "LlamaIndex": lambda store, llm: UpstreamPostprocessor(docstore=store, llm=llm),
    "each, 4 at a time (default)": lambda store, llm: AutoPrevNextNodePostprocessor(docstore=store, llm=llm),
    "each, 10 at a time": lambda store, llm: AutoPrevNextNodePostprocessor(
        docstore=store, llm=llm, num_workers=10
    ),
    "together": lambda store, llm: AutoPrevNextNodePostprocessor(docstore=store, llm=llm, decide="together"),
}


def says_next(prompt: str) -> str:
    """Answer NEXT for one excerpt, or for each numbered one."""
    numbered = prompt.rsplit("JSON object", 1)[-1].count("Excerpt ") if "JSON object" in prompt else 0
    if not numbered:
        return "NEXT"
    return "{" + ", ".join(f'"{number}": "NEXT"' for number in range(1, numbered + 1)) + "}"


def measure(make: Make, store: Any, retrieved: list[NodeWithScore], latency: float) -> str:
    """Measure one system in one scenario: calls, times, tokens."""
    llm = ScriptedLLM(answers=says_next, latency=latency, context_window=32_000)
    augmenter = make(store, llm)
    augmenter.postprocess_nodes(retrieved, query_str=QUERY)
    calls, tokens = len(llm.prompts), sum(len(Settings.tokenizer(prompt)) for prompt in llm.prompts)
    ways: list[Callable[[], object]] = [
        lambda: augmenter.postprocess_nodes(retrieved, query_str=QUERY),
        lambda: asyncio.run(augmenter.apostprocess_nodes(retrieved, query_str=QUERY)),
    ]
    times = " | ".join(f"{best(way) / latency:.2f}" for way in ways)
    return f"{calls} | {times} | {tokens:,}"


def best(call: Callable[[], object]) -> float:
    """Return the shortest time of several runs, in seconds."""
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


if __name__ == "__main__":
    main()

"""Evidence shown within a token budget, by one call or by a call followed by steps of reading on.

    python benchmarks/reading.py                                    # its own questions, no download
    python benchmarks/reading.py --data DIR/qmsum:128 DIR/chroma_chunking:64 DIR/covidqa:64 --out FILE.md
    python benchmarks/reading.py --url http://127.0.0.1:8080/v1 --model NAME ...

Each way gets the same pool of 100 hits by BM25. "alone" is `RelevantSegmentsPostprocessor` with all tokens.
The others give it 500 tokens and spend the rest with the tools of `ReadAroundToolSpec`, two chunks a step:
"best" reads on around the best passage, alternating sides; "turn" does so around each passage in turn;
"section" reads the sections of the passages, the best first; "oracle" always takes the step towards the
nearest evidence not shown yet: no policy can know its place, so this is the upper bound. With an endpoint,
"model" asks a language model for each step. Questions of the split "eval" are reported.
"""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, cycle
from pathlib import Path

from evidence_data import (
    Chunks,
    Corpus,
    Evidence,
    Question,
    Span,
    cut,
    distinct,
    load_corpus,
    own_corpus,
    spread_out,
)
from evidence_search import BM25, pools
from llama_index.core import Document
from llama_index.core.llms import LLM
from llama_index.core.schema import NodeWithScore
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.utils import get_tokenizer

from llama_index_ext_ctxaug import (
    ReadAroundToolSpec,
    Reading,
    RelevantSegmentsPostprocessor,
    read_provenance,
)

BUDGETS = (1000, 2000, 4000)
FIRST = 500
STEP_CHUNKS, STEP_TOKENS = 2, 200
MAX_STEPS = 60
PROMPT = """\
You may read on in documents before you answer a question. Name the one step that most likely leads to what is
missing, as "before N" or "after N" with the number of a passage, or say "enough".

Question: {question}

{context}

Step:"""

count = get_tokenizer()


@dataclass
class Part:
    """A passage that grows by reading on.

    Attributes:
        spans: its characters in documents.
        ends: handles to read on from, by side; a side that is read to its end is left out.
        text: its text so far.
    """

    spans: list[Span]
    ends: dict[str, str]
    text: str


@dataclass
class Reader:
    """The state of reading for one question.

    Attributes:
        spec: the tools.
        evidence: what is looked for.
        parts: the passages, the best first.
        left: tokens that are left.
        calls: tool calls so far.
    """

    spec: ReadAroundToolSpec
    evidence: Evidence
    question: Question
    parts: list[Part]
    left: int
    calls: int = 0
    done: set[tuple[int, str]] = field(default_factory=set)

    def step(self, number: int, side: str) -> bool:
        """Read on from one side of a passage; return False if nothing is left, or it does not fit."""
        part = self.parts[number]
        handle = part.ends.get(side)
        if handle is None:
            return False
        self.calls += 1
        reading = getattr(self.spec, f"read_{side}")(handle, STEP_CHUNKS)
        if not reading.passages or not self._take(part, reading):
            del part.ends[side]
            return False
        part.ends[side] = reading.handles[0]
        return True

    def section(self, number: int) -> bool:
        """Read the section of a passage."""
        if (number, "section") in self.done:
            return False
        self.done.add((number, "section"))
        self.calls += 1
        handle = self.parts[number].ends.get("before") or self.parts[number].ends.get("after")
        return handle is not None and self._take(self.parts[number], self.spec.read_section(handle))

    def _take(self, part: Part, reading: Reading) -> bool:
        text = "".join(hit.node.get_content() for hit in reading.nodes)
        tokens = len(count(text))
        if not reading.nodes or tokens > self.left:
            return False
        self.left -= tokens
        part.spans += spans_of(reading.nodes)
        part.text += text
        return True

    def shown(self) -> list[Span]:
        """Return all characters shown, each once."""
        return distinct(chain.from_iterable(part.spans for part in self.parts))


Policy = Callable[[Reader], None]


def best(reader: Reader) -> None:
    """Read on around the best passage, after and before in turn."""
    _around(reader, [0])


def turn(reader: Reader) -> None:
    """Read on around all passages in turn."""
    _around(reader, list(range(len(reader.parts))))


def _around(reader: Reader, numbers: list[int]) -> None:
    steps = [(number, side) for number in numbers for side in ("after", "before")]
    failed = 0
    for number, side in cycle(steps):
        failed = 0 if reader.step(number, side) else failed + 1
        if failed >= len(steps) or reader.calls >= MAX_STEPS:
            return


def section(reader: Reader) -> None:
    """Read the sections of the passages, the best first."""
    for number in range(len(reader.parts)):
        reader.section(number)


def oracle(reader: Reader) -> None:
    """Read towards the nearest evidence that was not shown yet."""
    while reader.calls < MAX_STEPS:
        steps = sorted(_distances(reader))
        if not any(reader.step(number, side) for _, number, side in steps[:1]) and not steps:
            return


def _distances(reader: Reader) -> Iterator[tuple[int, int, str]]:
    """Yield the characters from each open side of a passage to the next evidence on that side."""
    document, shown = reader.question.document, reader.shown()
    missing = [
        (start, end)
        for start, end in reader.question.spans
        if reader.evidence.covered([(document, start, end)])
        > sum(
            reader.evidence.covered([(d, max(s, start), min(e, end))])
            for d, s, e in shown
            if s < end and e > start
        )
    ]
    for number, part in enumerate(reader.parts):
        own = [span for span in part.spans if span[0] == document]
        if not own:
            continue
        first, last = min(start for _, start, _ in own), max(end for _, _, end in own)
        for side in part.ends:
            after = [max(0, start - last) for start, end in missing if end > last]
            before = [max(0, first - end) for start, end in missing if start < first]
            found = after if side == "after" else before
            if found:
                yield min(found), number, side


def asked(llm: LLM) -> Policy:
    """Return the policy that asks a language model for each step."""

    def policy(reader: Reader) -> None:
        while reader.calls < MAX_STEPS:
            context = "\n\n".join(f"[{n}] {part.text}" for n, part in enumerate(reader.parts, 1))
            reply = llm.complete(PROMPT.format(question=reader.question.text, context=context)).text
            match = re.search(r"\b(before|after)\W+(\d+)", reply.lower())
            if match is None or not 0 < int(match[2]) <= len(reader.parts):
                return
            if not reader.step(int(match[2]) - 1, match[1]):
                return

    return policy


def spans_of(nodes: list[NodeWithScore]) -> list[Span]:
    """Return the characters of documents that nodes hold."""
    spans: list[Span] = []
    for hit in nodes:
        provenance = read_provenance(hit.node)
        pieces = provenance.pieces if provenance else ()
        spans += [
            (p.document_id or "", p.source_start, p.source_end or 0)
            for p in pieces
            if p.source_start is not None
        ]
        if not pieces:
            spans.append(
                (hit.node.ref_doc_id or "", hit.node.start_char_idx or 0, hit.node.end_char_idx or 0)
            )
    return spans


def first_parts(spec: ReadAroundToolSpec, passages: list[NodeWithScore]) -> list[Part]:
    """Return the passages of the first call, with handles at both of their ends."""
    parts = []
    for hit in passages:
        provenance = read_provenance(hit.node)
        ids = (
            [piece.node_id for piece in provenance.pieces]
            if provenance and provenance.pieces
            else [hit.node.node_id]
        )
        parts.append(Part(spans_of([hit]), {"before": ids[0], "after": ids[-1]}, hit.node.get_content()))
    return parts


def measure(
    corpus: Corpus, chunks: Chunks, questions: int, policies: dict[str, Policy]
) -> dict[str, list[list[float]]]:
    """Return for each way and budget the mean share of evidence, the share shown in full, and mean calls."""
    store = SimpleDocumentStore()
    store.add_documents([Document(id_=id_, text=text) for id_, text in corpus.documents.items()])
    store.add_documents(chunks.nodes)
    chosen = [question for question in corpus.questions if question.split == "eval"]
    chosen = [chosen[place] for place in spread_out(len(chosen), questions)]
    found = pools(
        BM25([node.text for node in chunks.nodes]).search([q.text for q in chosen]), chunks.nodes, 100
    )
    rows: dict[str, list[list[float]]] = {}
    for budget in BUDGETS:
        scores: dict[str, list[tuple[float, int]]] = {name: [] for name in ("alone", *policies)}
        for question, pool in zip(chosen, found, strict=True):
            evidence = Evidence(corpus, question)
            alone = segments(store, budget, pool, question)
            scores["alone"].append((evidence.covered(distinct(spans_of(alone))) / evidence.total, 1))
            start = segments(store, FIRST, pool, question)
            for name, policy in policies.items():
                spec = ReadAroundToolSpec(docstore=store, max_tokens=STEP_TOKENS)
                parts = first_parts(spec, start)
                used = len(count("\n\n".join(part.text for part in parts)))
                reader = Reader(spec, evidence, question, parts, budget - used)
                policy(reader)
                scores[name].append((evidence.covered(reader.shown()) / evidence.total, 1 + reader.calls))
        for name, values in scores.items():
            shares = [share for share, _ in values]
            whole = sum(share > 0.999 for share in shares) / len(shares)
            calls = sum(number for _, number in values) / len(values)
            rows.setdefault(name, []).append([sum(shares) / len(shares), whole, calls])
    return rows


def segments(
    store: SimpleDocumentStore, budget: int, pool: list[NodeWithScore], question: Question
) -> list[NodeWithScore]:
    """Return the passages that `RelevantSegmentsPostprocessor` gives for a budget."""
    augmenter = RelevantSegmentsPostprocessor(docstore=store, token_budget=budget, output="passages")
    return augmenter.postprocess_nodes(pool, query_str=question.text)


def table(name: str, size: int, questions: int, rows: dict[str, list[list[float]]]) -> str:
    """Return the results of a data set as a Markdown table."""
    lines = [
        f"## {name}, chunks of {size} tokens, {questions} questions\n",
        "| way | " + " | ".join(f"{budget:,} tokens" for budget in BUDGETS) + " |",
        "|---|" + "---|" * len(BUDGETS),
    ]
    for way, found in rows.items():
        cells = (f"{mean:.3f} / {whole:.3f} ({calls:.0f})" for mean, whole, calls in found)
        lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure each data set; print and write the tables."""
    parser = argparse.ArgumentParser(description="Evidence shown by reading on.")
    parser.add_argument("--data", nargs="*", default=[""], help="folders: DIR[:SIZE]")
    parser.add_argument("--questions", type=int, default=60, help="maximum of each data set")
    parser.add_argument("--url", help="an OpenAI-compatible endpoint, for the way that asks a model")
    parser.add_argument("--model", default="default", help="name of the model at the endpoint")
    parser.add_argument("--out", type=Path, help="write the tables to this file")
    arguments = parser.parse_args()
    logging.getLogger("llama_index_ext_ctxaug").setLevel(logging.ERROR)
    policies: dict[str, Policy] = {"best": best, "turn": turn, "section": section, "oracle": oracle}
    if arguments.url:
        from llama_index.llms.openai_like import OpenAILike

        llm = OpenAILike(model=arguments.model, api_base=arguments.url, api_key="none", is_chat_model=True)
        policies["model"] = asked(llm)
    tables = [
        "# Reading on\n\nMean share of the evidence shown / share of questions with all of it (mean calls),\n"
        "by `benchmarks/reading.py`. BM25, pools of 100 hits.\n"
    ]
    for entry in arguments.data:
        folder, _, size = entry.partition(":")
        corpus = load_corpus(Path(folder)) if folder else own_corpus()
        chunks = cut(corpus, int(size or 64))
        asked_number = min(arguments.questions, sum(q.split == "eval" for q in corpus.questions))
        tables.append(
            table(corpus.name, int(size or 64), asked_number, measure(corpus, chunks, asked_number, policies))
        )
        print(tables[-1], flush=True)
        if arguments.out:
            arguments.out.write_text("\n".join(tables), encoding="utf-8")


if __name__ == "__main__":
    main()

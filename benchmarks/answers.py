"""A model's answers from each way of giving context, at equal tokens.

    python benchmarks/answers.py --data DIR/covidqa DIR/cmrc2018 --llm NAME --llm-url http://127.0.0.1:8089/v1
                                 --replies replies.jsonl --out benchmarks/results/answers.md

A data set is a folder as for `evidence.py`, with `answers` in its questions. One model and one prompt serve
all ways. All ways answer a question before the next one starts. Replies are kept in `--replies` by model
and prompt, and equal contexts are answered once. A stopped run resumes, and its figures are paired. A way
without a budget of its own gets the maximum number of hits whose output fits. `--forms` compares forms of
one context instead, on questions of the split "tune"; `--all` compares all ways of
`evidence.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evidence_data import Chunks, Corpus, cut, spread_out
from evidence_measure import Calls, count_tokens
from evidence_search import BM25, BM25Rescore, pools
from evidence_ways import Way, Ways, all_ways, text_of
from llama_index.core.llms import LLM
from llama_index.core.response_synthesizers import BaseSynthesizer, get_response_synthesizer
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.utils import get_tqdm_iterable
from llama_index.llms.openai_like import OpenAILike
from scipy.stats import spearmanr

from llama_index_ext_ctxaug import (
    PrevNextNodePostprocessor,
    RelevantSegmentsPostprocessor,
    SlidingWindowPostprocessor,
    TokenBudgetPostprocessor,
)
from llama_index_ext_ctxaug.evaluation import (
    SHORT_ANSWER_PROMPT,
    AnswerExact,
    AnswerF1,
    AnswerFound,
    CachedLLM,
    EvidenceRecall,
    Outcome,
    Question,
    load_questions,
    paired_interval,
)

POOL = 100
SENTENCE = 32
"""Tokens of the pieces of which the best are taken; a longer sentence is a piece of its own."""

BASELINES = ("top-k", "LlamaIndex PrevNext, both 1")
WAYS = (
    *BASELINES,
    "LlamaIndex PrevNext, both 2",
    "PrevNext, both 1",
    "RelevantSegments, whole chunks",
    "RelevantSegments",
)
METRICS = (AnswerF1(), AnswerExact(), AnswerFound(), EvidenceRecall())

Score = dict[str, float]


@dataclass
class Scores:
    """The scores of one data set within one budget.

    Attributes:
        title: data set and budget.
        by_way: for each way, the scores of each question by its id.
    """

    title: str
    by_way: dict[str, dict[str, Score]] = field(default_factory=dict)


def main() -> None:
    """Answer the questions of every data set; print and write the report, even if the run is stopped."""
    arguments = parse()
    for stop in (signal.SIGINT, signal.SIGTERM):  # a shell ignores the first one in the background
        signal.signal(stop, signal.default_int_handler)
    model = OpenAILike(
        model=arguments.llm,
        api_base=arguments.llm_url,
        api_key=os.environ.get("OPENAI_API_KEY", "none"),
        is_chat_model=True,
        temperature=0.0,
        max_tokens=64,
        timeout=600.0,
    )
    found: list[Scores] = []
    try:
        for folder in arguments.data:
            run(folder, arguments, CachedLLM(model, arguments.replies), found)
    except KeyboardInterrupt:
        print("Stopped; the same command resumes.")
    text = report(found, arguments.llm, arguments.split)
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text, encoding="utf-8")


def parse(values: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Answers from each way of giving context at equal tokens.")
    parser.add_argument("--data", nargs="+", type=Path, required=True, help="folders of data sets")
    parser.add_argument("--llm", required=True, help="name of the model")
    parser.add_argument("--llm-url", required=True, help="URL of an OpenAI-compatible endpoint")
    parser.add_argument("--replies", type=Path, default=Path("replies.jsonl"), help="file that keeps replies")
    parser.add_argument("--questions", type=int, default=120, help="maximum of each data set")
    parser.add_argument("--split", choices=["eval", "tune"], default="eval", help="which questions to ask")
    parser.add_argument("--budgets", nargs="+", type=int, default=[500], help="tokens of a context")
    parser.add_argument("--chunk-size", type=int, default=64, help="tokens of a chunk")
    parser.add_argument("--all", action="store_true", help="compare all ways of evidence.py")
    parser.add_argument("--forms", action="store_true", help="compare forms of one context")
    parser.add_argument("--out", type=Path, help="file of the report")
    return parser.parse_args(values)


def run(folder: Path, arguments: argparse.Namespace, llm: LLM, found: list[Scores]) -> None:
    """Answer the questions of one data set by all ways within all budgets; append to `found`."""
    documents = {path.stem: path.read_bytes().decode() for path in sorted(folder.glob("docs/*.txt"))}
    asked = questions_of(folder, documents, arguments.split, arguments.questions)
    chunks = cut(Corpus(folder.name, documents, []), arguments.chunk_size)
    index = BM25([node.text for node in chunks.nodes])
    ways = chosen_ways(chunks, index, documents, arguments)
    synthesizer = get_response_synthesizer(llm=llm, text_qa_template=SHORT_ANSWER_PROMPT)
    scores = {budget: Scores(f"{folder.name}, {budget} tokens") for budget in arguments.budgets}
    found += scores.values()
    for question in get_tqdm_iterable(asked, True, folder.name):
        [pool] = pools(index.search([question.text]), chunks.nodes, POOL)
        for budget in arguments.budgets:
            rows = {
                name: score(question, context(way, pool, question.text, budget), synthesizer)
                for name, way in ways.items()
            }
            for name, row in rows.items():  # after all ways have answered, so that a stopped run stays paired
                scores[budget].by_way.setdefault(name, {})[question.id] = row


def questions_of(folder: Path, documents: Mapping[str, str], split: str, maximum: int) -> list[Question]:
    """Read the questions of a split that have answers, evenly spread."""
    path = folder / "questions.jsonl"
    records = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    wanted = {str(record["id"]) for record in records if record["split"] == split}
    known = [one for one in load_questions(path, documents=documents) if one.id in wanted and one.answers]
    return [known[place] for place in spread_out(len(known), maximum)]


def chosen_ways(
    chunks: Chunks, index: BM25, documents: Mapping[str, str], arguments: argparse.Namespace
) -> dict[str, Way]:
    """Return the ways to compare by name."""
    scorer = BM25Rescore(index)
    if arguments.forms:
        return forms(Ways(chunks, scorer), documents)
    ways = all_ways(chunks, scorer)
    return ways if arguments.all else {name: ways[name] for name in WAYS}


def forms(ways: Ways, documents: Mapping[str, str]) -> dict[str, Way]:
    """Return forms in which a model can get chunks of the same places within the same budget."""

    def segments(**fields: object) -> Way:
        return ways.budgeted(RelevantSegmentsPostprocessor, **{"output": "passages", **fields})

    def then(change: Callable[[list[NodeWithScore], str], list[NodeWithScore]], factor: int = 1) -> Way:
        whole = segments()

        def call(hits: list[NodeWithScore], text: str, budget: int) -> list[NodeWithScore]:
            nodes = change(whole.call(hits, text, factor * budget), text)
            fit = TokenBudgetPostprocessor(token_budget=budget, budget_unit="sentence", priority="score")
            return fit.postprocess_nodes(nodes)

        return Way(call, whole.store, whole.spans, budgeted=True)

    def sentences(nodes: list[NodeWithScore], text: str) -> list[NodeWithScore]:
        windows = SlidingWindowPostprocessor(window_tokens=SENTENCE, stride_tokens=SENTENCE)
        return ways.scorer.postprocess_nodes(windows.postprocess_nodes(nodes), query_str=text)

    return {
        "passages": segments(),
        "whole chunks": segments(budget_unit="chunk"),
        "chunks apart": segments(output="nodes"),
        "holes without a mark": segments(hole_separator="\n\n"),
        "holes marked by a line": segments(hole_separator="\n\n---\n\n"),
        "one passage for each document": segments(passage_scope="document"),
        "fewer, longer passages": ways.budgeted(
            PrevNextNodePostprocessor, of_budget=0.25, num_nodes=2, mode="both", output="passages"
        ),
        "the best sentences of twice the tokens": then(sentences, factor=2),
        "document and heading first": then(lambda nodes, text: named(nodes, documents)),
        "best passage last": then(lambda nodes, text: nodes[::-1]),
    }


def named(nodes: list[NodeWithScore], documents: Mapping[str, str]) -> list[NodeWithScore]:
    """Put a line with the document's name and the last Markdown heading before each text."""
    found = []
    for hit in nodes:
        text, id_ = text_of(hit), str(hit.node.ref_doc_id)
        before = documents[id_][: max(0, documents[id_].find(text[:40]))]
        names = [id_, *re.findall(r"^#+ +(.+)$", before, re.MULTILINE)[-1:]]
        found.append(NodeWithScore(node=TextNode(text=f"[{': '.join(names)}]\n{text}"), score=hit.score))
    return found


def context(way: Way, pool: list[NodeWithScore], text: str, budget: int) -> list[NodeWithScore]:
    """Return the output within a budget; a way without one of its own gets as many hits as fit."""
    if way.budgeted:
        return way.call(pool, text, budget)
    hits = Calls(way, pool, text).most_that_fit(budget)
    if hits:
        return way.call(pool[:hits], text, budget)
    return TokenBudgetPostprocessor(token_budget=budget).postprocess_nodes(way.call(pool[:1], text, budget))


def score(question: Question, nodes: list[NodeWithScore], synthesizer: BaseSynthesizer) -> Score:
    """Answer a question from a context, and measure answer and context."""
    tokens = count_tokens("\n\n".join(map(text_of, nodes)))
    answer = str(synthesizer.synthesize(question.text, nodes))
    outcome = Outcome(question, nodes, nodes, tokens=tokens, answer=answer)
    return {"tokens": tokens, **{metric.name: metric.score(outcome) or 0.0 for metric in METRICS}}


def report(found: Iterable[Scores], model: str, split: str) -> str:
    """Return a section for each data set and budget, as Markdown."""
    lines = ["# Answers at equal tokens", "", f"Model: {model}. Questions of the split {split!r}."]
    for scores in found:
        if scores.by_way:
            lines += ["", f"## {scores.title}", "", *table(scores), "", *together(scores)]
    return "\n".join(lines) + "\n"


def table(scores: Scores) -> Iterator[str]:
    """Yield a row for each way: mean scores, and differences in F1 with 95 percent intervals."""
    names = ["answer_f1", "answer_exact", "answer_found", "evidence_recall", "tokens"]
    baselines = [name for name in BASELINES if name in scores.by_way] or list(scores.by_way)[:1]
    heads = ["way", *(name.replace("_", " ") for name in names), *(f"F1 against {b}" for b in baselines)]
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for way, rows in scores.by_way.items():
        means = [sum(row[name] for row in rows.values()) / len(rows) for name in names]
        cells = [way, *(f"{mean:.3f}" for mean in means[:-1]), f"{means[-1]:.0f}"]
        for baseline in baselines:
            other = scores.by_way[baseline]
            gains = {id_: row["answer_f1"] - other[id_]["answer_f1"] for id_, row in rows.items()}
            interval = paired_interval(gains)
            text = f"{interval.mean:+.3f} ({interval.low:+.3f} to {interval.high:+.3f})"
            cells.append("" if way == baseline else text)
        yield f"| {' | '.join(cells)} |"


def together(scores: Scores) -> Iterator[str]:
    """Yield the relation of evidence covered and F1, over all contexts."""
    rows = [row for by_id in scores.by_way.values() for row in by_id.values()]
    yield f"{len(next(iter(scores.by_way.values())))} questions, {len(rows)} contexts."
    for label, chosen in (("all", 1.0), ("none", 0.0)):
        f1 = [row["answer_f1"] for row in rows if row["evidence_recall"] == chosen]
        if f1:
            yield f"Mean F1 of the {len(f1)} contexts with {label} of the evidence: {sum(f1) / len(f1):.3f}."
    recall, f1 = ([row[name] for row in rows] for name in ("evidence_recall", "answer_f1"))
    if len(set(recall)) > 1 and len(set(f1)) > 1:
        yield f"Rank correlation of evidence covered and F1 (Spearman): {spearmanr(recall, f1)[0]:.2f}."


if __name__ == "__main__":
    main()

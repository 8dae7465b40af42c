"""The rate at which a model names the right direction: this package's prompts and LlamaIndex's own.

    python benchmarks/direction_quality.py --api-base http://127.0.0.1:8089/v1 --name "Qwen2.5 1.5B"

Every case of direction_cases.jsonl is an excerpt, a question and the side that holds the answer. The
excerpt becomes the middle chunk of a document of three. Both postprocessors run over it as a hit, and the
nodes they add are their decision. So prompt, call, reply parsing and expansion are measured together, in
the same way for both. The half "tune" was used to choose prompts, the half "report" only to state results.
With "together", two excerpts of other cases are added, and the decision on the case's own one counts.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from llama_index.core import __version__ as core_version
from llama_index.core.bridge.pydantic import Field
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.llms import LLM
from llama_index.core.postprocessor import AutoPrevNextNodePostprocessor as UpstreamPostprocessor
from llama_index.core.schema import NodeWithScore
from llama_index.llms.openai import OpenAI

from llama_index_ext_ctxaug import AutoPrevNextNodePostprocessor, DirectionsChosenEvent
from llama_index_ext_ctxaug.testing import docstore_of, linked_document

CASES = Path(__file__).parent / "direction_cases.jsonl"
DIRECTIONS = ("previous", "next", "none")


@dataclass
class Case:
    """One excerpt with one question; `direction` is the side of the answer."""

    id: str
    lang: str
    split: str
    excerpt: str
    question: str
    direction: str


@dataclass
class Outcome:
    """A system's decision on a case: a direction, or None if its reply was unusable."""

    case: Case
    decided: str | None


class Decisions(BaseEventHandler):
    """Keeps the events of the last call."""

    events: list[DirectionsChosenEvent] = Field(default_factory=list)

    def handle(self, event: object, **kwargs: object) -> None:
        """Keep events about directions."""
        if isinstance(event, DirectionsChosenEvent):
            self.events.append(event)


DECISIONS = Decisions()
System = Callable[[LLM, list[Case], int], str | None]


def main() -> None:
    """Run the systems over one half of the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--api-base", required=True, help="an OpenAI-compatible endpoint")
    parser.add_argument("--model", default="gpt-3.5-turbo", help="model name to send")
    parser.add_argument("--name", help="name of the model in the table")
    parser.add_argument("--split", choices=["tune", "report"], default="report")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--count", type=int, help="maximum number of cases, languages in turn")
    parser.add_argument("--out", type=Path, help="also append the table to this file")
    parser.add_argument("--raw", type=Path, help="keep each decision in this file, and resume from it")
    options = parser.parse_args()
    logging.getLogger("llama_index_ext_ctxaug").setLevel(logging.ERROR)
    get_dispatcher().add_event_handler(DECISIONS)
    llm = OpenAI(
        model=options.model,
        api_base=options.api_base,
        api_key="none",
        temperature=0,
        max_tokens=48,
        timeout=600,
        max_retries=0,
    )
    cases = [Case(**json.loads(line)) for line in CASES.read_text(encoding="utf-8").splitlines()]
    cases = in_turn([case for case in cases if case.split == options.split])[: options.count]
    lines = heading(options.name or options.model, options.split, len(cases))
    print("\n".join(lines), flush=True)
    for name in options.systems:
        lines.append(row(name, llm, cases, Record(options.raw, name, llm.model, options.name)))
        print(lines[-1], flush=True)
    if options.out:
        with options.out.open("a", encoding="utf-8") as file:
            file.write("\n".join([*lines, "", ""]))


def heading(name: str, split: str, count: int) -> list[str]:
    """Return the head of the table."""
    return [
        f'## {name}, half "{split}" ({count} cases), llama-index-core {core_version}',
        "",
        "| system | right | usable | previous | next | none | English | Chinese | decided previous / next / "
        "none / both / unusable |",
        "|---|---|---|---|---|---|---|---|---|",
    ]


def in_turn(cases: list[Case]) -> list[Case]:
    """Return English and Chinese excerpts in turn, the three questions of an excerpt together."""
    excerpts = {case.excerpt: case.lang for case in cases}
    places = {lang: iter(range(len(excerpts))) for lang in ("en", "zh")}
    order = {excerpt: next(places[lang]) for excerpt, lang in excerpts.items()}
    return sorted(cases, key=lambda case: order[case.excerpt])


class Record:
    """Decisions of one system and model, kept in a file so that an interrupted run can resume."""

    def __init__(self, path: Path | None, *key: str | None) -> None:
        self.path, self.key = path, list(key)
        lines = path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []
        known = [json.loads(line) for line in lines]
        self.known = {entry["case"]: entry["decided"] for entry in known if entry["key"] == self.key}

    def decide(self, case: Case, call: Callable[[], str | None]) -> str | None:
        """Return the decision on a case: the recorded one, or a new one, which is recorded."""
        if case.id not in self.known:
            self.known[case.id] = call()
            if self.path:
                entry = {"key": self.key, "case": case.id, "decided": self.known[case.id]}
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(entry) + "\n")
        return self.known[case.id]


def row(name: str, llm: LLM, cases: list[Case], record: Record) -> str:
    """Run one system on all cases; return a line of the table."""
    system = SYSTEMS[name]
    outcomes = [
        Outcome(case, record.decide(case, partial(system, llm, cases, place)))
        for place, case in enumerate(cases)
    ]
    decided = Counter(outcome.decided for outcome in outcomes)
    counts = " / ".join(str(decided[kind]) for kind in (*DIRECTIONS, "both", None))
    usable = sum(outcome.decided is not None for outcome in outcomes)
    groups = [[o for o in outcomes if o.case.direction == direction] for direction in DIRECTIONS]
    groups += [[o for o in outcomes if o.case.lang == lang] for lang in ("en", "zh")]
    shares = " | ".join(share(group) for group in groups)
    return f"| {name} | {share(outcomes)} | {usable}/{len(cases)} | {shares} | {counts} |"


def share(outcomes: list[Outcome]) -> str:
    """Return the number and share of right decisions."""
    right = sum(outcome.decided == outcome.case.direction for outcome in outcomes)
    return f"{right}/{len(outcomes)} ({right / len(outcomes):.0%})"


def upstream(llm: LLM, cases: list[Case], place: int) -> str | None:
    """Run LlamaIndex's postprocessor with its own prompt; an error for the reply is an unusable reply."""
    nodes = document(cases[place])
    augmenter = UpstreamPostprocessor(docstore=docstore_of(nodes), llm=llm)
    try:
        result = augmenter.postprocess_nodes([NodeWithScore(node=nodes[1])], query_str=cases[place].question)
    except ValueError:
        return None
    return added(result, cases[place])


def each(llm: LLM, cases: list[Case], place: int) -> str | None:
    """Run this package with one call per hit."""
    nodes = document(cases[place])
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm, on_llm_error="raise")
    DECISIONS.events.clear()
    result = augmenter.postprocess_nodes([NodeWithScore(node=nodes[1])], query_str=cases[place].question)
    clear = DECISIONS.events[0].decisions[0]["reason"] == "answer"
    return added(result, cases[place]) if clear else None


def together(llm: LLM, cases: list[Case], place: int) -> str | None:
    """Run this package with one call for three hits; falling back to single calls is an unusable reply."""
    case = cases[place]
    others = [other for other in cases if other.lang == case.lang and other.excerpt != case.excerpt]
    chosen = [others[(place * 7) % len(others)], others[(place * 7 + 9) % len(others)]]
    chosen.insert(place % 3, case)
    documents = [document(one) for one in chosen]
    augmenter = AutoPrevNextNodePostprocessor(
        docstore=docstore_of(*documents), llm=llm, decide="together", on_llm_error="raise"
    )
    DECISIONS.events.clear()
    hits = [NodeWithScore(node=nodes[1]) for nodes in documents]
    result = augmenter.postprocess_nodes(hits, query_str=case.question)
    return added(result, case) if DECISIONS.events[0].calls == 1 else None


SYSTEMS: dict[str, System] = {"LlamaIndex": upstream, "each": each, "together": together}


def document(case: Case) -> list:
    """Return the excerpt between two other chunks."""
    return linked_document(["Before.", case.excerpt, "After."], source_id=case.id)


def added(result: list[NodeWithScore], case: Case) -> str:
    """Return the direction in which nodes of the case's document were added."""
    texts = {hit.node.text for hit in result if hit.node.ref_doc_id == case.id}
    sides = [side for side, text in (("previous", "Before."), ("next", "After.")) if text in texts]
    return "both" if len(sides) == 2 else (sides or ["none"])[0]


if __name__ == "__main__":
    main()

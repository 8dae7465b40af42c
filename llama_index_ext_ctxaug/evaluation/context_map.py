"""The context map: each document as strips of its chunks, with those that the model got, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llama_index.core.schema import NodeWithScore

from llama_index_ext_ctxaug.evaluation.context_blocks import Block, blocks_of
from llama_index_ext_ctxaug.evaluation.escaping import for_terminal
from llama_index_ext_ctxaug.evaluation.page import in_notebook, render
from llama_index_ext_ctxaug.evaluation.tables import to_text

Systems = Mapping[str, Sequence[Block]]
Key = tuple[str, int | None, int | None]

_GAP = 2.0
"""Percent of the width between stretches where text of the document is left out."""

REASONS = {
    "count": "the wanted number was reached",
    "document_end": "the document ends here",
    "heading": "a heading",
    "budget": "the token budget",
    "filter": "the next chunk is refused by the filters",
    "missing": "the next chunk is not in the docstore",
    "other_document": "the link leads into another document",
    "cycle": "the links lead back",
}


@dataclass(frozen=True)
class ContextMap:
    """The context that a model got for one query; `explain` makes it.

    Attributes:
        systems: the blocks of each system by its name.
        question: the query, shown above the map; "" to leave it out.
    """

    systems: Systems
    question: str = ""

    def to_html(self) -> str:
        """Return one self-contained page."""
        documents = map_documents(self.systems)
        return render("map.html", title="Context map", question=self.question, documents=documents)

    def save(self, path: str | Path) -> Path:
        """Write the page to a file and return its path."""
        path = Path(path)
        path.write_text(self.to_html(), encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        return in_notebook(self.to_html())

    def __str__(self) -> str:
        lines = [f"Question: {for_terminal(self.question)}"] if self.question else []
        for name, blocks in self.systems.items():
            lines.append(f"{for_terminal(name)}: {len(blocks)} chunks")
            for block in blocks:
                facts = [block.role, for_terminal(block.title, 40), *_facts(block)]
                lines.append(f"  [{', '.join(facts)}] {for_terminal(block.text, 100)}")
        return "\n".join(lines)


def explain(nodes: Sequence[NodeWithScore], name: str = "context", question: str = "") -> ContextMap:
    """Show what a retriever or an augmenter gave: a picture in a notebook, a page, or text with `print`.

    Args:
        nodes: for instance `response.source_nodes`.
        name: label of the strip.
        question: the query, shown above the map; "" to leave it out.
    """
    return ContextMap({name: blocks_of(nodes)}, question)


def _facts(block: Block) -> Iterator[str]:
    if block.start is not None and block.end is not None:
        yield f"characters {block.start}–{block.end}"
    if block.hops:
        yield f"{block.hops} away from its hit"
    if block.score is not None:
        yield f"score {to_text(block.score)}"
    for side, reason in (("before", block.stopped_previous), ("after", block.stopped_next)):
        if reason:
            yield f"expansion {side} it ended: {REASONS.get(reason, reason)}"


def map_documents(systems: Systems) -> list[dict[str, object]]:
    """Return the values that the template `context_map.html` draws, one record a document."""
    titles: dict[str, str] = {}
    for blocks in systems.values():
        for block in blocks:
            titles.setdefault(block.document, block.title)
    return [
        _document(title, {name: [b for b in blocks if b.document == id_] for name, blocks in systems.items()})
        for id_, title in titles.items()
    ]


def _document(title: str, systems: Systems) -> dict[str, object]:
    places = _places([block for blocks in systems.values() for block in blocks])
    return {
        "title": title,
        "summary": "; ".join(f"{name}: {_count(blocks)}" for name, blocks in systems.items()),
        "strips": {name: [_box(b, *places[_key(b)]) for b in blocks] for name, blocks in systems.items()},
        "chunks": _chunks(systems),
    }


def _count(blocks: Sequence[Block]) -> str:
    roles = [block.role for block in blocks]
    return ", ".join(f"{roles.count(role)} {role}" for role in dict.fromkeys(roles)) or "nothing"


def _drawn(block: Block) -> dict[str, object]:
    return {"role": block.role, "facts": "; ".join([block.role, *_facts(block)])}


def _box(block: Block, left: float, right: float) -> dict[str, object]:
    return {**_drawn(block), "left": round(left, 2), "width": round(max(right - left - 0.1, 0.3), 2)}


def _chunks(systems: Systems) -> list[dict[str, object]]:
    """Return the text of each chunk once, with the systems that sent it."""
    sent: dict[Key, list[dict[str, object]]] = {}
    chunks: dict[Key, Block] = {}
    for name, blocks in systems.items():
        for block in blocks:
            sent.setdefault(_key(block), []).append({**_drawn(block), "system": name})
            chunks.setdefault(_key(block), block)
    in_order = sorted(chunks, key=lambda key: (chunks[key].start is None, chunks[key].start or 0))
    return [{"text": chunks[key].text, "sent": sent[key]} for key in in_order]


def _key(block: Block) -> Key:
    return block.node_id, block.start, block.end


def _places(blocks: Sequence[Block]) -> dict[Key, tuple[float, float]]:
    """Return left and right end of each block in percent: by characters if known, else equally wide.

    Runs of text are drawn to scale, with gaps of a fixed width between them.
    """
    distinct = {_key(block): (block.start, block.end) for block in blocks}
    spans = [(start, end) for start, end in distinct.values() if start is not None and end is not None]
    if len(spans) < len(distinct):
        width = 100 / len(distinct)
        return {key: (number * width, (number + 1) * width) for number, key in enumerate(distinct)}
    runs = _runs(sorted(spans))
    gap = min(_GAP, 50 / max(len(runs), 1))
    scale = (100 - gap * (len(runs) - 1)) / max(sum(end - start for start, end in runs), 1)
    left, places = 0.0, {}
    for first, last in runs:
        for key, (start, end) in zip(distinct, spans, strict=True):
            if first <= start <= last:
                places[key] = (left + (start - first) * scale, left + (end - first) * scale)
        left += (last - first) * scale + gap
    return places


def _runs(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join spans with no more than a little white space between them."""
    runs: list[tuple[int, int]] = []
    for start, end in spans:
        if runs and start <= runs[-1][1] + 20:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
        else:
            runs.append((start, end))
    return runs

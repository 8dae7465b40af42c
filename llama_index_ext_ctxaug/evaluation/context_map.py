"""The context map: each document a strip of its chunks, with what went to the model and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llama_index.core.schema import NodeWithScore

from llama_index_ext_ctxaug.evaluation.context_blocks import Block, blocks_of
from llama_index_ext_ctxaug.evaluation.escaping import for_html, for_terminal
from llama_index_ext_ctxaug.evaluation.tables import number

Systems = Mapping[str, Sequence[Block]]

_WIDTH, _HEIGHT, _LEFT = 760, 26, 170
_GAP = 14.0
"""Width between stretches where text of the document is left out."""

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
    """What went to the model for one call; `explain` makes it.

    Attributes:
        systems: the blocks of each system by its name.
    """

    systems: Systems

    def to_html(self) -> str:
        """One self-contained page."""
        from llama_index_ext_ctxaug.evaluation.page import map_page

        return map_page(self.systems)

    def save(self, path: str | Path) -> Path:
        """Write the page to a file; returns its path."""
        path = Path(path)
        path.write_text(self.to_html(), encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        from llama_index_ext_ctxaug.evaluation.page import in_notebook

        return in_notebook(self.to_html())

    def __str__(self) -> str:
        return "\n".join(line for name, blocks in self.systems.items() for line in _lines(name, blocks))


def explain(nodes: Sequence[NodeWithScore], name: str = "context") -> ContextMap:
    """Show what a retriever or an augmenter gave: a picture in a notebook, a page, or text with `print`.

    Args:
        nodes: for instance `response.source_nodes`.
        name: what the strip is called.
    """
    return ContextMap({name: blocks_of(nodes)})


def _lines(name: str, blocks: Sequence[Block]) -> Iterator[str]:
    yield f"{for_terminal(name)}: {len(blocks)} chunks"
    for block in blocks:
        facts = [block.role, for_terminal(block.title, 40), *_facts(block)]
        yield f"  [{', '.join(facts)}] {for_terminal(block.text, 100)}"


def _facts(block: Block) -> Iterator[str]:
    if block.start is not None and block.end is not None:
        yield f"characters {block.start}–{block.end}"
    if block.hops:
        yield f"{block.hops} away from its hit"
    if block.score is not None:
        yield f"score {number(block.score)}"
    for side, reason in (("before", block.stopped_previous), ("after", block.stopped_next)):
        if reason:
            yield f"expansion {side} it ended: {REASONS.get(reason, reason)}"


def map_html(systems: Systems) -> str:
    """The map as an HTML fragment: strips, then the text of each chunk; the page brings the style."""
    documents: dict[str, str] = {}
    for blocks in systems.values():
        for block in blocks:
            documents.setdefault(block.document, block.title)
    if not documents:
        return "<p>Nothing went to the model.</p>"
    parts = []
    for document, title in documents.items():
        own = {
            name: [block for block in blocks if block.document == document]
            for name, blocks in systems.items()
        }
        parts.append(f"<h4><bdi>{for_html(title)}</bdi></h4>")
        parts.append(_strips(own))
        parts.append(_texts(own))
    return "\n".join(parts)


def _strips(systems: Systems) -> str:
    """A picture with a strip for each system, all on one scale."""
    places = _places([block for blocks in systems.values() for block in blocks])
    rows = []
    for row, (name, blocks) in enumerate(systems.items()):
        top = row * (_HEIGHT + 6)
        label = for_html(name if len(name) <= 24 else name[:23] + "…")
        rows.append(f'<text class="label" x="{_LEFT - 8}" y="{top + 17}" text-anchor="end">{label}</text>')
        rows.append(
            f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH}" y1="{top + _HEIGHT}" y2="{top + _HEIGHT}"/>'
        )
        rows += [_box(block, *places[_key(block)], top) for block in blocks]
    height = len(systems) * (_HEIGHT + 6)
    summary = "; ".join(f"{name}: {_count(blocks)}" for name, blocks in systems.items())
    return (
        f'<svg class="strip" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{for_html(summary)}">{"".join(rows)}</svg>'
    )


def _count(blocks: Sequence[Block]) -> str:
    roles = [block.role for block in blocks]
    return ", ".join(f"{roles.count(role)} {role}" for role in dict.fromkeys(roles)) or "nothing"


def _box(block: Block, left: float, right: float, top: int) -> str:
    title = for_html("; ".join([block.role, *_facts(block)]))
    width = max(right - left - 1, 2)
    letter = f'<text class="letter" x="{left + width / 2:.1f}" y="{top + 18}">{block.role[0].upper()}</text>'
    return (
        f'<g><title>{title}</title><rect class="{block.role}" x="{left:.1f}" y="{top + 2}" '
        f'width="{width:.1f}" height="{_HEIGHT - 4}" rx="2"/>{letter if width >= 11 else ""}</g>'
    )


Key = tuple[str, int | None, int | None]


def _key(block: Block) -> Key:
    return block.node_id, block.start, block.end


def _places(blocks: Sequence[Block]) -> dict[Key, tuple[float, float]]:
    """Left and right end of each block: by characters, where known; else one after another, equally wide."""
    distinct = {_key(block): block for block in blocks}
    if not distinct:
        return {}
    if any(block.start is None or block.end is None for block in distinct.values()):
        width = (_WIDTH - _LEFT) / len(distinct)
        return {key: (_LEFT + n * width, _LEFT + (n + 1) * width) for n, key in enumerate(distinct)}
    spans = sorted((block.start or 0, block.end or 0) for block in distinct.values())
    return _to_scale(distinct, _covered(spans))


def _covered(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretches without a hole of more than a little white space between them."""
    runs: list[tuple[int, int]] = []
    for start, end in spans:
        if runs and start <= runs[-1][1] + 20:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
        else:
            runs.append((start, end))
    return runs


def _to_scale(blocks: Mapping[Key, Block], runs: Sequence[tuple[int, int]]) -> dict[Key, tuple[float, float]]:
    """Stretches to scale, holes between them cut to a fixed width."""
    gap = min(_GAP, (_WIDTH - _LEFT) / (2 * len(runs)))
    scale = (_WIDTH - _LEFT - gap * (len(runs) - 1)) / max(sum(end - start for start, end in runs), 1)
    places = {}
    for key, block in blocks.items():
        start, end = block.start or 0, block.end or 0
        left = float(_LEFT)
        for first, last in runs:
            if first <= start <= last:
                places[key] = (left + (start - first) * scale, left + (end - first) * scale)
                break
            left += (last - first) * scale + gap
    return places


def _texts(systems: Systems) -> str:
    """The text of each chunk once, with the systems that sent it."""
    sent: dict[Key, list[str]] = {}
    blocks: dict[Key, Block] = {}
    for name, own in systems.items():
        for block in own:
            facts = "; ".join([block.role, *_facts(block)])
            by = f'<b class="tag {block.role}">{for_html(name)}</b> {for_html(facts)}'
            sent.setdefault(_key(block), []).append(by)
            blocks.setdefault(_key(block), block)
    in_order = sorted(blocks, key=lambda key: (blocks[key].start is None, blocks[key].start or 0))
    items = [
        f"<li><p class=from>{'<br>'.join(sent[key])}</p>"
        f"<pre><bdi>{for_html(blocks[key].text)}</bdi></pre></li>"
        for key in in_order
    ]
    return (
        f"<details><summary>{len(items)} chunks, with their text</summary><ol>{''.join(items)}</ol></details>"
    )

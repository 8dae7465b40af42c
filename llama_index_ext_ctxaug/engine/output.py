"""How chunks go out: as separate nodes or as passages, within a number of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from llama_index.core.bridge.pydantic import BaseModel, Field
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode

from llama_index_ext_ctxaug.budget.costs import ChunkCosts
from llama_index_ext_ctxaug.budget.fit import BudgetFit, Tokenizer, final_text, fit, fit_by_priority
from llama_index_ext_ctxaug.budget.tokenizer import tokenizer_or_default
from llama_index_ext_ctxaug.docstores.batch_reader import ReadRequest
from llama_index_ext_ctxaug.expansion.expansion import Expansion
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.passages.joining import (
    HOLE_SEPARATOR,
    JoinedText,
    TextChunk,
    doubtful_frames,
    join_texts,
)
from llama_index_ext_ctxaug.passages.passage import Chunk, Passage
from llama_index_ext_ctxaug.passages.passage_node import Surroundings, compose, is_text
from llama_index_ext_ctxaug.passages.scores import PassageScore

_DRIFT = 2
"""Tokens by which a joint may change the count of what it joins."""


class OutputOptions(BaseModel):
    """The parameters of the output, the same for all augmenters."""

    output: Literal["nodes", "passages"] = Field(
        default="nodes",
        description='"nodes": hits and neighbors one by one; "passages": one node for each run of chunks.',
    )
    passage_scope: Literal["run", "document"] = Field(
        default="run",
        description='What one passage holds: a "run" of chunks that touch, or all runs of a "document".',
    )
    passage_score: PassageScore = Field(
        default="best", description="A passage's score: best or mean of its hits, or reciprocal_rank_sum."
    )
    hole_separator: str = Field(
        default=HOLE_SEPARATOR, description="Stands in a passage where text of the document is missing."
    )
    chunk_separator: str = Field(
        default="",
        description="Stands between chunks that share no text and whose offsets do not tell what is there.",
    )
    mark_hits: tuple[str, str] | None = Field(
        default=None, description="Marks around the text of hits in a passage; None for no marks."
    )
    read_source: bool = Field(
        default=True,
        description="Read the source document, if the docstore has it, for white space between chunks.",
    )
    max_passage_tokens: int | None = Field(
        default=None, gt=0, description="Most tokens of one passage; a longer run becomes several passages."
    )
    token_budget: int | None = Field(
        default=None, ge=0, description="Most tokens of the text that goes out; None for no limit."
    )
    tokenizer: Tokenizer | None = Field(
        default=None, exclude=True, description="Counts tokens: text to a list; None for LlamaIndex's."
    )


class _Run(NamedTuple):
    """Text chunks that become one node, and whether each follows the one before it directly."""

    chunks: list[Chunk]
    follows: list[bool]


@dataclass
class Writer:
    """Writes the chunks of one call.

    Attributes:
        options: the parameters.
        expansion: the nodes in hand and their links.
        emit: makes a node of the output from a single chunk.
    """

    options: OutputOptions
    expansion: Expansion
    emit: Callable[[Chunk], NodeWithScore]
    _texts: dict[str, TextChunk] = field(default_factory=dict)
    _joined: dict[tuple[tuple[str, bool], ...], JoinedText] = field(default_factory=dict)
    _tokenizer: Tokenizer | None = None

    def prepare(self) -> Flow[None]:
        """Bring the tokenizer, where tokens are to be counted."""
        options = self.options
        if options.token_budget is not None or options.max_passage_tokens is not None:
            self._tokenizer = yield from tokenizer_or_default(options.tokenizer)

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self._tokenizer(text)) if self._tokenizer else 0

    def write(
        self, passages: Sequence[Passage], write_run: Callable[[_Run], NodeWithScore] | None = None
    ) -> list[NodeWithScore]:
        """The output: nodes in reading order, or a node for each passage."""
        if self.options.output == "nodes":
            chunks = [chunk for passage in passages for chunk in passage.chunks]
            return [write_run(_Run([chunk], [False])) if write_run else self.emit(chunk) for chunk in chunks]
        write_run = write_run or self._write_run
        return [write_run(part) for run in self._runs(passages) for part in self._split(run)]

    def frames_to_read(self, passages: Sequence[Passage]) -> list[str]:
        """Ids of the texts that would tell what stands between chunks, as far as they are not in hand."""
        if self.options.output == "nodes" or not self.options.read_source:
            return []
        wanted: dict[str, None] = {}
        for run in self._runs(passages):
            if len(run.chunks) > 1:
                unread = [id_ for id_ in self._frames(run) if id_ not in wanted]
                if self.expansion.reader.lacks(ReadRequest(nodes=unread)):
                    doubtful = doubtful_frames(self._run_texts(run), unread, **self._joining(run))
                    wanted.update(dict.fromkeys(sorted(doubtful)))
        self._texts.clear()  # what is read now may tell where a frame stands
        return list(wanted)

    def _split(self, run: _Run) -> Iterator[_Run]:
        """Parts of a run that are each within `max_passage_tokens`; a single chunk may be over it."""
        limit = self.options.max_passage_tokens
        if limit is None:
            yield run
            return
        marks = self.options.mark_hits or ()
        joint = self.count("".join((self.options.hole_separator, self.options.chunk_separator, *marks)))
        part, most = _Run([], []), 0
        for chunk, follows in zip(run.chunks, run.follows, strict=True):
            longer = _Run([*part.chunks, chunk], [*part.follows, follows])
            alone = self.count(chunk.node.get_content(metadata_mode=MetadataMode.LLM)) + joint + _DRIFT
            most += (
                alone  # joining saves text, so only a part that comes near the limit needs the exact count
            )
            if part.chunks and most > limit and self.count(final_text([self._write_run(longer)])) > limit:
                yield part
                longer, most = _Run([chunk], [follows]), alone
            part = longer
        yield part

    def _write_run(self, run: _Run) -> NodeWithScore:
        if len(run.chunks) == 1:
            return self.emit(run.chunks[0])
        options = self.options
        return compose(
            run.chunks,
            self._join(run),
            self._around(run.chunks),
            score=options.passage_score,
            marks=options.mark_hits,
        )

    def _runs(self, passages: Sequence[Passage]) -> Iterator[_Run]:
        for group in self._groups(passages):
            run = _Run([], [])
            for passage in group:
                for place, chunk in enumerate(passage.chunks):
                    if is_text(chunk.node):
                        run.chunks.append(chunk)
                        run.follows.append(place > 0)
                        continue
                    if run.chunks:
                        yield run
                    yield _Run([chunk], [False])
                    run = _Run([], [])
            if run.chunks:
                yield run

    def _groups(self, passages: Sequence[Passage]) -> list[list[Passage]]:
        """The passages that become one, in reading order; groups by rank."""
        if self.options.passage_scope == "run":
            return [[passage] for passage in passages]
        groups: dict[Any, list[Passage]] = {}
        for number, passage in enumerate(passages):
            document = self.expansion.links.document(passage.chunks[0].node)
            groups.setdefault(number if document is None else document, []).append(passage)
        return [self._in_order(group) for group in groups.values()]

    def _in_order(self, group: Sequence[Passage]) -> list[Passage]:
        """The runs of one document in reading order, page by page; by rank where it cannot be told."""
        links, pages = self.expansion.links, self.expansion.links.pages
        sources: dict[str | None, list[Passage]] = {}
        for passage in group:
            sources.setdefault(links.source(passage.chunks[0].node), []).append(passage)
        for runs in sources.values():
            places = {id(run): self._place(run) for run in runs}
            if len({kind for kind, _ in places.values()}) == 1:
                runs.sort(key=lambda run: places[id(run)])
        in_order = list(sources.values())
        if pages is not None:
            in_order.sort(key=lambda runs: pages.page(runs[0].chunks[0].node))
        return [run for runs in in_order for run in runs]

    def _place(self, passage: Passage) -> tuple[str, int]:
        """Where a run begins in its document: by offset, else by the docstore's list, else unknown."""
        node = passage.chunks[0].node
        text = self._text_chunk(passage.chunks[0])
        if text.offsets_fit and text.start is not None and text.shift is not None:
            return ("offset", text.start + text.shift)
        links = self.expansion.links
        order = links.reader.documents.get(links.source(node) or "")
        place = order.places.get(node.id_) if order else None
        return ("unknown", 0) if place is None else ("list", place)

    def _join(self, run: _Run) -> JoinedText:
        key = tuple((chunk.node.id_, follows) for chunk, follows in zip(*run, strict=True))
        if key not in self._joined:
            self._joined[key] = join_texts(list(self._run_texts(run)), **self._joining(run))
        return self._joined[key]

    def _run_texts(self, run: _Run) -> Iterator[TextChunk]:
        for chunk, follows in zip(*run, strict=True):
            text = self._text_chunk(chunk)
            yield text if follows else _apart(text)

    def _joining(self, run: _Run) -> dict[str, Any]:
        """How to join a run: the separators, and the texts of frames that are in hand."""
        nodes = [(id_, self.expansion.reader.node(id_)) for id_ in self._frames(run)]
        return {
            "hole_separator": self.options.hole_separator,
            "chunk_separator": self.options.chunk_separator,
            "frames": {id_: node.get_content(metadata_mode=MetadataMode.NONE) for id_, node in nodes if node},
        }

    def _frames(self, run: _Run) -> list[str]:
        """Ids of the texts that the chunks' offsets count in: those of parents, else of documents."""
        known = map(self.expansion.links.relations, (chunk.node for chunk in run.chunks))
        return [id_ for id_ in dict.fromkeys(own.parent or own.source for own in known) if id_ is not None]

    def _shared(self, first: Chunk, second: Chunk) -> str:
        joined = self._join(_Run([first, second], [False, True]))
        one, two = joined.spans
        return joined.text[max(one.start, two.start) : min(one.end, two.end)]

    def _text_chunk(self, chunk: Chunk) -> TextChunk:
        node_id = chunk.node.id_
        if node_id not in self._texts:
            self._texts[node_id] = self._new_text_chunk(chunk)
        return self._texts[node_id]

    def _new_text_chunk(self, chunk: Chunk) -> TextChunk:
        links, node = self.expansion.links, chunk.node
        text = node.get_content(metadata_mode=MetadataMode.NONE)
        start, end = _offsets(node)
        copy = links.reader.copy(node.id_)
        if start is None and copy is not None and copy.get_content(metadata_mode=MetadataMode.NONE) == text:
            start, end = _offsets(copy)
        own = links.relations(node)
        if own.parent is None or own.parent == own.source:
            return TextChunk(text, start, end, frame=own.source, document=own.source)
        return TextChunk(
            text, start, end, frame=own.parent, shift=self._shift(own.parent), document=own.source
        )

    def _shift(self, parent_id: str) -> int | None:
        """Where a parent begins in the source document; None where that cannot be told without reading."""
        links, shift, seen = self.expansion.links, 0, set[str]()
        id_: str | None = parent_id
        while id_ is not None:
            parent = links.reader.node(id_)
            start = None if parent is None else _offsets(parent)[0]
            if parent is None or start is None or id_ in seen:
                return None
            seen.add(id_)
            shift += start
            id_ = links.parent(parent)
            if id_ == links.source(parent):
                break
        return shift

    def _around(self, chunks: Sequence[Chunk]) -> Surroundings:
        links = self.expansion.links
        inside = {chunk.node.id_ for chunk in chunks}
        before = links.beside_in_hand(chunks[0].node, "previous")
        after = links.beside_in_hand(chunks[-1].node, "next")
        return Surroundings(
            source_id=links.source(chunks[0].node),
            previous_id=None if before in inside else before,
            next_id=None if after in inside else after,
        )

    def fit(self, passages: Sequence[Passage]) -> BudgetFit | None:
        """What the budget holds of these passages; None where there is no budget."""
        budget = self.options.token_budget
        if budget is None:
            return None
        drafts: dict[Any, NodeWithScore] = {}

        def draft(run: _Run) -> NodeWithScore:
            key = tuple(chunk.node.id_ for chunk in run.chunks)
            if key not in drafts:
                drafts[key] = self._write_run(run)
            return drafts[key]

        prices = ChunkCosts(
            passages,
            budget,
            self.count,
            write=lambda kept: self.write(kept, draft),
            shared=self._shared if self.options.output == "passages" else None,
        )
        priority = self.expansion.priority
        if priority is not None:
            return fit_by_priority(passages, budget, priority, cost=prices.cost, measure=prices.measure)
        return fit(passages, budget, cost=prices.cost, measure=prices.measure)


def _apart(text: TextChunk) -> TextChunk:
    return text._replace(follows=False)


def _offsets(node: Any) -> tuple[int | None, int | None]:
    return (node.start_char_idx, node.end_char_idx) if isinstance(node, TextNode) else (None, None)

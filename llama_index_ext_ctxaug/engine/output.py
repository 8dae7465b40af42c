"""Write the chunks of one call: as separate nodes or as passages, within a number of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from llama_index.core.schema import MetadataMode, NodeWithScore

from llama_index_ext_ctxaug.budget.costs import ChunkCosts
from llama_index_ext_ctxaug.budget.fit import JOINT_TOKENS, NO_PARTS, BudgetFit, Parts, final_text, fit
from llama_index_ext_ctxaug.budget.priority import by_value, hits_first
from llama_index_ext_ctxaug.budget.token_counter import TokenCounter
from llama_index_ext_ctxaug.budget.tokenizer import tokenizer_or_default
from llama_index_ext_ctxaug.docstores.batch_reader import ReadRequest
from llama_index_ext_ctxaug.engine.chunk_texts import ChunkTexts
from llama_index_ext_ctxaug.engine.grouping import Run, runs_of
from llama_index_ext_ctxaug.engine.options import OutputOptions
from llama_index_ext_ctxaug.engine.rendering import Renderer
from llama_index_ext_ctxaug.expansion.expansion import Expansion
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.passages.passage import Chunk, Passage
from llama_index_ext_ctxaug.selection.relevance import query_terms
from llama_index_ext_ctxaug.selection.sentences import fit_sentences


@dataclass
class Writer:
    """Write the chunks of one call.

    Attributes:
        options: the parameters of the output.
        expansion: the loaded nodes and their links.
        emit: makes a node from a single chunk.
    """

    options: OutputOptions
    expansion: Expansion
    emit: Callable[[Chunk], NodeWithScore]
    _texts: ChunkTexts = field(init=False)
    _renderer: Renderer = field(init=False)
    _counter: TokenCounter | None = None
    _drafts: dict[tuple[str, ...], NodeWithScore] | None = None

    def __post_init__(self) -> None:
        self._texts = ChunkTexts(self.expansion)
        self._renderer = Renderer(self.options, self._texts, self.emit)

    def prepare(self) -> Flow[None]:
        """Load the tokenizer if tokens are to be counted."""
        options = self.options
        if options.token_budget is not None or options.max_passage_tokens is not None:
            self._counter = TokenCounter((yield from tokenizer_or_default(options.tokenizer)))

    def write(self, passages: Sequence[Passage]) -> list[NodeWithScore]:
        """Return the nodes of the output: one for each chunk in reading order, or one for each passage."""
        if self.options.output == "nodes":
            chunks = [chunk for passage in passages for chunk in passage.chunks]
            if self._drafts is None:
                return list(map(self.emit, chunks))
            return [self._node(Run([chunk], [False])) for chunk in chunks]
        return [self._node(part) for run in self._runs(passages) for part in self._split(run)]

    def place(self, passages: Sequence[Passage]) -> Flow[None]:
        """Find the chunks of passages in their documents' texts, which are read at once if unread."""
        if self.options.output == "passages":
            if self.options.read_source:
                wanted = self._texts.to_read(passages, tables=self.options.table_headers)
                yield from self.expansion.reader.fetch([ReadRequest(nodes=wanted)])
            self._texts.place(passages)
            if self.options.table_headers:
                yield from self._texts.read_headers(passages)

    def fit(
        self,
        passages: Sequence[Passage],
        query: str | None,
        output: Callable[[list[Passage]], list[NodeWithScore]],
    ) -> tuple[BudgetFit, Parts] | None:
        """Return what the budget holds of these passages; None where there is no budget.

        Args:
            passages: all candidates.
            query: the query, whose words decide between the sentences of a chunk that is cut.
            output: makes the output of passages, by `write`.
        """
        budget = self.options.token_budget
        if budget is None or self._counter is None:
            return None
        self._drafts = {}
        joined = self._joined if self.options.output == "passages" else None
        costs = ChunkCosts(passages, self._counter, output, joined)
        chunks = [chunk for passage in passages for chunk in passage.chunks]
        values = self.expansion.priority
        priority = hits_first(passages) if values is None else by_value(chunks, values)
        fitted, parts = fit(chunks, budget, priority, costs), NO_PARTS
        if self.options.budget_unit == "sentence":
            fitted, parts = fit_sentences(fitted, budget, costs, query_terms(query or ""))
        self._drafts = None  # what is cut is noted on the nodes that are left
        return fitted, parts

    def _node(self, run: Run) -> NodeWithScore:
        if self._drafts is None:
            return self._renderer.node(run)
        key = tuple(chunk.node.id_ for chunk in run.chunks)
        if key not in self._drafts:
            self._drafts[key] = self._renderer.draft(run)
        return self._drafts[key]

    def _joined(self, first: Chunk, second: Chunk) -> str:
        return self._renderer.join(Run([first, second], [False, True])).text

    def _runs(self, passages: Sequence[Passage]) -> Iterator[Run]:
        return runs_of(passages, self.options.passage_scope, self._texts)

    def _split(self, run: Run) -> Iterator[Run]:
        """Yield parts of a run within `max_passage_tokens`; a single chunk may exceed it."""
        limit, counter = self.options.max_passage_tokens, self._counter
        if limit is None or counter is None:
            yield run
            return
        marks = self.options.mark_hits or ()
        joint = counter.estimate(
            "".join((self.options.hole_separator, self.options.chunk_separator or "", *marks))
        )
        part, most = Run([], []), 0
        for chunk, follows in zip(run.chunks, run.follows, strict=True):
            longer = Run([*part.chunks, chunk], [*part.follows, follows])
            content = chunk.node.get_content(metadata_mode=MetadataMode.LLM)
            alone = counter.estimate(content) + joint + JOINT_TOKENS
            # Joining saves text, so only a part near the limit needs the exact count.
            most += alone
            if (
                part.chunks
                and most > limit
                and counter.count(final_text([self._renderer.draft(longer)])) > limit
            ):
                yield part
                longer, most = Run([chunk], [follows]), alone
            part = longer
        yield part

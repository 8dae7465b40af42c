"""Tools with which an agent searches documents and reads on around what it found."""

from typing import Any, Literal

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.indices.base import BaseIndex
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.tools import FunctionTool, ToolMetadata
from llama_index.core.tools.tool_spec.base import SPEC_FUNCTION_TYPE, BaseToolSpec
from llama_index.core.tools.utils import create_schema_from_function
from typing_extensions import Self

from llama_index_ext_ctxaug.budget.fit import Tokenizer
from llama_index_ext_ctxaug.budget.tokenizer import tokenizer_or_default
from llama_index_ext_ctxaug.docstores.index_docstore import docstore_of_index
from llama_index_ext_ctxaug.docstores.store_call import Call
from llama_index_ext_ctxaug.errors import ConfigurationError
from llama_index_ext_ctxaug.flow import Flow, arun, ask, run
from llama_index_ext_ctxaug.passages.span import Span
from llama_index_ext_ctxaug.structure.headings import Sections
from llama_index_ext_ctxaug.tools.document_opener import DocumentOpener
from llama_index_ext_ctxaug.tools.excerpts import end_within, start_within
from llama_index_ext_ctxaug.tools.failures import guarded
from llama_index_ext_ctxaug.tools.handles import (
    Handles,
    PassageRange,
    parse_number,
    parse_range,
    whole_number,
)
from llama_index_ext_ctxaug.tools.open_document import OpenDocument
from llama_index_ext_ctxaug.tools.reading import (
    OutlineEntry,
    Passage,
    Reading,
    outline_within,
    shortened,
)
from llama_index_ext_ctxaug.windows.sliding import CountTokens

MAX_CHUNKS = 64
"""Maximum chunks that one call reads on; an answer has rarely room for as many."""

MAX_DOCUMENT = 5000
"""Maximum chunks before and after a passage that an outline or a section may take."""

MIN_TOKENS = 32
"""Minimum of `max_tokens` and `max_handles`: with less, an answer has no room for a sentence."""

_NAMED_HANDLES = 20

Direction = Literal["before", "after"]
Handle = str | int
"""The name of a passage: "3", 3, "[3]", "passage 3", or the id of a node."""

_DESCRIPTIONS = {
    "search": "Search the documents for passages. Each has a handle to read on from.",
    "read_before": "Read the text before a passage.",
    "read_after": "Read the text after a passage. Use it where a passage breaks off or its list, clause or "
    "table goes on.",
    "read_section": "Read the whole section that a passage is in.",
    "outline": "List the headings of a passage's document, each with a handle for read_after.",
}


class ReadAroundToolSpec(BaseToolSpec):
    """Tools for an agent that reads on by itself: search, read before and after, section, outline.

    An answer is a `Reading`: its text is what the model sees, its nodes have provenance. Reading on starts
    where a passage ends, to the character: answers put together are the text of the document, each
    character once. A request over `max_tokens` gives its first part, cut after a sentence.

    **Requires**: a docstore that holds the chunks (see `ContextAugmenter`).

    **On failure**: mistakes of a model (an unknown handle, no query, zero chunks) are answered in a sentence.
    A failure of the docstore or the retriever raises `ReadingError`, which agents report as a tool error.

    Args:
        docstore: any document store that holds the chunks.
        retriever: what `search` asks; without one there is no `search`.
        max_tokens: maximum tokens of text in one answer.
        tokenizer: counts tokens; None for LlamaIndex's.
        sections: finds headings.
        handles: "numbers" for small numbers that this object remembers; "ids" for handles made of node ids,
            which any process understands. Node ids are understood in both cases.
        max_handles: maximum passages to remember; the oldest is forgotten first.
        **parameters: the parameters of `ContextAugmenter` that say how neighbors are found and read:
            `neighbor_filters`, `document_key`, `page_key`, `repair_links`, `timeout` and so on.

    Raises:
        ConfigurationError: a limit is not positive.

    Example:
        ```python
        from llama_index.core.agent.workflow import FunctionAgent
        from llama_index_ext_ctxaug import ReadAroundToolSpec

        tools = ReadAroundToolSpec.from_index(index).to_tool_list()
        agent = FunctionAgent(tools=tools, llm=llm)
        ```
    """

    def __init__(
        self,
        docstore: BaseDocumentStore,
        retriever: BaseRetriever | None = None,
        *,
        max_tokens: int = 800,
        tokenizer: Tokenizer | None = None,
        sections: Sections | None = None,
        handles: Literal["numbers", "ids"] = "numbers",
        max_handles: int = 1000,
        **parameters: Any,
    ) -> None:
        for name, value in (("max_tokens", max_tokens), ("max_handles", max_handles)):
            if value < MIN_TOKENS:
                raise ConfigurationError(
                    f"{type(self).__name__}: {name} must be at least {MIN_TOKENS}, got {value!r}"
                )
        self._opener = DocumentOpener(docstore=docstore, output="passages", **parameters)
        self._retriever = retriever
        self._max_tokens = max_tokens
        self._tokenizer = tokenizer
        self._sections = sections or Sections()
        self._names_ids = handles == "ids"
        self._handles = Handles(max_handles)
        names = [*(["search"] if retriever else []), "read_before", "read_after", "read_section", "outline"]
        self._names = tuple(names)
        self.spec_functions = [(name, f"a{name}") for name in names]

    @classmethod
    def from_index(cls, index: BaseIndex[Any], **parameters: Any) -> Self:
        """Create tools over an index: its retriever searches, its docstore or vector store is read.

        Args:
            index: the index.
            **parameters: the parameters of this class except `docstore`; `retriever` replaces the index's.

        Raises:
            ConfigurationError: neither store of the index can be read.
        """
        retriever = parameters.pop("retriever", None) or index.as_retriever()
        return cls(docstore_of_index(index), retriever, **parameters)

    def search(self, query: str) -> Reading:
        """Search for passages; hits that touch are one passage.

        Args:
            query: what to look for.
        """
        return run(guarded(self._search(query)))

    async def asearch(self, query: str) -> Reading:
        """Search for passages, async."""
        return await arun(guarded(self._search(query)))

    def read_before(self, passage: Handle, chunks: int = 2) -> Reading:
        """Read the text before a passage.

        Args:
            passage: the handle of a passage.
            chunks: number of chunks to read.
        """
        return run(guarded(self._read_on(passage, chunks, "before")))

    async def aread_before(self, passage: Handle, chunks: int = 2) -> Reading:
        """Read the text before a passage, async."""
        return await arun(guarded(self._read_on(passage, chunks, "before")))

    def read_after(self, passage: Handle, chunks: int = 2) -> Reading:
        """Read the text after a passage.

        Args:
            passage: the handle of a passage.
            chunks: number of chunks to read.
        """
        return run(guarded(self._read_on(passage, chunks, "after")))

    async def aread_after(self, passage: Handle, chunks: int = 2) -> Reading:
        """Read the text after a passage, async."""
        return await arun(guarded(self._read_on(passage, chunks, "after")))

    def read_section(self, passage: Handle) -> Reading:
        """Read the section that a passage starts in, from its heading.

        Args:
            passage: the handle of a passage.
        """
        return run(guarded(self._read_section(passage)))

    async def aread_section(self, passage: Handle) -> Reading:
        """Read the section that a passage starts in, async."""
        return await arun(guarded(self._read_section(passage)))

    def outline(self, passage: Handle) -> Reading:
        """List the headings of the document that a passage is in, each with a handle to read from.

        Args:
            passage: the handle of a passage.
        """
        return run(guarded(self._outline(passage)))

    async def aoutline(self, passage: Handle) -> Reading:
        """List the headings of the document that a passage is in, async."""
        return await arun(guarded(self._outline(passage)))

    def to_tool_list(
        self,
        spec_functions: list[SPEC_FUNCTION_TYPE] | None = None,
        func_to_metadata_mapping: dict[str, ToolMetadata] | None = None,
    ) -> list[FunctionTool]:
        """Return the tools, sync and async in one, with descriptions written for models."""
        metadata = {name: self._metadata(name) for name in self._names}
        return super().to_tool_list(spec_functions, {**metadata, **(func_to_metadata_mapping or {})})

    def _metadata(self, name: str) -> ToolMetadata:
        schema = create_schema_from_function(name, getattr(self, name))
        return ToolMetadata(description=_DESCRIPTIONS[name], name=name, fn_schema=schema)

    def _search(self, query: str) -> Flow[Reading]:
        if self._retriever is None:
            raise ConfigurationError(f"{type(self).__name__}: search needs retriever=..., which is None")
        if not isinstance(query, str) or not query.strip():
            return Reading(message="search needs a query: a few words to look for.")
        retriever = self._retriever
        hits = yield from ask(Call(lambda: retriever.retrieve(query), lambda: retriever.aretrieve(query)))
        count = yield from self._counter()
        found = yield from self._opener.open_hits(hits, self._sections)
        shown: list[Passage] = []
        more: list[str] = []
        left = self._max_tokens
        for opened in found:
            end = start_within(opened.text, left, count) if opened.text else 0
            if shown and end < len(opened.text):
                more.append(self._name(opened.range(Span(0, 0))))
                continue
            left -= count(opened.text[:end])
            shown.append(self._passage(opened, Span(0, end), count, "before", "after"))
        if not shown:
            return Reading(message="Nothing was found. Try other words.")
        message = f"More was found: read_after {', '.join(more)} shows it." if more else ""
        return Reading(tuple(shown), message=message)

    def _read_on(self, passage: Handle, chunks: int, direction: Direction) -> Flow[Reading]:
        number = whole_number(chunks)
        if number is None or number < 1:
            return Reading(message=f"chunks must be a whole number from 1 to {MAX_CHUNKS}.")
        number, after = min(number, MAX_CHUNKS), direction == "after"
        opened = yield from self._open(
            passage, "last" if after else "first", before=0 if after else number, after=number if after else 0
        )
        if opened is None:
            return self._unknown(passage)
        count = yield from self._counter()
        span = (
            Span(opened.position, opened.end_of(number))
            if after
            else Span(opened.start_of(number), opened.position)
        )
        if span.start == span.end:
            return Reading(message=opened.edge_message(direction))
        text = opened.text[span.start : span.end]
        if after:
            span = Span(span.start, span.start + start_within(text, self._max_tokens, count))
        else:
            span = Span(span.start + end_within(text, self._max_tokens, count), span.end)
        return Reading((self._passage(opened, opened.snapped(span), count, direction),))

    def _read_section(self, passage: Handle) -> Flow[Reading]:
        opened = yield from self._open(passage, "first", before=MAX_DOCUMENT, after=MAX_DOCUMENT)
        if opened is None:
            return self._unknown(passage)
        count = yield from self._counter()
        section = opened.section(opened.first_letter())
        text = opened.text[section.start : section.end]
        end = section.start + start_within(text, self._max_tokens, count) if text else section.end
        span = opened.snapped(Span(section.start, end))
        return Reading((self._passage(opened, span, count, "after"),))

    def _outline(self, passage: Handle) -> Flow[Reading]:
        opened = yield from self._open(passage, "first", before=MAX_DOCUMENT, after=MAX_DOCUMENT)
        if opened is None:
            return self._unknown(passage)
        headings = opened.headings()
        if not headings:
            return Reading(message="This document has no headings. Use read_before and read_after.")
        count = yield from self._counter()
        ends = [*(heading.start for heading in headings[1:]), len(opened.text)]
        entries = [
            OutlineEntry(
                self._name(opened.range(Span(heading.start, heading.start))),
                heading.title,
                heading.level,
                count(opened.text[heading.start : end]),
            )
            for heading, end in zip(headings, ends, strict=True)
        ]
        return outline_within(entries, self._max_tokens, count)

    def _open(
        self, passage: Handle, edge: Literal["first", "last"], *, before: int, after: int
    ) -> Flow[OpenDocument | None]:
        for range_ in self._ranges(str(passage)):
            place = range_.first if edge == "first" else range_.last
            opened = yield from self._opener.open(
                place, range_.source_id, self._sections, before=before, after=after
            )
            if opened is not None:
                return opened
        return None

    def _ranges(self, name: str) -> list[PassageRange]:
        """Return what a handle may mean: a number never means a node id, which could be another text."""
        number = None if self._names_ids else parse_number(name)
        if number is not None:
            known = self._handles.range(number)
            return [known] if known else []
        id_ = name.strip()
        parsed = parse_range(id_)
        return [PassageRange.of_chunks(id_, id_), *([parsed] if parsed else [])]

    def _unknown(self, passage: Handle) -> Reading:
        name = shortened(str(passage))
        if self._names_ids:
            return Reading(
                message=f'There is no passage "{name}". Use the handle of a passage that was shown.'
            )
        known = ", ".join(map(str, self._handles.latest(_NAMED_HANDLES)))
        hint = f"Handles that can be used: {known}." if known else "Search first."
        return Reading(message=f'There is no passage "{name}". {hint}')

    def _passage(self, opened: OpenDocument, span: Span, count: CountTokens, *sides: Direction) -> Passage:
        return Passage(
            handle=self._name(opened.range(span)),
            node=opened.excerpt(span),
            heading=opened.heading_path(span.start),
            before=opened.rest_before(span.start, count) if "before" in sides else None,
            after=opened.rest_after(span.end, count) if "after" in sides else None,
        )

    def _name(self, range_: PassageRange) -> str:
        return range_.to_text() if self._names_ids else str(self._handles.number(range_))

    def _counter(self) -> Flow[CountTokens]:
        tokenizer = yield from tokenizer_or_default(self._tokenizer)
        return lambda text: len(tokenizer(text))

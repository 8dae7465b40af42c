"""Nodes cut again into overlapping windows."""

from __future__ import annotations

from llama_index.core.bridge.pydantic import BaseModel, Field, model_validator
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, TextNode
from typing_extensions import Self

from llama_index_ext_ctxaug.budget.fit import Tokenizer
from llama_index_ext_ctxaug.budget.tokenizer import tokenizer_or_default
from llama_index_ext_ctxaug.events import ContextAugmentationEndEvent, ContextAugmentationStartEvent
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.passages.passage_node import is_text
from llama_index_ext_ctxaug.postprocessors.base import FlowPostprocessor, distinct_nodes
from llama_index_ext_ctxaug.windows.segmentation import SentenceSplitter
from llama_index_ext_ctxaug.windows.slices import cut_node, whole_provenance
from llama_index_ext_ctxaug.windows.sliding import check_window, sliding_windows

dispatcher = get_dispatcher(__name__)


class WindowOptions(BaseModel):
    """The parameters of sliding windows."""

    window_tokens: int = Field(default=512, ge=1, description="Most tokens of a window.")
    stride_tokens: int = Field(
        default=128,
        description="Tokens from the start of one window to the start of the next, at most window_tokens.",
    )
    sentence_splitter: SentenceSplitter | None = Field(
        default=None,
        exclude=True,
        description="Cuts a text into its sentences; None for a rule that reads the marks of many scripts.",
    )
    tokenizer: Tokenizer | None = Field(
        default=None, exclude=True, description="Counts tokens: text to a list; None for LlamaIndex's."
    )

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        check_window(self.window_tokens, self.stride_tokens)
        return self


class SlidingWindowPostprocessor(FlowPostprocessor, WindowOptions):
    """Cuts each node again into overlapping windows of whole sentences.

    Made to stand between an augmenter and a reranker: windows have one size, and none is longer than the
    reranker reads. Only text is counted and cut; metadata goes along, and never makes a window shorter.

    **Requires**: nothing; no docstore and no query.

    **Guarantees**: each window is an exact slice of its node, in order, at most `window_tokens` long, and
    ends at least one sentence (word, character) later than the one before; together they hold all of it.
    A node that fits into one window goes out as the very object that came in, and so does one that is not
    text. Ids are derived from source and place, offsets are true where the node's were, and provenance
    tells which characters are which node's. A window keeps its node's score. Windows of one document with
    equal text go out once.

    **On failure**: a stride below 1 or above the window is refused at construction.

    Example:
        ```python
        from llama_index_ext_ctxaug import SectionPostprocessor, SlidingWindowPostprocessor

        engine = index.as_query_engine(
            node_postprocessors=[
                SectionPostprocessor(docstore=index.docstore, output="passages"),
                SlidingWindowPostprocessor(window_tokens=512, stride_tokens=128),
            ]
        )
        ```
    """

    def _flow(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> Flow[list[NodeWithScore]]:
        return (yield from cut_into_windows(self, nodes, query, self.class_name()))


def cut_into_windows(
    options: WindowOptions, nodes: list[NodeWithScore], query: QueryBundle | None, name: str
) -> Flow[list[NodeWithScore]]:
    """The windows of nodes.

    Args:
        options: size, stride and splitter.
        nodes: any nodes, each of them once.
        query: the question, for the event.
        name: the postprocessor that events name.

    Returns:
        The windows, those of a node in order, in the place of the node.
    """
    whole = distinct_nodes(nodes)
    if not whole:
        return []
    dispatcher.event(
        ContextAugmentationStartEvent(
            augmenter=name, num_hits=len(whole), query_str=query.query_str if query else None
        )
    )
    tokenizer = yield from tokenizer_or_default(options.tokenizer)
    seen: set[tuple[str | None, str]] = set()
    result: list[NodeWithScore] = []
    for node in whole:
        result += _windows_of(options, node, tokenizer, seen)
    came = {id(node) for node in whole}
    dispatcher.event(
        ContextAugmentationEndEvent(
            augmenter=name,
            num_hits=len(whole),
            num_nodes=len(result),
            added_node_ids=[window.node.node_id for window in result if id(window) not in came],
            reads=0,
            round_trips=0,
        )
    )
    return result


def _windows_of(
    options: WindowOptions, whole: NodeWithScore, tokenizer: Tokenizer, seen: set[tuple[str | None, str]]
) -> list[NodeWithScore]:
    node = whole.node
    if not is_text(node) or not isinstance(node, TextNode):
        return [whole]
    spans = sliding_windows(
        node.text,
        window_tokens=options.window_tokens,
        stride_tokens=options.stride_tokens,
        count_tokens=lambda text: len(tokenizer(text)),
        split_sentences=options.sentence_splitter,
    )
    if len(spans) < 2:
        return [whole]
    source = node.relationships.get(NodeRelationship.SOURCE)
    document = getattr(source, "node_id", None)
    provenance = whole_provenance(node)
    windows: list[NodeWithScore] = []
    for span in spans:
        key = (document, node.text[span.start : span.end])
        if key not in seen:
            seen.add(key)
            windows.append(
                NodeWithScore(node=cut_node(node, provenance, span.start, span.end), score=whole.score)
            )
    return windows

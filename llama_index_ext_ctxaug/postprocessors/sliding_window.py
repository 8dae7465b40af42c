"""Cut nodes into overlapping windows."""

from __future__ import annotations

from llama_index.core.bridge.pydantic import Field, model_validator
from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle
from typing_extensions import Self

from llama_index_ext_ctxaug.budget.fit import Tokenizer
from llama_index_ext_ctxaug.budget.tokenizer import tokenizer_or_default
from llama_index_ext_ctxaug.engine.flow_postprocessor import FlowPostprocessor
from llama_index_ext_ctxaug.engine.hits import distinct_nodes
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.passages.passage_node import as_text_node, is_text
from llama_index_ext_ctxaug.passages.provenance import whole_provenance
from llama_index_ext_ctxaug.windows.segmentation import SentenceSplitter
from llama_index_ext_ctxaug.windows.slices import cut_node, place_of
from llama_index_ext_ctxaug.windows.sliding import check_window, sliding_windows


class SlidingWindowPostprocessor(FlowPostprocessor):
    """Cut each node into overlapping windows of whole sentences.

    Use it between an augmenter and a reranker: windows have one size, and none is longer than what the
    reranker reads. Only text is counted and cut; metadata is copied and does not shorten a window.

    **Requires**: nothing; no docstore and no query.

    **Guarantees**: each window is an exact slice of its node, at most `window_tokens` long, and ends at least
    one sentence (word, character) after the one before; windows are in order and cover the node. A node that
    fits into one window, or is not text, is returned as the same object. Ids are derived from source and
    place, offsets are correct if the node's are, and provenance names the node of each character. A window
    has its node's score. Of windows of one document with equal text the first is returned.

    **On failure**: a stride below 1 or above the window raises at construction.

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

    window_tokens: int = Field(default=512, ge=1, description="Maximum tokens of a window.")
    stride_tokens: int = Field(
        default=128,
        description="Tokens from the start of one window to the start of the next; at most window_tokens.",
    )
    sentence_splitter: SentenceSplitter | None = Field(
        default=None,
        exclude=True,
        description="Splits a text into sentences; None for a rule that reads the marks of many scripts.",
    )
    tokenizer: Tokenizer | None = Field(
        default=None, exclude=True, description="Splits a text into tokens; None for LlamaIndex's tokenizer."
    )

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        check_window(self.window_tokens, self.stride_tokens)
        return self

    def _flow(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> Flow[list[NodeWithScore]]:
        tokenizer = yield from tokenizer_or_default(self.tokenizer)
        seen: set[tuple[str, str]] = set()
        whole = distinct_nodes(nodes)
        return [window for node in whole for window in self._windows(node, tokenizer, seen)]

    def _windows(
        self, whole: NodeWithScore, tokenizer: Tokenizer, seen: set[tuple[str, str]]
    ) -> list[NodeWithScore]:
        """Return the windows of a node with text that no window of its document has had yet."""
        if not is_text(whole.node):
            return [whole]
        node = as_text_node(whole.node)
        spans = sliding_windows(
            node.text,
            window_tokens=self.window_tokens,
            stride_tokens=self.stride_tokens,
            count_tokens=lambda text: len(tokenizer(text)),
            split_sentences=self.sentence_splitter,
        )
        if len(spans) < 2:
            return [whole]
        source = node.relationships.get(NodeRelationship.SOURCE)
        document = getattr(source, "node_id", None) or place_of(node).whole_id
        provenance = whole_provenance(node)
        windows: list[NodeWithScore] = []
        for span in spans:
            key = (document, node.text[span.start : span.end])
            if key not in seen:
                seen.add(key)
                cut = cut_node(node, provenance, span.start, span.end)
                windows.append(NodeWithScore(node=cut, score=whole.score))
        return windows

"""Sentences of many scripts and their windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import regex
from llama_index.core.bridge.pydantic import Field
from llama_index.core.node_parser import SentenceWindowNodeParser
from llama_index.core.node_parser.node_utils import build_nodes_from_splits
from llama_index.core.schema import BaseNode, Document
from llama_index.core.utils import get_tqdm_iterable

from llama_index_ext_ctxaug.ingestion.window_extractor import WindowExtractor
from llama_index_ext_ctxaug.passages.offsets import text_of
from llama_index_ext_ctxaug.windows.segmentation import CLOSERS, GREEK_QUESTION_MARK, TIBETAN_MARKS

# Sentence ends that sentencex does not know: Khmer, Tibetan, and Greek in texts of another language.
_MORE_ENDS = regex.compile(
    rf"(?:[\u17d4\u17d5]+|[{TIBETAN_MARKS}](?:\s*[{TIBETAN_MARKS}])*)[{CLOSERS}]*\s*"
    rf"|{GREEK_QUESTION_MARK}[{CLOSERS}]*\s+(?=[^\s\p{{Ll}}])"
)
_INSIDE_NUMBER = regex.compile(r"(?<=\p{Nd}[.．﹒])(?=\p{Nd})")


def _segment(language: str, text: str) -> Iterable[str]:
    try:
        from sentencex import segment
    except ImportError as error:
        raise ImportError(
            "SentencexSplitter needs the package sentencex: "
            'pip install "llama-index-ext-ctxaug[sentences]"; or pass any function that returns the '
            "sentences of a text"
        ) from error
    segments: Iterable[str] = segment(language, text)
    return segments


@dataclass(frozen=True)
class SentencexSplitter:
    """Split text into sentences: Latin, Chinese, Japanese, Arabic, Burmese, Khmer, Tibetan and more scripts.

    Use it wherever LlamaIndex takes a function that returns the sentences of a text, for instance
    `SentenceWindowNodeParser(sentence_splitter=...)`. Needs the extra `sentences`
    (https://github.com/wikimedia/sentencex).

    Attributes:
        language: ISO code of the language whose abbreviations do not end a sentence; punctuation such as
            。！？ । ؟ ends one in any language, and numbers such as ３．１４ stay whole.

    Raises:
        ImportError: sentencex is not installed.
    """

    language: str = "en"

    def __post_init__(self) -> None:
        _segment(self.language, "")

    def __call__(self, text: str) -> list[str]:
        """Return the sentences of a text, each with the white space after it: joined they are the text.

        Args:
            text: any text.

        Returns:
            The sentences; none for a blank text.
        """
        ends = set(accumulate(map(len, _segment(self.language, text))))
        ends |= {match.end() for match in _MORE_ENDS.finditer(text)}
        ends -= {match.start() for match in _INSIDE_NUMBER.finditer(text)}
        sentences: list[str] = []
        opening = ""
        for start, end in pairwise(sorted({0, *ends})):
            part = text[start:end]
            if part.strip():
                sentences.append(opening + part)
                opening = ""
            elif sentences:
                sentences[-1] += part
            else:
                opening += part
        return sentences


class SentenceWindowParser(SentenceWindowNodeParser):
    """Parse text of many scripts into sentences with windows that are slices of the document.

    Sentences come from `SentencexSplitter` or any `sentence_splitter`. A window is the document's own text,
    without spaces added between sentences, and is not stored again in the relationships of neighbors.
    Parameters and metadata keys are those of LlamaIndex's `SentenceWindowNodeParser`.

    **Requires**: the extra `sentences`, unless a `sentence_splitter` is given.

    Example:
        ```python
        from llama_index_ext_ctxaug import SentenceWindowParser

        parser = SentenceWindowParser(window_size=1)
        nodes = parser.get_nodes_from_documents([Document(text="今天天气很好。我们去公园散步。你呢？")])
        assert nodes[0].metadata["window"] == "今天天气很好。我们去公园散步。"
        ```
    """

    sentence_splitter: Callable[[str], list[str]] = Field(
        default_factory=SentencexSplitter, description="Splits a text into sentences.", exclude=True
    )

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which the parser is serialized."""
        return "SentenceWindowParser"

    def _parse_nodes(
        self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any
    ) -> list[BaseNode]:
        parsed: list[BaseNode] = []
        for node in get_tqdm_iterable(nodes, show_progress, "Parsing nodes"):
            sentences = self.sentence_splitter(text_of(node))
            parsed += build_nodes_from_splits(sentences, node, id_func=self.id_func)
        return parsed

    def _postprocess_parsed_nodes(
        self, nodes: list[BaseNode], parent_doc_map: dict[str, Document]
    ) -> list[BaseNode]:
        linked = super()._postprocess_parsed_nodes(nodes, parent_doc_map)
        extractor = WindowExtractor(
            window_size=self.window_size, window_metadata_key=self.window_metadata_key
        )
        texts = {id_: text_of(document) for id_, document in parent_doc_map.items()}
        windows = extractor.extract(linked, texts)
        key = self.original_text_metadata_key
        for node in windows:  # a window may replace the text
            node.metadata[key] = text_of(node)
            node.excluded_embed_metadata_keys.append(key)
            node.excluded_llm_metadata_keys.append(key)
        return windows

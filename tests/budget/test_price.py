"""The price of a budget: how much text is tokenized."""

from __future__ import annotations

from pydoc_data.topics import topics

import pytest
from llama_index.core import Document
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import MetadataMode
from llama_index.core.utils import get_tokenizer

from llama_index_ext_ctxaug import PrevNextNodePostprocessor
from llama_index_ext_ctxaug.testing import docstore_of, hits


@pytest.mark.parametrize("part", [0.5, 0.97, 1.0, 1.2])
@pytest.mark.parametrize("output", ["nodes", "passages"])
@pytest.mark.parametrize(("unit", "most"), [("chunk", 2), ("sentence", 3)])
def test_the_price_of_a_budget(output: str, part: float, unit: str, most: int) -> None:
    """40 hits with two neighbors a side tokenize at most this multiple of the candidates' text."""
    text = "\n\n".join(topics.values())[:150_000]
    splitter = SentenceSplitter(chunk_size=128, chunk_overlap=25)
    nodes = splitter.get_nodes_from_documents([Document(text=text, id_="d")])
    found = hits(nodes, range(2, len(nodes) - 2, len(nodes) // 40))
    parameters = {"docstore": docstore_of(nodes), "num_nodes": 2, "mode": "both"}
    candidates = PrevNextNodePostprocessor(**parameters).postprocess_nodes(found)
    contents = [hit.node.get_content(metadata_mode=MetadataMode.LLM) for hit in candidates]
    tokenizer, counted = get_tokenizer(), 0

    def counting(text: str) -> list[int]:
        nonlocal counted
        counted += len(text)
        return tokenizer(text)

    budget = round(part * len(tokenizer("\n\n".join(contents))))
    PrevNextNodePostprocessor(
        **parameters, output=output, token_budget=budget, budget_unit=unit, tokenizer=counting
    ).postprocess_nodes(found)
    assert counted <= most * sum(map(len, contents))

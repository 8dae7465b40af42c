"""Token budgets, as a parameter of augmenters and as a postprocessor."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from helpers import Postprocess
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core import Document, Settings
from llama_index.core.schema import MetadataMode, NodeWithScore
from text_strategies import Parsed, parsed_documents

from llama_index_ext_ctxaug import (
    AutoMergingPostprocessor,
    PrevNextNodePostprocessor,
    TokenBudgetPostprocessor,
    read_provenance,
)
from llama_index_ext_ctxaug.testing import docstore_of, hits, linked_document


def words(text: str) -> list[str]:
    """Split a text into words."""
    return text.split()


def final_text(result: list[NodeWithScore]) -> str:
    """Return the text that a response synthesizer would show to the model."""
    return "\n\n".join(hit.node.get_content(metadata_mode=MetadataMode.LLM) for hit in result)


@pytest.mark.parametrize("output", ["nodes", "passages"])
def test_hits_and_their_nearest_neighbors_fill_the_budget(postprocess: Postprocess, output: str, ends: list):
    """With eight words per chunk and a budget of 30, three chunks around the hit fit; the event says so."""
    nodes = linked_document([f"one two three four five six seven n{n} " for n in range(9)], offsets=True)
    augmenter = PrevNextNodePostprocessor(
        docstore=docstore_of(nodes), num_nodes=3, mode="both", output=output, token_budget=30, tokenizer=words
    )
    result = postprocess(augmenter, hits(nodes, [4]))
    assert [word for word in words(final_text(result)) if word[0] == "n"] == ["n3", "n4", "n5"]
    (event,) = ends
    assert event.tokens == 24
    assert event.stop_reasons["budget"] == 2
    provenance = read_provenance(result[0].node)
    assert provenance.stopped_previous == "budget"


def test_metadata_and_separators_count(postprocess: Postprocess):
    """Visible text counts: metadata that is not excluded, and the lines between nodes."""
    nodes = linked_document(["abc", "def", "ghi"], metadata={"k": "v"})
    content = final_text(hits(nodes, [0, 1, 2]))
    parameters = {"docstore": docstore_of(nodes), "tokenizer": list, "num_nodes": 1, "mode": "both"}
    exact = PrevNextNodePostprocessor(token_budget=len(content), **parameters)
    assert len(postprocess(exact, hits(nodes, [1]))) == 3
    short = PrevNextNodePostprocessor(token_budget=len(content) - 1, **parameters)
    assert len(postprocess(short, hits(nodes, [1]))) == 2


def test_a_separator_that_makes_the_text_shorter_is_counted_as_it_is(postprocess: Postprocess):
    """If a tokenizer merges a text's end and the lines after it into one token, what fits is returned."""

    def tokens(text: str) -> list[str]:
        return re.findall(r"\w+|\.\n{3}|\n\n|\W", text)

    nodes = linked_document(["one.\n", "two"])
    for node in nodes:
        node.text_template = "{content}"
    assert (len(tokens("one.\n")), len(tokens("two")), len(tokens("one.\n\n\ntwo"))) == (3, 1, 3)
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), token_budget=3, tokenizer=tokens)
    assert len(postprocess(augmenter, hits(nodes, [0]))) == 2


def test_tokens_are_counted_in_the_order_of_the_output(postprocess: Postprocess):
    """If the order of nodes changes their tokens, the order of the output counts."""

    def tokens(text: str) -> list[str]:
        return re.findall(r"\w+|\.\n\n|\n\n|\W", text)

    nodes = [*linked_document(["one."], source_id="a"), *linked_document(["two"], source_id="b")]
    assert (len(tokens("one.\n\ntwo")), len(tokens("two\n\none."))) == (3, 4)
    found = hits(nodes, [0, 1], [0.1, 0.9])
    for budget, kept in ((3, ["two"]), (4, ["two", "one."])):
        augmenter = AutoMergingPostprocessor(
            docstore=docstore_of(nodes), token_budget=budget, tokenizer=tokens
        )
        assert [hit.node.text for hit in postprocess(augmenter, found)] == kept


def test_a_hit_over_the_budget_is_kept_and_reported(
    postprocess: Postprocess, caplog: pytest.LogCaptureFixture, ends: list
):
    """Even with a budget of 0 the best hit is returned whole; the others are dropped and named."""
    nodes = linked_document(5)
    found = hits(nodes, [3, 0], [0.1, 0.7])
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), token_budget=0, output="passages")
    with caplog.at_level(logging.WARNING):
        result = postprocess(augmenter, found)
    assert result == [found[1]]
    assert result[0] is found[1]
    assert ["kept whole" in r.message or "left out" in r.message for r in caplog.records] == [True, True]
    assert ends[0].details == {
        "over_budget_id": nodes[0].node_id,
        "dropped_hit_ids": [nodes[3].node_id],
    }


def test_llamaindexs_tokenizer_counts_by_default(postprocess: Postprocess):
    """Without a tokenizer of its own it uses the one in Settings, looked up when called."""
    nodes = linked_document(5)
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), num_nodes=4, token_budget=13)
    before = Settings.tokenizer
    try:
        Settings.tokenizer = words
        assert len(postprocess(augmenter, hits(nodes, [0]))) == 2
    finally:
        Settings.tokenizer = before


def test_any_list_can_be_cut(postprocess: Postprocess):
    """The postprocessor keeps order and objects, prefers hits to added nodes, and counts copies once."""
    nodes = linked_document([f"w w w n{n}" for n in range(6)])
    augmented = postprocess(
        PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode="both"), hits(nodes, [1, 4])
    )
    budget = TokenBudgetPostprocessor(token_budget=12, tokenizer=words)
    result = postprocess(budget, augmented)
    assert [hit.node.node_id for hit in result] == [nodes[n].node_id for n in (0, 1, 4)]
    assert all(any(hit is other for other in augmented) for hit in result)
    assert len(postprocess(budget, hits(nodes, [2, 2, 3, 4]))) == 3
    assert postprocess(budget, []) == []


def test_the_end_event_counts_the_nodes_that_a_list_lost(postprocess: Postprocess, ends: list):
    """The event counts hits and added nodes that the budget dropped, and gives no reason if all fits."""
    nodes = linked_document([f"w w w n{n}" for n in range(6)])
    augmented = postprocess(
        PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode="both"), hits(nodes, [1, 4])
    )
    ends.clear()
    for budget in (4, 100):
        postprocess(TokenBudgetPostprocessor(token_budget=budget, tokenizer=words), augmented)
    short, wide = ends
    assert (short.num_hits, short.num_nodes, short.tokens) == (6, 1, 4)
    assert short.stop_reasons == {"budget": 5}
    assert short.details == {"dropped_hit_ids": [nodes[4].node_id]}
    assert (wide.num_nodes, wide.tokens, wide.stop_reasons, wide.details) == (6, 24, {}, {})


def test_score_alone_can_decide(postprocess: Postprocess):
    """With priority="score" a node that a reranker ranked first is kept, whoever added it."""
    nodes = linked_document([f"w w w n{n}" for n in range(6)])
    augmented = postprocess(PrevNextNodePostprocessor(docstore=docstore_of(nodes)), hits(nodes, [1, 4]))
    reranked = [NodeWithScore(node=h.node, score=s) for h, s in zip(augmented, [1, 9, 2, 3], strict=True)]
    by_score = TokenBudgetPostprocessor(token_budget=8, tokenizer=words, priority="score")
    assert [h.score for h in postprocess(by_score, reranked)] == [9, 3]
    hits_first = TokenBudgetPostprocessor(token_budget=8, tokenizer=words)
    assert [h.score for h in postprocess(hits_first, reranked)] == [1, 2]


def test_budgets_survive_serialization():
    """The budget is saved, the tokenizer is not."""
    data = TokenBudgetPostprocessor(token_budget=7, tokenizer=words).to_dict()
    assert data["token_budget"] == 7
    assert "tokenizer" not in data
    assert TokenBudgetPostprocessor.from_dict(data).token_budget == 7
    with pytest.raises(ValueError, match="token_budget"):
        TokenBudgetPostprocessor(token_budget=-1)


@given(
    parsed=parsed_documents(),
    output=st.sampled_from(["nodes", "passages"]),
    scope=st.sampled_from(["run", "document"]),
    budget=st.integers(0, 400),
    known=st.booleans(),
    tokenizer=st.sampled_from([None, words, list]),
    data=st.data(),
)
def test_never_over_the_budget(
    parsed: Parsed, output: str, scope: str, budget: int, known: bool, tokenizer: Any, data: st.DataObject
):
    """The final text is within the budget, or the best hit alone, whole; a second run changes nothing."""
    text, nodes = parsed
    places = data.draw(st.lists(st.integers(0, len(nodes) - 1), min_size=1, max_size=4, unique=True))
    found = hits(nodes, places)
    augmenter = PrevNextNodePostprocessor(
        docstore=docstore_of(nodes, [Document(text=text, id_="doc")] if known else []),
        num_nodes=data.draw(st.integers(0, 3)),
        mode="both",
        output=output,
        passage_scope=scope,
        token_budget=budget,
        tokenizer=tokenizer,
        mark_hits=data.draw(st.sampled_from([None, ("<<", ">>")])),
    )
    result = augmenter.postprocess_nodes(found)
    count = tokenizer or Settings.tokenizer
    assert len(count(final_text(result))) <= budget or [h.node.node_id for h in result] == [
        found[0].node.node_id
    ]
    assert found[0].node.text in "\n\n".join(hit.node.text for hit in result).replace("<<", "").replace(
        ">>", ""
    )
    limited = augmenter.model_copy(update={"token_budget": None, "max_passage_tokens": budget + 1})
    for hit in limited.postprocess_nodes(found) if output == "passages" else ():
        provenance = read_provenance(hit.node)
        made = provenance is not None and provenance.role == "passage"
        assert not made or len(count(final_text([hit]))) <= budget + 1
    again = augmenter.postprocess_nodes(result)
    assert [hit.node.node_id for hit in again] == [hit.node.node_id for hit in result]


@given(parsed=parsed_documents(), budget=st.integers(20, 300), data=st.data())
def test_the_order_of_hits_does_not_decide(parsed: Parsed, budget: int, data: st.DataObject):
    """Hits with the same scores in another order give the same nodes and passages."""
    nodes = parsed.nodes
    places = data.draw(st.lists(st.integers(0, len(nodes) - 1), min_size=1, max_size=4, unique=True))
    found = hits(nodes, places)
    other = data.draw(st.permutations(found))
    for output in ("nodes", "passages"):
        augmenter = PrevNextNodePostprocessor(
            docstore=docstore_of(nodes), num_nodes=2, mode="both", output=output, token_budget=budget
        )
        one, two = augmenter.postprocess_nodes(found), augmenter.postprocess_nodes(other)
        assert {hit.node.node_id for hit in one} == {hit.node.node_id for hit in two}

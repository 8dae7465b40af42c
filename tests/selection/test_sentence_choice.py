"""Sentences of a chunk that does not fit a budget whole."""

from __future__ import annotations

import re
from typing import Any

import pytest
from helpers import Postprocess, texts
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core import Document
from llama_index.core.schema import ImageNode, MetadataMode, NodeWithScore, TextNode
from llama_index.core.utils import get_tokenizer
from text_strategies import Parsed, parsed_documents

from llama_index_ext_ctxaug import (
    PrevNextNodePostprocessor,
    RelevantSegmentsPostprocessor,
    TokenBudgetPostprocessor,
    read_provenance,
)
from llama_index_ext_ctxaug.budget.fit import final_text
from llama_index_ext_ctxaug.selection.sentences import preferred
from llama_index_ext_ctxaug.testing import docstore_of, hits, linked_document
from llama_index_ext_ctxaug.windows.text_units import text_units


def sentences(count: int = 6, **parameters: Any) -> list[TextNode]:
    """Linked chunks of three sentences, each of four words."""
    written = [f"First of {n} here. Second zebra {n} sits. Third of {n} ends. " for n in range(count)]
    return linked_document(written, offsets=True, **parameters)


def both(nodes: list[TextNode], budget: int, **parameters: Any) -> PrevNextNodePostprocessor:
    """One neighbor on each side, within a number of words, cut at sentences."""
    return PrevNextNodePostprocessor(
        docstore=docstore_of(nodes),
        mode="both",
        token_budget=budget,
        budget_unit="sentence",
        tokenizer=str.split,
        **parameters,
    )


def test_the_side_that_faces_a_kept_chunk_comes_first(postprocess: Postprocess) -> None:
    """Without words of the query, a neighbor gives the sentences next to the hit."""
    nodes = sentences()
    assert texts(postprocess(both(nodes, 16), hits(nodes, [2]))) == ["Third of 1 ends. ", nodes[2].text]
    assert texts(postprocess(both(nodes, 28), hits(nodes, [2]))) == [
        nodes[1].text,
        nodes[2].text,
        "First of 3 here.",
    ]


def test_the_words_of_the_query_come_before_the_side(postprocess: Postprocess) -> None:
    """A sentence with a word of the query is taken before one that touches the hit."""
    nodes = sentences()
    result = postprocess(both(nodes, 16), hits(nodes, [2]), query_str="Where is the zebra?")
    assert texts(result) == [nodes[2].text, "Second zebra 1 sits."]


@pytest.mark.parametrize("output", ["nodes", "passages"])
def test_a_hit_over_the_budget_keeps_what_matches_the_query(
    postprocess: Postprocess, output: str, caplog: pytest.LogCaptureFixture, ends: list
) -> None:
    """If a hit alone exceeds the budget, its best sentences are kept, without a warning."""
    nodes = sentences()
    augmenter = both(nodes, 7, output=output)
    (result,) = postprocess(augmenter, hits(nodes, [2], [0.4]), query_str="Where is the zebra?")
    assert (result.node.text, result.score) == ("Second zebra 2 sits.", 0.4)
    provenance = read_provenance(result.node)
    assert (provenance.role, provenance.hits) == ("window", (nodes[2].node_id,))
    assert (provenance.stopped_previous, provenance.stopped_next) == ("budget", "budget")
    assert not caplog.records
    assert ends[0].tokens == 4
    assert "over_budget_id" not in ends[0].details


def test_words_where_no_sentence_fits(postprocess: Postprocess) -> None:
    """If no sentence of a hit fits, the beginning of the best one is given."""
    nodes = sentences()
    result = postprocess(both(nodes, 2), hits(nodes, [2]), query_str="Where is the zebra?")
    assert texts(result) == ["Second zebra "]


def test_the_best_sentence_is_cut_rather_than_replaced(postprocess: Postprocess) -> None:
    """If the best sentence does not fit, its beginning is given, not a shorter sentence."""
    node = TextNode(text="Yes. The zebra crossed the road at noon. No.", id_="long")
    budget = TokenBudgetPostprocessor(token_budget=4, budget_unit="sentence", tokenizer=str.split)
    result = postprocess(budget, [NodeWithScore(node=node)], query_str="Where did the zebra go?")
    assert texts(result) == ["The zebra crossed the "]


def test_characters_where_no_word_fits(postprocess: Postprocess) -> None:
    """Of a word over the budget, as many characters as fit are given."""
    node = TextNode(text="supercalifragilistic", id_="long")
    budget = TokenBudgetPostprocessor(token_budget=5, budget_unit="sentence", tokenizer=list)
    assert texts(postprocess(budget, [NodeWithScore(node=node)])) == ["super"]


@pytest.mark.parametrize("node", [TextNode(text="word"), ImageNode(text="a b", image="aGk=")])
def test_where_nothing_fits_nothing_is_given(
    postprocess: Postprocess, node: TextNode, caplog: pytest.LogCaptureFixture
) -> None:
    """If not even a word fits, or only a part of an image's text, nothing is given, with a warning."""
    budget = TokenBudgetPostprocessor(
        token_budget=0 if type(node) is TextNode else 1, budget_unit="sentence", tokenizer=str.split
    )
    assert postprocess(budget, [NodeWithScore(node=node)]) == []
    assert ["left out" in record.message for record in caplog.records] == [True]


def test_a_part_is_joined_to_the_chunk_beside_it(postprocess: Postprocess) -> None:
    """In passages, a part that touches a kept chunk joins its passage; a separate part is a node."""
    nodes = sentences()
    (passage,) = postprocess(both(nodes, 16, output="passages"), hits(nodes, [2]))
    assert passage.node.text == f"Third of 1 ends. {nodes[2].text}"
    pieces = read_provenance(passage.node).pieces
    assert [piece.node_id for piece in pieces] == [nodes[1].node_id, nodes[2].node_id]
    document = "".join(node.text for node in nodes)
    for piece in pieces:
        assert document[piece.source_start : piece.source_end] == passage.node.text[piece.start : piece.end]
    apart = postprocess(both(nodes, 16, output="passages"), hits(nodes, [2]), query_str="zebra")
    assert texts(apart) == [nodes[2].text, "Second zebra 1 sits."]


def test_a_hole_is_marked_in_the_passage_of_a_document(postprocess: Postprocess) -> None:
    """With one passage per document, the place of the cut is marked in it."""
    nodes = sentences()
    augmenter = both(nodes, 17, output="passages", passage_scope="document")
    (passage,) = postprocess(augmenter, hits(nodes, [2]), query_str="zebra")
    assert passage.node.text == f"Second zebra 1 sits.\n\n[...]\n\n{nodes[2].text}"
    assert not read_provenance(passage.node).exact


def test_shared_text_is_given_once(postprocess: Postprocess) -> None:
    """Sentences that a kept chunk also has are not chosen, and join the part to it."""
    document = "Alpha one two. Beta one two. Gamma one two. Delta one two. Epsilon one two."
    ends = [(0, 43), (29, 75)]
    nodes = linked_document([document[start:end] for start, end in ends], offsets=False)
    for node, (start, end) in zip(nodes, ends, strict=True):
        node.start_char_idx, node.end_char_idx = start, end
    augmenter = both(nodes, 12, output="passages")
    (passage,) = postprocess(augmenter, hits(nodes, [0]), query_str="Gamma")
    assert passage.node.text == document[:58].rstrip()


def test_a_row_brings_the_header_of_its_table(postprocess: Postprocess) -> None:
    """A table is cut by rows, and a row that matches the query brings the header."""
    rows = "".join(f"| city {n} | {1900 + n} |\n" for n in range(40))
    node = TextNode(text=f"Some cities.\n\n| name | year |\n|---|---|\n{rows}", id_="table")
    budget = TokenBudgetPostprocessor(token_budget=20, budget_unit="sentence", tokenizer=str.split)
    result = postprocess(budget, [NodeWithScore(node=node)], query_str="When was 1933 reached?")
    assert texts(result) == ["| name | year |\n|---|---|", "| city 33 | 1933 |"]


def test_whole_chunks_are_those_of_the_other_unit(postprocess: Postprocess) -> None:
    """Both units keep the whole chunks that fit, and the sentence unit only adds to them."""
    nodes = sentences(12)
    found = hits(nodes, [2, 6, 9], [0.9, 0.5, 0.7])
    for budget in range(12, 100, 5):
        by_sentence = both(nodes, budget)
        by_chunk = by_sentence.model_copy(update={"budget_unit": "chunk"})
        whole = {hit.node.node_id for hit in postprocess(by_chunk, found)}
        assert whole <= {hit.node.node_id for hit in postprocess(by_sentence, found)}


def test_units_are_preferred_as_chunks_are() -> None:
    """Units with rare words come first, then those beside them; kept chunks lend at both ends."""
    text = "One is. Two is. Three zebra. Four is. Five is."
    units = text_units(text)

    def order(terms: list[str], **beside: bool) -> list[int]:
        return preferred(text, units, terms, **{"before": False, "after": False, **beside})

    assert order(["zebra"]) == [2, 1, 3, 0, 4]
    assert order([], before=True) == [0, 1, 2, 3, 4]
    assert order([], after=True) == [4, 3, 2, 1, 0]
    assert order([]) == [0, 1, 2, 3, 4]
    assert order(["zebra"], after=True) == [2, 4, 3, 1, 0]


def shrinking(text: str) -> list[str]:
    """Count the words of a line as one token, so that joined texts have fewer tokens."""
    return re.findall(r"\w[\w ,.]*|\s+|\W", text)


@given(
    parsed=parsed_documents(),
    output=st.sampled_from(["nodes", "passages"]),
    scope=st.sampled_from(["run", "document"]),
    budget=st.integers(0, 300),
    tokenizer=st.sampled_from([get_tokenizer(), list, str.split, shrinking]),
    known=st.booleans(),
    data=st.data(),
)
def test_never_over_the_budget(
    parsed: Parsed, output: str, scope: str, budget: int, tokenizer: Any, known: bool, data: st.DataObject
) -> None:
    """For any text, script and tokenizer, the final text is within the budget, and pieces are true."""
    text, nodes = parsed
    places = data.draw(st.lists(st.integers(0, len(nodes) - 1), min_size=1, max_size=4, unique=True))
    kind = data.draw(st.sampled_from([PrevNextNodePostprocessor, RelevantSegmentsPostprocessor]))
    parameters = {"num_nodes": 2, "mode": "both"} if kind is PrevNextNodePostprocessor else {}
    augmenter = kind(
        docstore=docstore_of(nodes, [Document(text=text, id_="doc")] if known else []),
        output=output,
        passage_scope=scope,
        token_budget=budget,
        budget_unit="sentence",
        tokenizer=tokenizer,
        **parameters,
    )
    result = augmenter.postprocess_nodes(hits(nodes, places), query_str="the tide broke 码头")
    assert len(tokenizer(final_text(result))) <= budget
    stored = {node.node_id: node for node in nodes}
    for hit in result:
        assert hit.node.get_content(metadata_mode=MetadataMode.NONE) != ""
        provenance = read_provenance(hit.node)
        for piece in provenance.pieces if provenance else ():
            assert hit.node.text[piece.start : piece.end] in stored[piece.node_id].text
    cut = TokenBudgetPostprocessor(token_budget=budget, budget_unit="sentence", tokenizer=tokenizer)
    once = cut.postprocess_nodes(hits(nodes, places))
    assert len(tokenizer(final_text(once))) <= budget
    assert texts(cut.postprocess_nodes(once)) == texts(once)

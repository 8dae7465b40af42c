"""Passages and budgets, as users of Haystack, dsRAG, MacRAG, QAnything and other peers expect them."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from helpers import Postprocess, texts
from llama_index.core.postprocessor import LongContextReorder
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from llama_index_ext_ctxaug import (
    MissingNodeError,
    PrevNextNodePostprocessor,
    TokenBudgetPostprocessor,
    read_provenance,
)
from llama_index_ext_ctxaug.testing import ObservedDocstore, docstore_of, hits, linked_document


def passages_of(docstore: Any, num_nodes: int, **parameters: Any) -> PrevNextNodePostprocessor:
    """An augmenter with neighbors on both sides and passages as output."""
    return PrevNextNodePostprocessor(
        docstore=docstore, num_nodes=num_nodes, mode="both", output="passages", **parameters
    )


def test_wrong_windows_are_refused():
    """Negative counts are rejected at construction; 0 returns the hits alone, as in LlamaIndex."""
    for wrong in ({"num_nodes": -1}, {"num_previous": -1}, {"token_budget": -1}, {"max_passage_tokens": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            PrevNextNodePostprocessor(docstore=docstore_of([]), **wrong)


def test_overlap_by_offsets(postprocess: Postprocess):
    """T[0:43], T[20:73] and T[43:95] become T[0:95]."""
    text = "This is a text with some words. There is a second sentence. And there is also a third sentence."
    spans = [(0, 43), (20, 73), (43, 95)]
    nodes = linked_document([text[start:end] for start, end in spans])
    for node, (start, end) in zip(nodes, spans, strict=True):
        node.start_char_idx, node.end_char_idx = start, end
    (passage,) = postprocess(passages_of(docstore_of(nodes), 1), hits(nodes, [1]))
    assert passage.node.text == text[:95]


def test_window_in_document_order(postprocess: Postprocess):
    """Hit 4 of 10 with three neighbors a side gives chunks 1 to 7, offsets 11 to 77, in any storage order."""
    nodes = linked_document([f"sentence {n}." for n in range(10)], offsets=True)
    store = docstore_of([nodes[n] for n in (7, 2, 9, 0, 4, 1, 8, 3, 6, 5)])
    both = PrevNextNodePostprocessor(docstore=store, num_nodes=3, mode="both")
    result = postprocess(both, hits(nodes, [4]))
    assert [hit.node.start_char_idx for hit in result] == [11, 22, 33, 44, 55, 66, 77]
    (passage,) = postprocess(passages_of(store, 3), hits(nodes, [4]))
    assert passage.node.text == "".join(node.text for node in nodes[1:8])
    assert (passage.node.start_char_idx, passage.node.end_char_idx) == (11, 88)


def test_two_window_sizes(postprocess: Postprocess):
    """A window of 2 gives 5 chunks and one of 1 gives 3; a call does not change the augmenter."""
    nodes = linked_document(10)
    augmenter = passages_of(docstore_of(nodes), 2)
    for wanted, size in ((augmenter, 5), (augmenter.model_copy(update={"num_nodes": 1}), 3), (augmenter, 5)):
        (passage,) = postprocess(wanted, hits(nodes, [4]))
        assert len(read_provenance(passage.node).pieces) == size


def test_own_field_names_and_no_offsets(postprocess: Postprocess):
    """Chunks ordered by custom metadata keys, without offsets, give seven chunks."""
    nodes = [
        TextNode(id_=f"n{n}", text=f"part {n} ", metadata={"before": f"n{n - 1}", "after": f"n{n + 1}"})
        for n in range(10)
    ]
    augmenter = passages_of(docstore_of(nodes), 3, previous_id_key="before", next_id_key="after")
    (passage,) = postprocess(augmenter, hits(nodes, [4]))
    assert passage.node.text == "".join(f"part {n} " for n in range(1, 8))


def test_a_hit_that_cannot_be_placed(postprocess: Postprocess, caplog: pytest.LogCaptureFixture):
    """A hit without links is returned alone; a missing neighbor gives a warning, or an error with strict."""
    nodes = linked_document(3)
    bare = TextNode(id_="bare", text="nothing is known of me")
    found = [*hits([bare], [0]), *hits(nodes, [1])]
    store = ObservedDocstore(docstore_of(nodes, [bare]), missing={nodes[2].node_id})
    with caplog.at_level(logging.WARNING):
        result = postprocess(passages_of(store, 1), found)
    assert result[0] is found[0]
    assert texts(result[1:]) == [f"{nodes[0].text} {nodes[1].text}"]
    assert nodes[2].node_id in caplog.text
    with pytest.raises(MissingNodeError):
        postprocess(passages_of(store, 1, strict=True), found)


@pytest.mark.parametrize(("window", "first", "last"), [(2, 0, 5), (1, 1, 4)])
def test_sentences_around_the_third(postprocess: Postprocess, window: int, first: int, last: int):
    """Sentences 1 to 5, then 2 to 4, are joined exactly."""
    sentences = [f"This is sentence number {n}. " for n in range(1, 8)]
    nodes = linked_document(sentences, offsets=True)
    (passage,) = postprocess(passages_of(docstore_of(nodes), window), hits(nodes, [2]))
    assert passage.node.text == "".join(sentences[first:last])


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5])
def test_best_first_and_last_within_a_limit(postprocess: Postprocess, count: int):
    """A word limit keeps whole nodes and the better of two copies; core's reordering can follow."""
    nodes = linked_document([f"three words n{n}" for n in range(5)])
    found = hits(nodes, [*range(count), *range(count)], [0.1] * count + [0.9 - n / 10 for n in range(count)])
    limit = TokenBudgetPostprocessor(token_budget=12, tokenizer=str.split)
    kept = postprocess(limit, found)
    assert [hit.score for hit in kept] == [0.9 - n / 10 for n in range(min(count, 4))]
    ends = LongContextReorder().postprocess_nodes(kept)
    assert sorted(hit.score for hit in ends) == sorted(hit.score for hit in kept)
    with pytest.raises(ValueError, match="token_budget"):
        TokenBudgetPostprocessor(token_budget=-1)


class TestAdjacentHits:
    """Merging of adjacent hits as in dsRAG: nothing is added, touching hits are joined."""

    def merge(self, postprocess: Postprocess, found: list[NodeWithScore], **more: Any) -> list[NodeWithScore]:
        """Return the hits alone, as passages."""
        return postprocess(passages_of(docstore_of([hit.node for hit in found]), 0, **more), found)

    def test_nothing_and_one(self, postprocess: Postprocess):
        """No hits give nothing, and one chunk is unchanged."""
        assert self.merge(postprocess, []) == []
        found = hits(linked_document(3), [1])
        assert self.merge(postprocess, found)[0] is found[0]

    def test_what_is_not_adjacent(self, postprocess: Postprocess):
        """Positions 0 and 2, equal positions of two documents, and an unlinked chunk stay apart."""
        one, two = linked_document(3, source_id="d1"), linked_document(3, source_id="d2")
        loose = TextNode(id_="loose", text="loose")
        found = [*hits(one, [0, 2]), *hits(two, [0]), *hits([loose], [0])]
        assert self.merge(postprocess, found) == found

    def test_neighbors_merge(self, postprocess: Postprocess):
        """Chunks 1 and 2 merge and both ids are recorded; the passage has an id of its own."""
        nodes = linked_document(4)
        (passage,) = self.merge(postprocess, hits(nodes, [1, 2]))
        provenance = read_provenance(passage.node)
        assert [piece.node_id for piece in provenance.pieces] == [nodes[1].node_id, nodes[2].node_id]
        assert passage.node.node_id not in {node.node_id for node in nodes}

    def test_separator(self, postprocess: Postprocess):
        """Three chunks are joined by a blank line if the parameter sets it."""
        nodes = linked_document(["one", "two", "three"])
        (passage,) = self.merge(postprocess, hits(nodes, [2, 0, 1]), chunk_separator="\n\n")
        assert passage.node.text == "one\n\ntwo\n\nthree"

    @pytest.mark.parametrize(
        ("sizes", "limit", "expected"),
        [
            ([100, 100], 150, [100, 100]),
            ([50, 50, 200], 120, [100, 200]),
            ([40, 40, 40, 40, 40], 100, [80, 80, 40]),
        ],
    )
    def test_limit(self, postprocess: Postprocess, sizes: list[int], limit: int, expected: list[int]):
        """No merged passage exceeds the limit; a single chunk may."""
        nodes = linked_document([f"w{number} " * size for number, size in enumerate(sizes)])
        result = self.merge(
            postprocess, hits(nodes, range(len(sizes))), max_passage_tokens=limit, tokenizer=str.split
        )
        assert [len(text.split()) for text in texts(result)] == expected

    def test_rank(self, postprocess: Postprocess):
        """Hit 5, another document's hit 0, and hit 4 give 4-5 first, then the other document."""
        one, two = linked_document(6, source_id="d1"), linked_document(2, source_id="d2")
        found = [*hits(one, [5]), *hits(two, [0]), *hits(one, [4])]
        assert texts(self.merge(postprocess, found)) == [f"{one[4].text} {one[5].text}", two[0].text]

    def test_levels(self, postprocess: Postprocess):
        """Siblings and neighboring parents merge; a parent and its child, or cousins, do not."""
        parents = linked_document(["parent one ", "parent two "])
        children = [
            linked_document([f"{name} first ", f"{name} second "], source_id="doc") for name in ("a", "b")
        ]
        for parent, pair, name in zip(parents, children, "ab", strict=True):
            first, second = (child.model_copy(update={"id_": f"{name}{n}"}) for n, child in enumerate(pair))
            for child in (first, second):
                child.relationships = {
                    NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc"),
                    NodeRelationship.PARENT: RelatedNodeInfo(node_id=parent.node_id),
                }
            first.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id=second.node_id)
            second.relationships[NodeRelationship.PREVIOUS] = RelatedNodeInfo(node_id=first.node_id)
            pair[:] = [first, second]
        (a1, a2), (b1, _) = children
        assert texts(self.merge(postprocess, hits([a1, a2], [0, 1]))) == [a1.text + a2.text]
        assert texts(self.merge(postprocess, hits(parents, [0, 1]))) == [parents[0].text + parents[1].text]
        assert texts(self.merge(postprocess, hits([parents[0], a1], [0, 1]))) == [parents[0].text, a1.text]
        assert texts(self.merge(postprocess, hits([a2, b1], [0, 1]))) == [a2.text, b1.text]


def overlapping(count: int, size: int, overlap: int) -> tuple[str, list[TextNode]]:
    """A document without repetition, and chunks of it that overlap."""
    text = "".join(chr(0x4E00 + number) for number in range(count * (size - overlap) + overlap))
    starts = [number * (size - overlap) for number in range(count)]
    nodes = linked_document([text[start : start + size] for start in starts])
    for node, start in zip(nodes, starts, strict=True):
        node.start_char_idx, node.end_char_idx = start, start + size
    return text, nodes


def test_three_chunks_that_overlap(postprocess: Postprocess):
    """Chunks 4, 5 and 6 that overlap by 500 characters become one text around 5."""
    text, nodes = overlapping(8, 1500, 500)
    (passage,) = postprocess(passages_of(docstore_of(nodes), 1), hits(nodes, [5]))
    assert passage.node.text == text[4000:7500]


def test_two_runs_of_one_document(postprocess: Postprocess):
    """Two runs give one text or two, each in document order."""
    text, nodes = overlapping(12, 150, 50)
    join = passages_of(docstore_of(nodes), 1, passage_scope="document", hole_separator="…")
    assert texts(postprocess(join, hits(nodes, [9, 2]))) == [text[100:450] + "…" + text[800:1150]]
    separate = passages_of(docstore_of(nodes), 1)
    assert texts(postprocess(separate, hits(nodes, [2, 9]))) == [text[100:450], text[800:1150]]


def test_a_deleted_chunk_parts_a_run(postprocess: Postprocess):
    """With chunk 11 deleted, the result is two runs with one hit each, without an error."""
    nodes = linked_document(20)
    store = ObservedDocstore(docstore_of(nodes), missing={nodes[11].node_id})
    result = postprocess(passages_of(store, 2), hits(nodes, [10, 12]))
    assert texts(result) == [" ".join(n.text for n in nodes[8:11]), " ".join(n.text for n in nodes[12:15])]
    assert [read_provenance(hit.node).hits for hit in result] == [(nodes[10].node_id,), (nodes[12].node_id,)]


def test_nothing_and_no_neighbors(postprocess: Postprocess):
    """No hits give nothing; without neighbors, contiguous hits are joined."""
    nodes = linked_document(6)
    augmenter = passages_of(docstore_of(nodes), 0)
    assert postprocess(augmenter, []) == []
    assert texts(postprocess(augmenter, hits(nodes, [4, 1, 2]))) == [
        nodes[4].text,
        f"{nodes[1].text} {nodes[2].text}",
    ]


@pytest.mark.parametrize("number", range(8))
def test_expansion_within_a_budget(postprocess: Postprocess, number: int):
    """Unlimited reach never exceeds a budget of 50 tokens and always keeps the hit."""
    nodes = linked_document([f"{'word ' * (3 + (number * n) % 7)}w{n}. " for n in range(30)])
    augmenter = passages_of(docstore_of(nodes), 40, token_budget=50, tokenizer=str.split)
    hit = number * 3
    (passage,) = postprocess(augmenter, hits(nodes, [hit]))
    assert nodes[hit].text in passage.node.text
    assert 38 <= len(passage.node.text.split()) <= 50


def test_expansion_without_a_limit(postprocess: Postprocess):
    """A budget larger than the document gives the whole document."""
    nodes = linked_document(30, offsets=True)
    augmenter = passages_of(docstore_of(nodes), 100, token_budget=10**9)
    (passage,) = postprocess(augmenter, hits(nodes, [17]))
    assert passage.node.text == "".join(node.text for node in nodes)


def test_a_budget_of_nothing(postprocess: Postprocess, caplog: pytest.LogCaptureFixture):
    """A budget of 0 keeps the best hit, as documented, and reports it."""
    nodes = linked_document(5)
    found = hits(nodes, [2])
    with caplog.at_level(logging.WARNING):
        result = postprocess(passages_of(docstore_of(nodes), 2, token_budget=0), found)
    assert result == found
    assert "token_budget=0" in caplog.text


def test_a_small_budget_stays_near(postprocess: Postprocess):
    """With many chunks in reach and room for five, the nearest are added."""
    nodes = linked_document([f"a b c n{n} " for n in range(40)])
    augmenter = passages_of(docstore_of(nodes), 40, token_budget=20, tokenizer=str.split)
    (passage,) = postprocess(augmenter, hits(nodes, [20]))
    assert passage.node.text == "".join(node.text for node in nodes[18:23])

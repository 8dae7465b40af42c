"""BRSRPostprocessor: sections, windows, rerank and choice in one postprocessor."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import permutations
from pydoc_data.topics import topics

import pytest
from helpers import Postprocess
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core import Document, MockEmbedding, Settings
from llama_index.core.llms import LLMMetadata
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.utils import get_tokenizer

from llama_index_ext_ctxaug import (
    BRSRPostprocessor,
    Provenance,
    RerankPostprocessor,
    SectionPostprocessor,
    SlidingWindowPostprocessor,
    read_provenance,
)
from llama_index_ext_ctxaug.budget.fit import final_text
from llama_index_ext_ctxaug.passages.provenance import with_provenance
from llama_index_ext_ctxaug.testing import (
    ObservedDocstore,
    ScriptedLLM,
    WordEmbedding,
    docstore_of,
    hits,
    linked_document,
)
from llama_index_ext_ctxaug.windows.slices import place_of

DOCUMENTS = [
    Document(text=topics[name], id_=name) for name in ("assert", "while", "try", "with", "slicings", "lambda")
]


@pytest.fixture(scope="module")
def chunks() -> list[TextNode]:
    """Chunks of six chapters of the Python language reference."""
    return SentenceSplitter(chunk_size=100, chunk_overlap=20).get_nodes_from_documents(DOCUMENTS)


def retrieved(chunks: list[TextNode], question: str, top_k: int = 8) -> list[NodeWithScore]:
    """The chunks nearest to a question."""
    rank = RerankPostprocessor(embed_model=WordEmbedding(), top_n=top_k, overlap="keep")
    return rank.postprocess_nodes([NodeWithScore(node=node) for node in chunks], query_str=question)


def brsr(chunks: list[TextNode], **kw: object) -> BRSRPostprocessor:
    """BRSR over these chunks with an embedding that needs no model."""
    return BRSRPostprocessor(docstore=docstore_of(chunks, DOCUMENTS), embed_model=WordEmbedding(), **kw)


def tokens(text: str) -> int:
    """Tokens of a text."""
    return len(get_tokenizer()(text))


QUESTION = "When is the else clause of a while loop executed?"


def test_defaults(chunks: list[TextNode]) -> None:
    """The defaults are 256 tokens a side, windows of 512 at a stride of 128, and the best ten."""
    augmenter = brsr(chunks)
    assert (augmenter.expansion_tokens, augmenter.window_tokens, augmenter.stride_tokens) == (256, 512, 128)
    assert (augmenter.top_n, augmenter.overlap) == (10, "suppress")


def test_the_answer_is_in_the_best_windows(postprocess: Postprocess, chunks: list[TextNode]) -> None:
    """Windows are returned best first, within their size, and the first ones hold the answer's section."""
    augmenter = brsr(chunks, window_tokens=120, stride_tokens=30, top_n=4)
    result = postprocess(augmenter, retrieved(chunks, QUESTION), query_str=QUESTION)
    assert 1 <= len(result) <= 4
    assert [hit.score for hit in result] == sorted((hit.score for hit in result), reverse=True)
    assert all(tokens(hit.node.text) <= 120 for hit in result)
    assert any("else" in hit.node.text and hit.node.ref_doc_id == "while" for hit in result)


def test_windows_are_slices_of_their_documents(postprocess: Postprocess, chunks: list[TextNode]) -> None:
    """Offsets and pieces lead back to the document and its chunks; documents are never mixed."""
    augmenter = brsr(chunks, window_tokens=100, stride_tokens=50)
    documents = {node.node_id: node.ref_doc_id for node in chunks}
    result = postprocess(augmenter, retrieved(chunks, QUESTION), query_str=QUESTION)
    windows = [hit for hit in result if read_provenance(hit.node) is not None]
    assert windows
    for hit in windows:
        node, source = hit.node, topics[hit.node.ref_doc_id]
        assert source[node.start_char_idx : node.end_char_idx] == node.text
        for piece in read_provenance(node).pieces:
            assert documents[piece.node_id] == node.ref_doc_id
            assert source[piece.source_start : piece.source_end] == node.text[piece.start : piece.end]


def test_it_is_the_steps_one_after_another(postprocess: Postprocess, chunks: list[TextNode]) -> None:
    """BRSR gives the same as its three steps, called in turn."""
    options = {"window_tokens": 90, "stride_tokens": 30}
    found = retrieved(chunks, QUESTION)
    whole = postprocess(brsr(chunks, top_n=5, **options), found, query_str=QUESTION)
    nodes = postprocess(
        SectionPostprocessor(docstore=docstore_of(chunks, DOCUMENTS), output="passages"), found
    )
    nodes = postprocess(SlidingWindowPostprocessor(**options), nodes)
    nodes = postprocess(RerankPostprocessor(embed_model=WordEmbedding(), top_n=5), nodes, query_str=QUESTION)
    assert [(hit.node.node_id, hit.score) for hit in whole] == [
        (hit.node.node_id, hit.score) for hit in nodes
    ]


def test_the_same_in_every_run(postprocess: Postprocess, chunks: list[TextNode]) -> None:
    """Ids are derived: a second run gives the same nodes, and the input is unchanged."""
    found = retrieved(chunks, QUESTION)
    before = [hit.to_json() for hit in found]
    augmenter = brsr(chunks, window_tokens=80, stride_tokens=20)
    runs = [[hit.to_json() for hit in postprocess(augmenter, found, query_str=QUESTION)] for _ in range(2)]
    assert runs[0] == runs[1]
    assert [hit.to_json() for hit in found] == before


def test_the_first_hits_are_used(postprocess: Postprocess, chunks: list[TextNode]) -> None:
    """With top_k only the first hits expand; a hit that two retrievers found counts once."""
    found = retrieved(chunks, QUESTION)
    doubled = [found[0], NodeWithScore(node=found[0].node, score=17.0), *found[1:]]
    result = postprocess(
        brsr(chunks, top_k=2, window_tokens=60, stride_tokens=20), doubled, query_str=QUESTION
    )
    named = {id_ for hit in result for id_ in getattr(read_provenance(hit.node), "hits", (hit.node.node_id,))}
    assert named <= {hit.node.node_id for hit in found[:2]}


@pytest.mark.parametrize("limit", [60, 150, 400])
def test_the_context_has_a_cap(postprocess: Postprocess, chunks: list[TextNode], limit: int) -> None:
    """The text for the model is at most max_context_tokens long, and so is each window."""
    augmenter = brsr(chunks, max_context_tokens=limit)
    result = postprocess(augmenter, retrieved(chunks, QUESTION), query_str=QUESTION)
    assert result
    assert tokens(final_text(result)) <= limit


@pytest.mark.parametrize("overlap", ["suppress", "keep", "merge"])
def test_sentences_fill_what_whole_windows_leave(
    postprocess: Postprocess, chunks: list[TextNode], overlap: str
) -> None:
    """Of the first window that does not fit, the sentences that do are kept, at their place."""
    options = {"window_tokens": 120, "stride_tokens": 60, "overlap": overlap}
    found = retrieved(chunks, QUESTION)
    left = taken = 0
    for limit in (160, 200, 260):
        whole, filled = (
            brsr(chunks, max_context_tokens=limit, budget_unit=unit, **options)
            for unit in ("chunk", "sentence")
        )
        left += tokens(final_text(postprocess(whole, found, query_str=QUESTION)))
        result = postprocess(filled, found, query_str=QUESTION)
        assert tokens(final_text(result)) <= limit
        taken += tokens(final_text(result))
        for hit in result:
            for piece in read_provenance(hit.node).pieces:
                source = topics[piece.document_id][piece.source_start : piece.source_end]
                assert source == hit.node.text[piece.start : piece.end]
    assert taken > left


def test_the_cap_is_the_models_window(
    postprocess: Postprocess, chunks: list[TextNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default the context fits the LLM of the settings; None removes the limit."""
    monkeypatch.setattr(Settings, "_llm", ScriptedLLM(answers=["x"], context_window=600))
    found = retrieved(chunks, QUESTION)
    result = postprocess(brsr(chunks), found, query_str=QUESTION)
    assert tokens(final_text(result)) <= 600 - 16 - 256
    free = postprocess(brsr(chunks, max_context_tokens=None), found, query_str=QUESTION)
    assert tokens(final_text(free)) > tokens(final_text(result))


@pytest.mark.parametrize("order", ["score", "document"])
def test_merged_windows_are_within_the_cap(
    postprocess: Postprocess, chunks: list[TextNode], order: str
) -> None:
    """Merged windows stay within the context limit, and take the place of the best one."""
    sizes = {"window_tokens": 60, "stride_tokens": 20, "overlap": "merge", "order": order}
    found = retrieved(chunks, QUESTION)
    free = postprocess(brsr(chunks, **sizes), found, query_str=QUESTION)
    assert max(tokens(hit.node.text) for hit in free) > 60
    result = postprocess(brsr(chunks, max_context_tokens=300, **sizes), found, query_str=QUESTION)
    assert max(tokens(hit.node.text) for hit in result) > 60
    assert tokens(final_text(result)) <= 300
    places = [place_of(hit.node) for hit in result]
    assert not any(
        one.whole_id == other.whole_id and one.start <= other.start <= one.end
        for one, other in permutations(places, 2)
    )
    if order == "score":
        assert [hit.score for hit in result] == sorted((hit.score for hit in result), reverse=True)


def test_metadata_counts_in_the_cap(postprocess: Postprocess, chunks: list[TextNode]) -> None:
    """Windows are shortened so that they stay within the limit with the metadata that the model sees."""
    titled = [
        chunk.model_copy(update={"metadata": {"title": "a title of quite a few words, seen by the model"}})
        for chunk in chunks
    ]
    augmenter = BRSRPostprocessor(
        docstore=docstore_of(titled), embed_model=WordEmbedding(), max_context_tokens=60
    )
    result = postprocess(augmenter, retrieved(titled, QUESTION), query_str=QUESTION)
    assert "quite a few words" in final_text(result)
    assert 30 < tokens(final_text(result)) <= 60
    narrow = augmenter.model_copy(update={"max_context_tokens": 15})
    assert len(postprocess(narrow, retrieved(titled, QUESTION), query_str=QUESTION)) == 1


def test_tokens_across_the_joint_with_the_metadata_are_within_the_cap(postprocess: Postprocess) -> None:
    """If the metadata counts for more beside a window than beside the passage, it still has room."""
    nodes = linked_document(
        ["naïve cat 數據 tokenization of façades, the naïve cat " * 12], metadata={"title": "cats"}
    )
    augmenter = BRSRPostprocessor(docstore=docstore_of(nodes), embed_model=WordEmbedding())
    for limit in (16, 34):
        capped = augmenter.model_copy(update={"max_context_tokens": limit})
        result = postprocess(capped, hits(nodes, [0]), query_str="naïve cat")
        assert tokens(final_text(result)) <= limit


class Sized(ScriptedLLM):
    """A model that states how long its answers may be."""

    num_output: int = 16

    @property
    def metadata(self) -> LLMMetadata:
        """Return the context window and the length of an answer."""
        return LLMMetadata(context_window=self.context_window, num_output=self.num_output)


@pytest.mark.parametrize(
    ("context_window", "num_output", "expected"),
    [
        (600, 16, 320),  # 600 - 16 - 3 - 256 = 325, and 5 tokens make no sentence
        (600, -16, 340),  # from a model that does not state how long its answers may be
        (300, 16, 20),  # less than the stride
        (275, 16, 790),  # nothing is left, so there is no limit to apply
        (200, 16, 790),
    ],
)
def test_what_the_model_leaves(
    postprocess: Postprocess,
    monkeypatch: pytest.MonkeyPatch,
    context_window: int,
    num_output: int,
    expected: int,
) -> None:
    """Prompt, question and answer are subtracted from the model's window; windows are cut to the rest."""
    monkeypatch.setattr(
        Settings, "_llm", Sized(answers=["x"], context_window=context_window, num_output=num_output)
    )
    text = "; ".join(f"sentence {n} has ten words in it and this one" for n in range(79))
    node = TextNode(id_="n", text=text)
    augmenter = BRSRPostprocessor(
        docstore=docstore_of([node]),
        embed_model=WordEmbedding(),
        tokenizer=str.split,
        sentence_splitter=lambda text: text.split("; "),
        overlap="merge",
    )
    result = postprocess(augmenter, hits([node], [0]), query_str="sentence 5 has")
    assert len(final_text(result).split()) == expected


def test_what_ranks_best_is_kept_whoever_added_it(postprocess: Postprocess) -> None:
    """Within the limit, a node that an earlier augmenter added wins over a hit that ranks lower."""
    one = linked_document(["The else clause of a loop."], source_id="one")
    two = linked_document(["Something about another matter."], source_id="two")
    added = with_provenance(one[0], Provenance("neighbor", ("elsewhere",), 1))
    augmenter = BRSRPostprocessor(
        docstore=docstore_of(one, two), embed_model=WordEmbedding(), tokenizer=str.split, max_context_tokens=6
    )
    result = postprocess(augmenter, hits([two[0], added], [0, 1]), query_str="else clause of a loop")
    assert [hit.node.node_id for hit in result] == [one[0].node_id]


def test_no_query(postprocess: Postprocess, chunks: list[TextNode], caplog: pytest.LogCaptureFixture) -> None:
    """Without a query the rerank is skipped and reported, and the windows keep the passages' order."""
    found = retrieved(chunks, QUESTION)
    with caplog.at_level(logging.WARNING):
        result = postprocess(brsr(chunks, window_tokens=100, stride_tokens=100), found)
    assert "no query" in caplog.text
    assert result[0].node.ref_doc_id == found[0].node.ref_doc_id


def test_a_model_that_fails(
    postprocess: Postprocess, chunks: list[TextNode], caplog: pytest.LogCaptureFixture
) -> None:
    """An embedding of the wrong kind keeps the order of the passages, with a warning."""

    class Broken(MockEmbedding):
        def _get_vector(self) -> list[float]:
            raise ConnectionError("no model")

    augmenter = BRSRPostprocessor(docstore=docstore_of(chunks), embed_model=Broken(embed_dim=2))
    assert postprocess(augmenter, retrieved(chunks, QUESTION), query_str=QUESTION)
    assert "no model" in caplog.text


def test_few_reads(postprocess: Postprocess, chunks: list[TextNode]) -> None:
    """The expansion of all hits costs few batched reads, and no node is read twice."""
    store = ObservedDocstore(docstore_of(chunks))
    augmenter = BRSRPostprocessor(docstore=store, embed_model=WordEmbedding())
    postprocess(augmenter, retrieved(chunks, QUESTION, 20), query_str=QUESTION)
    assert len(store.batches) <= 4
    assert len(store.node_reads) == len(set(store.node_reads))


def test_saved_and_restored(chunks: list[TextNode]) -> None:
    """The saved form holds the numbers, without store or models."""
    augmenter = brsr(chunks, top_n=3, window_tokens=100, stride_tokens=50, stop_at="same_or_higher")
    data = augmenter.to_dict()
    assert not {"docstore", "embed_model", "reranker", "tokenizer"} & set(data)
    again = BRSRPostprocessor.from_dict(data, docstore=docstore_of(chunks))
    assert (again.top_n, again.window_tokens, again.stop_at) == (3, 100, "same_or_higher")


@pytest.mark.parametrize(
    "wrong",
    [
        {"stride_tokens": 0},
        {"stride_tokens": 600},
        {"top_n": 0},
        {"output": "nodes"},
        {"max_context_tokens": 0},
    ],
)
def test_parameters_that_cannot_work_are_refused(chunks: list[TextNode], wrong: dict[str, object]) -> None:
    """Wrong numbers are rejected at construction."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        brsr(chunks, **wrong)


def test_empty_input(postprocess: Postprocess, chunks: list[TextNode]) -> None:
    """Empty input gives empty output."""
    assert postprocess(brsr(chunks), [], query_str=QUESTION) == []


CHINESE = "\n\n".join(
    f"第{number}章 {title}\n\n" + "".join(f"这是关于{title}的第{i}句话。" for i in range(40))
    for number, title in zip("一二三四", ("天气", "公园", "读书", "音乐"), strict=True)
)


def test_chinese(postprocess: Postprocess) -> None:
    """Windows of Chinese text have whole sentences, within the size, of the right chapter."""
    splitter = SentenceSplitter(chunk_size=120, chunk_overlap=0, secondary_chunking_regex="[^。]+[。]?")
    chunks = splitter.get_nodes_from_documents([Document(text=CHINESE, id_="zh")])
    found = [place for place, node in enumerate(chunks) if "读书" in node.text][1:3]
    augmenter = brsr(chunks, window_tokens=200, stride_tokens=50, expansion_tokens=2000, top_n=3)
    result = postprocess(augmenter, hits(chunks, found), query_str="读书的第7句话")
    assert result
    for hit in result:
        assert CHINESE[hit.node.start_char_idx : hit.node.end_char_idx] == hit.node.text
        assert tokens(hit.node.text) <= 200
    assert "读书" in result[0].node.text


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_grown_regions_contain_every_hit(data: st.DataObject, chunks: list[TextNode]) -> None:
    """For any hits, the windows before the choice hold the text of every hit; equal windows are one."""
    places = data.draw(st.lists(st.integers(0, len(chunks) - 1), min_size=1, max_size=6, unique=True))
    size = data.draw(st.integers(20, 200))
    augmenter = brsr(
        chunks,
        expansion_tokens=data.draw(st.integers(0, 300)),
        window_tokens=size,
        stride_tokens=data.draw(st.integers(1, size)),
        top_n=10_000,
        overlap="keep",
        max_context_tokens=None,
    )
    result = augmenter.postprocess_nodes(hits(chunks, places), query_str="loop")
    for place in places:
        node = chunks[place]
        windows = [hit.node for hit in result if hit.node.ref_doc_id == node.ref_doc_id]
        covered = {place for window in windows for place in range(window.start_char_idx, window.end_char_idx)}
        for missing in _runs(
            place for place in range(node.start_char_idx, node.end_char_idx) if place not in covered
        ):
            text = node.text[missing[0] - node.start_char_idx : missing[-1] + 1 - node.start_char_idx]
            assert any(text in window.text for window in windows)


def _runs(places: Iterable[int]) -> list[list[int]]:
    """Group increasing numbers into runs of consecutive ones."""
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs

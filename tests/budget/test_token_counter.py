"""Count tokens by parts of texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.utils import get_tokenizer
from text_strategies import texts

from llama_index_ext_ctxaug.budget.fit import Tokenizer
from llama_index_ext_ctxaug.budget.token_counter import TokenCounter


@given(text=texts(), tokenizer=st.sampled_from([get_tokenizer(), list]))
def test_the_estimate_of_usual_tokenizers_is_exact(text: str, tokenizer: Tokenizer) -> None:
    """With LlamaIndex's tokenizer and with characters, a text's parts have as many tokens as the text."""
    counter = TokenCounter(tokenizer)
    assert counter.estimate(text) == counter.count(text)


@pytest.mark.parametrize(
    "text",
    [
        "One. Two!  Three?\n\n\nFour",
        "def f(x):\n    return x\n\n\n  ",
        "第一句。“第二句！”第三句？ ok",
        "",
        "。。",
    ],
)
def test_parts_end_where_tokens_end(text: str) -> None:
    """Sentences of many scripts, code and white space are split between tokens."""
    counter = TokenCounter(get_tokenizer())
    assert counter.estimate(text) == counter.count(text)


def test_tokens_around_every_text_count_once() -> None:
    """A tokenizer that adds two tokens to every text adds them once to a text of many parts."""
    counter = TokenCounter(lambda text: ["[CLS]", *text.split(), "[SEP]"])
    assert counter.estimate("One two. Three. Four") == counter.count("One two. Three. Four") == 6


def test_no_part_is_counted_twice() -> None:
    """Sentences that texts share are counted once, even by a later counter of the same tokenizer."""
    counted: list[str] = []

    def words(text: str) -> list[str]:
        counted.append(text)
        return text.split()

    first = "The harbor was built in 1904. Ships of every size come and go."
    for text, tokens in ((first, 13), (f"{first} A storm broke the old pier.", 19), (first, 13)):
        assert TokenCounter(words).estimate(text) == tokens
    assert len(counted) == len(set(counted)) == 4  # with the empty text


def test_any_callable_is_a_tokenizer() -> None:
    """A tokenizer without a hash works like any other."""

    class Words(list):
        def __call__(self, text: str) -> list[str]:
            return text.split()

    assert TokenCounter(Words()).estimate("one two") == 2

"""Answers: SQuAD's metrics by hand, one call for each prompt, failing models, the report."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.evaluation import BaseEvaluator, EvaluationResult
from llama_index.core.llms import ChatMessage, ChatResponse, LLMMetadata
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import NodeWithScore, TextNode
from test_compare import TEXTS, ByNumber, following

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation import (
    BASELINE,
    AnswerExact,
    AnswerF1,
    CachedLLM,
    Evidence,
    JudgeMetric,
    Outcome,
    Question,
    Report,
    compare,
    judges,
)
from llama_index_ext_ctxaug.evaluation.answer_metrics import answer_words, word_f1
from llama_index_ext_ctxaug.testing import ScriptedLLM

PROMPT = PromptTemplate("Context: {context_str}\nQuestion: {query_str}")


def outcome(answer: str | None, *expected: str) -> Outcome:
    """Return an outcome with an answer to a question that expects these."""
    nodes = [NodeWithScore(node=TextNode(text="It is so."))]
    return Outcome(Question("q", "Why?", answers=expected), nodes, nodes, answer=answer)


@pytest.mark.parametrize(
    ("answer", "expected", "f1", "exact"),
    [
        # English: articles, case and punctuation do not count
        ("The cat, sat!", ["a cat sat on mats"], 2 * 2 / (2 + 4), 0),
        ("An Eiffel-Tower", ["the eiffeltower."], 1, 1),
        ("cat cat dog", ["cat dog dog"], 2 * 2 / (3 + 3), 0),
        ("anthem", ["the anthem a an the"], 1, 1),
        ("in 1998", ["2001", "1998", "in the year 1998"], 2 * 2 / (2 + 3), 0),
        ("no", ["yes"], 0, 0),
        ("the", ["!"], 1, 1),
        ("", ["something"], 0, 0),
        # Chinese and Japanese: each character is a word
        ("北京大学。", ["北京"], 2 * 2 / (4 + 2), 0),
        ("「北京」", ["北 京"], 1, 1),
        ("東京タワー", ["東京"], 2 * 2 / (5 + 2), 0),
        ("约1998年", ["1998年"], 2 * 2 / (3 + 2), 0),
        ("COVID-19病毒", ["covid19 病毒"], 1, 1),
        # other scripts: words, and the punctuation of all scripts
        ("«Straße» – Köln", ["straße köln"], 1, 1),
        ("в Москве", ["Москве"], 2 * 1 / (2 + 1), 0),
        ("서울 타워", ["서울"], 2 * 1 / (2 + 1), 0),
    ],
)
def test_squad_metrics(answer: str, expected: list[str], f1: float, exact: float) -> None:
    """F1 and exact match have the values of SQuAD's rules, worked out by hand, in each kind of script."""
    assert AnswerF1().score(outcome(answer, *expected)) == pytest.approx(f1)
    assert AnswerExact().score(outcome(answer, *expected)) == exact


def test_no_answer_is_not_counted() -> None:
    """A question without an answer, or without an expected one, has no score."""
    for metric in (AnswerF1(), AnswerExact()):
        assert metric.score(outcome(None, "x")) is None
        assert metric.score(outcome("x")) is None


ascii_text = st.text(st.sampled_from("aAnNtThHeE xX.,-'\"19 \t\n"), max_size=40)


@given(ascii_text, ascii_text)
def test_squad_rules_on_ascii(one: str, other: str) -> None:
    """On ASCII text the words are those of SQuAD's rules, applied one after another."""

    def reference(text: str) -> list[str]:
        words = re.sub(r"[!-/:-@\[-`{-~]", "", text.lower()).split()
        return [word for word in words if word not in ("a", "an", "the")]

    assert answer_words(one) == reference(one)
    a, b = reference(one), reference(other)
    common = sum(min(a.count(word), b.count(word)) for word in set(a))
    precision, recall = (common / len(words) if words else float(a == b) for words in (a, b))
    by_hand = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    assert word_f1(one, other) == pytest.approx(by_hand)


def asked(count: int = 3) -> list[Question]:
    """Return questions whose answer is at the start of the next chunk."""
    return [
        Question(str(n), str(n), evidence=(Evidence(TEXTS[n], "doc"),), answers=(f"alpha{n + 1}",))
        for n in range(count)
    ]


def scripted(answer: Callable[[str], str]) -> ScriptedLLM:
    """Return a model that answers from the prompt."""
    return ScriptedLLM(answers=answer)


def from_context(prompt: str) -> str:
    """Give the answer if the context holds it."""
    wanted = f"alpha{int(prompt.rsplit('Question: ', maxsplit=1)[-1]) + 1}"
    return f"The {wanted}." if re.search(rf"\b{wanted}\b", prompt) else "I do not know."


def answered(llm: Any, **options: Any) -> Report:
    """Compare on three questions with two metrics of the answer."""
    metrics = options.pop("metrics", [AnswerF1(), AnswerExact()])
    systems = options.pop("systems", {"next": following()})
    return compare(
        ByNumber(), systems, asked(), llm=llm, answer_prompt=PROMPT, metrics=metrics, top_k=1, **options
    )


def test_answers_decide() -> None:
    """Rows, records and page have the answers, and their F1 decides the choice."""
    report = answered(scripted(from_context), metrics=None)
    assert {row.answer for row in report.rows if row.system == BASELINE} == {"I do not know."}
    assert [row.answer for row in report.rows if row.system == "next"] == [
        f"The alpha{n}." for n in (1, 2, 3)
    ]
    assert [row.scores["answer_f1"] for row in report.rows] == [0, 1] * 3
    assert report.choice_metrics == ["answer_f1"]
    assert "The alpha2." in {record["answer"] for record in report.questions()}
    assert "<bdi>The alpha3.</bdi>" in report.to_html()
    assert {"faithfulness", "relevancy"} <= {metric.name for metric in report.metrics}


def test_equal_contexts_are_answered_once() -> None:
    """Two systems with one context, and a budget without effect, cost one call per question."""
    llm = scripted(from_context)
    answered(llm, systems={"next": following(), "again": following()}, budgets=[900])
    contexts = {prompt.split("Question: ")[0] for prompt in llm.prompts}
    assert len(llm.prompts) == len(set(llm.prompts))
    assert len(contexts) == 3 * 3  # one hit, hit and next, and the pass-through that fills its budget


def test_a_second_run_calls_nothing(tmp_path: Path) -> None:
    """Replies outlive the run, a truncated line affects no other, and another model is asked again."""
    path = tmp_path / "cache" / "answers.jsonl"
    first = answered(CachedLLM(scripted(from_context), path))
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join(lines) + '\n{"key": "half', "utf-8")
    silent = scripted(from_context)
    assert answered(CachedLLM(silent, path)).rows == first.rows
    assert silent.prompts == []
    other = ScriptedLLM(answers=from_context, context_window=2000)
    object.__setattr__(other, "temperature", 0.7)
    answered(CachedLLM(other, path), systems={})
    assert len(other.prompts) == 3
    answered(CachedLLM(silent, path))
    assert silent.prompts == []


def test_a_failing_model_is_a_record(tmp_path: Path) -> None:
    """A failing model is reported, its metrics have no score, and a later run asks again."""
    calls = []

    def sometimes(prompt: str) -> str:
        calls.append(prompt)
        if prompt.endswith("Question: 1") and len(calls) < 4:
            raise TimeoutError("no answer")
        return from_context(prompt)

    saved = tmp_path / "rows.jsonl"
    report = answered(scripted(sometimes), systems={}, save_to=saved)
    assert [row.scores["answer_f1"] for row in report.rows] == [0.0, None, 0.0]
    assert report.problems == ["question '1', pass-through: the model failed: TimeoutError('no answer')"]
    again = answered(scripted(sometimes), systems={}, save_to=saved)
    assert [row.answer for row in again.rows] == ["I do not know."] * 3
    assert len(calls) == 4


def test_saved_rows_are_of_one_model(tmp_path: Path) -> None:
    """Rows from another prompt or model are not reused."""
    saved = tmp_path / "rows.jsonl"
    answered(scripted(from_context), save_to=saved)
    with pytest.raises(ConfigurationError, match="other systems or settings"):
        compare(ByNumber(), {"next": following()}, asked(), metrics=[AnswerF1(), AnswerExact()], top_k=1,
                llm=scripted(from_context), save_to=saved)  # fmt: skip


def test_metrics_of_answers_need_a_model() -> None:
    """Without a model a metric of answers is rejected by name."""
    with pytest.raises(
        ConfigurationError, match="'answer_f1' measures the answer of a model; give compare llm="
    ):
        answered(None)


class Chatting(ScriptedLLM):
    """A chat model that remembers its messages."""

    @property
    def metadata(self) -> LLMMetadata:
        """Claim to be a chat model that calls functions."""
        return LLMMetadata(is_chat_model=True, is_function_calling_model=True, model_name="chatting")

    def chat(self, messages: Any, **kwargs: Any) -> ChatResponse:
        """Reply with the roles of the messages."""
        self.prompts.append(str(messages))
        return ChatResponse(message=ChatMessage(role="assistant", content=" ".join(m.role for m in messages)))

    async def achat(self, messages: Any, **kwargs: Any) -> ChatResponse:
        """Reply with the roles of the messages."""
        return self.chat(messages)


async def test_a_chat_model_is_asked_in_messages(tmp_path: Path) -> None:
    """A cached chat model gets messages with its own system prompt, and is asked once, sync and async."""
    path = tmp_path / "answers.jsonl"
    model = Chatting(answers=[], system_prompt="Be brief.")
    cached = CachedLLM(model, path)
    assert cached.predict(PROMPT, context_str="a", query_str="b") == "system user"
    assert await cached.apredict(PROMPT, context_str="a", query_str="b") == "system user"
    assert await cached.apredict(PROMPT, context_str="a", query_str="c") == "system user"
    assert len(model.prompts) == 2
    assert not cached.metadata.is_function_calling_model
    later = Chatting(answers=[], system_prompt="Be brief.")
    assert CachedLLM(later, path).predict(PROMPT, context_str="a", query_str="b") == "system user"
    assert later.prompts == []


async def test_judges() -> None:
    """LlamaIndex's evaluators judge the answer."""
    llm = scripted(lambda prompt: "YES" if "YES" in prompt else "?")
    assert [await judge.ascore(outcome("It is so.")) for judge in judges(llm)] == [1.0, 1.0]
    assert len(llm.prompts) == 2
    assert [await judge.ascore(outcome(None)) for judge in judges(llm)] == [None, None]


async def test_a_judge_without_a_result() -> None:
    """A result that the evaluator calls invalid is an error with its reason."""

    class Undecided(BaseEvaluator):
        def _get_prompts(self) -> dict:
            return {}

        def _update_prompts(self, prompts: dict) -> None:
            pass

        async def aevaluate(self, **kwargs: object) -> EvaluationResult:
            return EvaluationResult(score=1.0, invalid_result=True, invalid_reason="cannot tell")

    with pytest.raises(ValueError, match="cannot tell"):
        await JudgeMetric("undecided", Undecided()).ascore(outcome("It is so."))

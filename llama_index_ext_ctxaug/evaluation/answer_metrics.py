"""Metrics of a model's answer, by SQuAD's rules."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter

from llama_index.core.evaluation import BaseEvaluator, FaithfulnessEvaluator, RelevancyEvaluator
from llama_index.core.llms import LLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import MetadataMode

from llama_index_ext_ctxaug.evaluation.outcome import Metric, Outcome

SHORT_ANSWER_PROMPT = PromptTemplate(
    "Context:\n{context_str}\n\n"
    "Answer the question from the context alone, with as few words of the context as possible and no "
    "explanation.\n"
    "Question: {query_str}\nAnswer: "
)
"""A prompt for answers as short as the expected ones, which F1 and exact match need."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_CHARACTERS = (
    r"\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{_CHARACTERS}]|[^\s{_CHARACTERS}]+")


def answer_words(text: str) -> list[str]:
    """Return the words of an answer as SQuAD's evaluation compares them (Rajpurkar et al. 2016).

    Case, punctuation and English articles do not count. Beyond SQuAD's rules, as in MLQA (Lewis et al. 2020),
    punctuation is that of all scripts, and each Chinese or Japanese character is a word.
    """
    kept = (c for c in text.lower() if c not in string.punctuation and unicodedata.category(c)[0] != "P")
    return _WORD.findall(_ARTICLES.sub(" ", "".join(kept)))


def word_f1(answer: str, expected: str) -> float:
    """Return the harmonic mean of precision and recall of an answer's words."""
    given, wanted = answer_words(answer), answer_words(expected)
    if not given or not wanted:
        return float(given == wanted)
    return 2 * (Counter(given) & Counter(wanted)).total() / (len(given) + len(wanted))


class AnswerF1(Metric):
    """F1 of the answer's words against the most similar of the expected answers."""

    name, quality, needs_answer = "answer_f1", True, True

    def score(self, outcome: Outcome) -> float | None:
        """Return the F1, or None without an answer or an expected one."""
        if outcome.answer is None or not outcome.question.answers:
            return None
        return max(word_f1(outcome.answer, expected) for expected in outcome.question.answers)


class AnswerExact(Metric):
    """1 if the answer equals one of the expected answers in SQuAD's normal form, else 0."""

    name, needs_answer = "answer_exact", True

    def score(self, outcome: Outcome) -> float | None:
        """Return 1.0 or 0.0, or None without an answer or an expected one."""
        if outcome.answer is None or not outcome.question.answers:
            return None
        given = answer_words(outcome.answer)
        return float(any(given == answer_words(expected) for expected in outcome.question.answers))


class JudgeMetric(Metric):
    """The score that a LlamaIndex evaluator gives the answer.

    Args:
        name: its column in the report.
        evaluator: the judge.
    """

    needs_answer = True

    def __init__(self, name: str, evaluator: BaseEvaluator) -> None:
        self.name = name
        self.evaluator = evaluator

    def score(self, outcome: Outcome) -> float | None:
        """Raise an error: a judge is asked by `ascore` only."""
        raise NotImplementedError(f"{self.name} is measured with `await metric.ascore(outcome)`")

    async def ascore(self, outcome: Outcome) -> float | None:
        """Return the judge's score, or None without an answer."""
        if outcome.answer is None:
            return None
        result = await self.evaluator.aevaluate(
            query=outcome.question.text,
            response=outcome.answer,
            contexts=[hit.node.get_content(metadata_mode=MetadataMode.LLM) for hit in outcome.nodes],
        )
        if result.invalid_result:
            raise ValueError(f"the evaluator gave no valid result: {result.invalid_reason}")
        return result.score


def judges(llm: LLM) -> list[Metric]:
    """Return LlamaIndex's Faithfulness and Relevancy evaluators as metrics."""
    return [
        JudgeMetric("faithfulness", FaithfulnessEvaluator(llm=llm)),
        JudgeMetric("relevancy", RelevancyEvaluator(llm=llm)),
    ]

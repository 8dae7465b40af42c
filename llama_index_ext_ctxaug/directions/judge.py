"""Ask a language model on which side of each excerpt context is missing: one call each, or one for all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from llama_index.core.constants import DEFAULT_NUM_OUTPUTS
from llama_index.core.llms import LLM
from llama_index.core.node_parser import TokenTextSplitter
from llama_index.core.prompts import BasePromptTemplate

from llama_index_ext_ctxaug.budget.fit import Tokenizer
from llama_index_ext_ctxaug.directions.answer import Answer, parse_direction, parse_directions
from llama_index_ext_ctxaug.directions.labels import Labels
from llama_index_ext_ctxaug.directions.llm_call import LLMCall, describe
from llama_index_ext_ctxaug.errors import ConfigurationError, UnclearAnswerError
from llama_index_ext_ctxaug.flow import Flow, SideBySide, ask

SHOWN_CHARACTERS = 100
"""Maximum characters of a reply in a warning."""

MARGIN = 100
"""Tokens of the context window left free, since models count messages and words a little differently."""

Reason = Literal["answer", "unclear", "llm_error", "no_neighbor", "blank"]
"""The ground of a decision; all but the first mean NONE."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The side of one excerpt on which context is missing.

    Attributes:
        direction: previous, next, none or both.
        reason: the ground of the decision.
        answer: the model's reply; for a long excerpt under the accumulating modes the replies to its parts,
            joined by newlines.
        error: the model's error in one line, if it failed.
    """

    direction: Answer
    reason: Reason
    answer: str | None = None
    error: str | None = None


@dataclass
class DirectionJudge:
    """Judge excerpts with one model and one set of prompts, during one call.

    Attributes:
        llm: the model.
        infer: prompt with `context_str` and `query_str`.
        refine: prompt with `context_msg`, `query_str` and `existing_answer`.
        together: prompt with `context_str` and `query_str` for all excerpts at once; None for one call each.
        parts: for an excerpt too long for one prompt, refine the answer part by part, unite the answers of
            all parts, or judge only the first part.
        num_workers: maximum concurrent calls.
        timeout: maximum seconds of a call.
        labels: words of another language, see `parse_direction`.
        raise_unclear: raise for a reply that cannot be read, instead of deciding NONE.
        raise_errors: raise the errors of the model, instead of deciding NONE.
        tokenizer: splits texts into tokens, to count them.
        sent: tokens of each prompt sent so far. Template and texts are counted apart, so a count can be
            a few tokens off.
    """

    llm: LLM
    infer: BasePromptTemplate
    refine: BasePromptTemplate
    together: BasePromptTemplate | None
    parts: Literal["refine", "unite", "first"]
    num_workers: int
    timeout: float | None
    labels: Labels | None
    raise_unclear: bool
    raise_errors: bool
    tokenizer: Tokenizer
    sent: list[int] = field(default_factory=list, init=False)
    _frames: dict[int, int] = field(default_factory=dict, init=False)

    def judge(self, excerpts: Sequence[str], query: str) -> Flow[list[Decision]]:
        """Judge distinct excerpts; the decisions are in their order."""
        if self.together and len(excerpts) > 1:
            decisions = yield from self._judge_together(self.together, excerpts, query)
            if decisions is not None:
                return decisions
        flows = [self._judge_one(excerpt, query) for excerpt in excerpts]
        return (yield from ask(SideBySide(flows, self.num_workers)))

    def _judge_one(self, excerpt: str, query: str) -> Flow[Decision]:
        try:
            replies = yield from self._replies(excerpt, query)
        except Exception as error:
            return self._failed(error)
        verdicts = [parse_direction(reply, self.labels) for reply in replies]
        raw = "\n".join(replies)
        if None in verdicts:
            if self.raise_unclear:
                raise UnclearAnswerError(
                    f"the LLM's answer names no direction: {raw[:SHOWN_CHARACTERS]!r}; "
                    'set on_unclear="none" to count it as NONE'
                )
            return Decision("none", "unclear", raw)
        return Decision(_union(cast("list[Answer]", verdicts)), "answer", raw)

    def _replies(self, excerpt: str, query: str) -> Flow[list[str]]:
        """Return the replies that count: one for each part under "unite", else the last."""
        replies: list[str] = []
        for part in self._split(excerpt, query):
            if replies and self.parts == "refine":
                so_far = replies.pop()
                verdict = parse_direction(so_far, self.labels)
                so_far = verdict.upper() if verdict else so_far[:SHOWN_CHARACTERS]
                reply = yield from self._ask(self.refine, query, context_msg=part, existing_answer=so_far)
            else:
                reply = yield from self._ask(self.infer, query, context_str=part)
            replies.append(reply)
        return replies

    def _split(self, excerpt: str, query: str) -> list[str]:
        """Split an excerpt into parts that fit into a prompt each."""
        room = self._room(self.infer, query, "context_str")
        if self._count(excerpt) <= room:
            return [excerpt]
        if self.parts == "refine":
            room = min(room, self._room(self.refine, query, "context_msg", "existing_answer"))
        splitter = TokenTextSplitter(chunk_size=room, chunk_overlap=room // 10, tokenizer=self._tokens)
        parts = splitter.split_text(excerpt)
        return parts[:1] if self.parts == "first" else parts

    def _room(self, prompt: BasePromptTemplate, query: str, *others: str) -> int:
        """Return how many tokens a prompt has room for beside the query and the answer."""
        limits = self.llm.metadata
        output = limits.num_output if limits.num_output > 0 else DEFAULT_NUM_OUTPUTS
        taken = self._frame(prompt, query, *others)
        room = limits.context_window - output - taken - MARGIN
        if room <= 0:
            raise ConfigurationError(
                f"the prompt takes {taken} tokens and the answer {output} of the LLM's context window of "
                f"{limits.context_window}: no room is left for an excerpt"
            )
        return room

    def _frame(self, prompt: BasePromptTemplate, query: str, *others: str) -> int:
        """Count the tokens of a prompt with the query alone, once, since worked examples can be long."""
        if id(prompt) not in self._frames:
            text = prompt.format(llm=self.llm, query_str=query, **dict.fromkeys(others, ""))
            self._frames[id(prompt)] = self._count(text)
        return self._frames[id(prompt)]

    def _count(self, text: str) -> int:
        return len(self.tokenizer(text))

    def _tokens(self, text: str) -> list[object]:
        return list(self.tokenizer(text))

    def _judge_together(
        self, prompt: BasePromptTemplate, excerpts: Sequence[str], query: str
    ) -> Flow[list[Decision] | None]:
        """Judge all excerpts in one call; None if they do not fit into a prompt or the reply is unusable."""
        numbered = "\n\n".join(f"Excerpt {number}: {text}" for number, text in enumerate(excerpts, start=1))
        try:
            if self._count(numbered) > self._room(prompt, query, "context_str"):
                return None
            reply = yield from self._ask(prompt, query, context_str=numbered)
        except Exception as error:
            return [self._failed(error)] * len(excerpts)
        verdicts = parse_directions(reply, len(excerpts), self.labels)
        if verdicts is None:
            return None
        return [Decision(verdict, "answer", reply) for verdict in verdicts]

    def _ask(self, prompt: BasePromptTemplate, query: str, **rest: str) -> Flow[str]:
        self.sent.append(self._frame(prompt, query, *rest) + sum(self._count(text) for text in rest.values()))
        return (yield from ask(LLMCall(self.llm, prompt, {"query_str": query, **rest}, self.timeout)))

    def _failed(self, error: Exception) -> Decision:
        if self.raise_errors:
            raise error
        return Decision("none", "llm_error", error=describe(error, self.llm))


def _union(directions: Iterable[Answer]) -> Answer:
    sides = set(directions) - {"none"}
    if len(sides) > 1:
        return "both"
    return sides.pop() if sides else "none"

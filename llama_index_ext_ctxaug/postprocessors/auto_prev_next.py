"""Add chunks before or after each hit where a language model says that they are needed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

from llama_index.core import Settings
from llama_index.core.bridge.pydantic import Field, ValidationInfo, field_serializer, field_validator
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.prompts.mixin import PromptDictType, PromptMixin, PromptMixinType
from llama_index.core.response_synthesizers import ResponseMode
from llama_index.core.schema import MetadataMode, QueryBundle
from typing_extensions import override

from llama_index_ext_ctxaug.budget.fit import Tokenizer
from llama_index_ext_ctxaug.budget.tokenizer import tokenizer_or_default
from llama_index_ext_ctxaug.directions.judge import SHOWN_CHARACTERS, Decision, DirectionJudge
from llama_index_ext_ctxaug.directions.prompts import (
    DEFAULT_INFER_PROMPT,
    DEFAULT_REFINE_PROMPT,
    DEFAULT_TOGETHER_PROMPT,
    as_template,
    as_text,
)
from llama_index_ext_ctxaug.engine.instrumentation import current_report
from llama_index_ext_ctxaug.engine.verbose import show
from llama_index_ext_ctxaug.errors import ConfigurationError
from llama_index_ext_ctxaug.events import DirectionsChosenEvent
from llama_index_ext_ctxaug.expansion.expansion import Expansion, Reach
from llama_index_ext_ctxaug.flow import Flow
from llama_index_ext_ctxaug.postprocessors.base import ContextAugmenter

logger = logging.getLogger(__name__)
dispatcher = get_dispatcher(__name__)

AnswerLabel = Literal["previous", "next", "none", "both", "not"]

_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "infer_prev_next_tmpl": ("context_str", "query_str"),
    "refine_prev_next_tmpl": ("context_msg", "query_str", "existing_answer"),
    "together_tmpl": ("context_str", "query_str"),
}
_PARTS: Mapping[ResponseMode, Literal["refine", "unite", "first"]] = {
    ResponseMode.COMPACT: "refine",
    ResponseMode.REFINE: "refine",
    ResponseMode.ACCUMULATE: "unite",
    ResponseMode.COMPACT_ACCUMULATE: "unite",
    ResponseMode.SIMPLE_SUMMARIZE: "first",
}


class _View(NamedTuple):
    """The text of a hit with the chunks it reaches.

    Attributes:
        text: the text.
        more: True if a further chunk could be added.
    """

    text: str
    more: bool


class AutoPrevNextNodePostprocessor(ContextAugmenter, PromptMixin):
    """Add the chunks before or after a hit where a language model says that the question needs them.

    A drop-in replacement for LlamaIndex's postprocessor of the same name: the parameters and defaults are the
    same, only the import changes. Hits are judged concurrently. Replies are read as PREVIOUS, NEXT, NONE or
    BOTH in any formatting, in English or Chinese.

    **Requires**: a query; a docstore that holds the chunks; PREVIOUS/NEXT relationships or another
    source of their order (see `ContextAugmenter`); a language model, by default `Settings.llm`.

    **Guarantees**: those of `ContextAugmenter`; the output does not depend on the order in which replies
    arrive. The model is not called for a blank hit or one without neighbors to add; hits of equal text share
    one call.

    **On failure**: a reply that cannot be read, or an error of the model, counts as NONE with one warning
    for each run of the postprocessor; `on_unclear="raise"` and `on_llm_error="raise"` raise instead.

    Example:
        ```python
        from llama_index_ext_ctxaug import AutoPrevNextNodePostprocessor

        augmenter = AutoPrevNextNodePostprocessor(docstore=index.docstore, llm=llm, num_nodes=2)
        engine = index.as_query_engine(node_postprocessors=[augmenter])
        ```
    """

    _ignored: ClassVar[frozenset[str]] = frozenset({"service_context"})

    llm: LLM | None = Field(
        default=None, exclude=True, repr=False, description="Language model; None for Settings.llm."
    )
    num_nodes: int = Field(default=1, ge=0, description="Number of chunks to add on a side that is needed.")
    infer_prev_next_tmpl: BasePromptTemplate = Field(
        default=DEFAULT_INFER_PROMPT,
        description="Prompt with {context_str} and {query_str}: a string or a template.",
    )
    refine_prev_next_tmpl: BasePromptTemplate = Field(
        default=DEFAULT_REFINE_PROMPT,
        description="Prompt for the further parts of a long hit, with {context_msg}, {query_str} and "
        "{existing_answer}: a string or a template.",
    )
    verbose: bool = Field(
        default=False, description="Show each decision: logged at level INFO, or written to standard output."
    )
    response_mode: ResponseMode = Field(
        default=ResponseMode.COMPACT,
        description="Handling of a hit too long for one prompt: compact and refine refine the answer part by "
        "part, accumulate and compact_accumulate unite the answers of the parts, simple_summarize judges the "
        "first part.",
    )
    decide: Literal["each", "together"] = Field(
        default="each",
        description="One call for each hit, or one call for all hits; the latter falls back to one for each "
        "hit if the reply is unusable.",
    )
    together_tmpl: BasePromptTemplate = Field(
        default=DEFAULT_TOGETHER_PROMPT,
        description='Prompt under decide="together", with {context_str} (hits, numbered) and {query_str}.',
    )
    num_workers: int = Field(default=4, ge=1, description="Maximum concurrent calls of the model.")
    llm_timeout: float | None = Field(default=None, gt=0, description="Maximum seconds of one call.")
    max_rounds: int = Field(
        default=1,
        ge=1,
        description="Maximum rounds of asking with the extended text until the answer is NONE.",
    )
    answer_labels: dict[AnswerLabel, list[str]] | None = Field(
        default=None, description="Words of another language for the answers and for denials."
    )
    on_unclear: Literal["none", "raise"] = Field(
        default="none", description="Handling of a reply that cannot be read: count it as NONE, or raise."
    )
    on_llm_error: Literal["none", "raise"] = Field(
        default="none",
        description="Handling of a failure of the model, llm_timeout included: count it as NONE, or raise.",
    )

    @field_validator(*_VARIABLES, mode="before")
    @classmethod
    def _check_prompt(cls, value: Any, info: ValidationInfo) -> BasePromptTemplate:
        name = info.field_name or ""
        return as_template(value, name, _VARIABLES[name])

    @field_validator("response_mode")
    @classmethod
    def _check_mode(cls, value: ResponseMode) -> ResponseMode:
        if value not in _PARTS:
            raise ValueError(
                f"response_mode {value.value!r} does not use the templates; use one of "
                + ", ".join(repr(mode.value) for mode in _PARTS)
            )
        return value

    @field_serializer(*_VARIABLES)
    def _save_prompt(self, value: BasePromptTemplate) -> str | list[dict[str, str]]:
        return as_text(value)

    def _get_prompts(self) -> PromptDictType:
        return {name: getattr(self, name) for name in _VARIABLES}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        for name, variables in _VARIABLES.items():
            if name in prompts:
                setattr(self, name, as_template(prompts[name], name, variables))

    def _get_prompt_modules(self) -> PromptMixinType:
        return {}

    @override
    def expand(self, expansion: Expansion, query: QueryBundle | None) -> Flow[None]:
        if query is None:
            raise ConfigurationError(
                f"{self.class_name()} needs a query, got None: pass query_str=... or query_bundle=..., "
                "as query engines do, or use PrevNextNodePostprocessor, which needs none"
            )
        if self.num_nodes == 0:
            return
        reaches = dict.fromkeys(expansion.hits, Reach())
        asked = list(expansion.hits)
        for number in range(1, self.max_rounds + 1):
            views = yield from self._view(expansion, {hit_id: reaches[hit_id] for hit_id in asked})
            decisions = yield from self._decide(views, query.query_str, number)
            asked = [hit_id for hit_id in asked if decisions[hit_id].direction != "none"]
            for hit_id in asked:
                reaches[hit_id] = self._further(reaches[hit_id], decisions[hit_id])
            if not asked:
                break
        yield from expansion.expand(reaches)

    def _view(self, expansion: Expansion, reaches: Mapping[str, Reach]) -> Flow[dict[str, _View]]:
        """Return the text of each hit with the chunks it reaches, and look one chunk further; one read."""
        further = {
            hit_id: Reach(previous=reach.previous + 1, next=reach.next + 1)
            for hit_id, reach in reaches.items()
        }
        walks = yield from expansion.walk(further)
        reached = {(walk.hit_id, walk.direction): walk.node_ids for walk in walks}
        views: dict[str, _View] = {}
        for hit_id, reach in reaches.items():
            before, after = reached.get((hit_id, "previous"), []), reached.get((hit_id, "next"), [])
            run = [*reversed(before[: reach.previous]), hit_id, *after[: reach.next]]
            nodes = [node for id_ in run if (node := expansion.reader.node(id_)) is not None]
            text = "\n\n".join(node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes)
            beyond = [*before[reach.previous :], *after[reach.next :]]
            views[hit_id] = _View(text, more=any(self._is_worth_a_call(id_, expansion) for id_ in beyond))
        return views

    def _is_worth_a_call(self, neighbor_id: str, expansion: Expansion) -> bool:
        """Return True if reaching this node can change the output; a hit alone, and no further, cannot."""
        return self.num_nodes > 1 or self.max_rounds > 1 or neighbor_id not in expansion.hits

    def _further(self, reach: Reach, decision: Decision) -> Reach:
        previous = self.num_nodes if decision.direction in ("previous", "both") else 0
        next_ = self.num_nodes if decision.direction in ("next", "both") else 0
        return replace(reach, previous=reach.previous + previous, next=reach.next + next_)

    def _decide(self, views: Mapping[str, _View], query: str, number: int) -> Flow[dict[str, Decision]]:
        judge = self._new_judge((yield from tokenizer_or_default(self.tokenizer)))
        excerpts = list(
            dict.fromkeys(view.text for view in views.values() if view.more and view.text.strip())
        )
        judged: dict[str, Decision] = {}
        if excerpts:
            judged = dict(zip(excerpts, (yield from judge.judge(excerpts, query)), strict=True))
        decisions = {hit_id: _decision(view, judged) for hit_id, view in views.items()}
        self._report(decisions, judged, judge, number)
        return decisions

    def _new_judge(self, tokenizer: Tokenizer) -> DirectionJudge:
        return DirectionJudge(
            llm=self.llm or Settings.llm,
            infer=self.infer_prev_next_tmpl,
            refine=self.refine_prev_next_tmpl,
            together=self.together_tmpl if self.decide == "together" else None,
            parts=_PARTS[self.response_mode],
            num_workers=self.num_workers,
            timeout=self.llm_timeout,
            labels={str(kind): words for kind, words in (self.answer_labels or {}).items()},
            raise_unclear=self.on_unclear == "raise",
            raise_errors=self.on_llm_error == "raise",
            tokenizer=tokenizer,
        )

    def _report(
        self,
        decisions: Mapping[str, Decision],
        judged: Mapping[str, Decision],
        judge: DirectionJudge,
        number: int,
    ) -> None:
        name = self.class_name()
        unclear = [d.answer or "" for d in judged.values() if d.reason == "unclear"]
        if unclear:
            logger.warning(
                "%s: %d of %d answers name no direction and count as NONE (first: %r)",
                name,
                len(unclear),
                len(judged),
                unclear[0][:SHOWN_CHARACTERS],
            )
        failed = [d.error for d in judged.values() if d.reason == "llm_error"]
        if failed:
            logger.warning(
                "%s: the LLM failed on %d of %d hits, which count as NONE (first: %s)",
                name,
                len(failed),
                len(judged),
                failed[0],
            )
        if self.verbose:
            for hit_id, decision in decisions.items():
                direction = decision.direction.upper()
                show(logger, "%s: %s -> %s (%s)", name, hit_id, direction, decision.reason)
        current_report().llm_calls += len(judge.sent)
        dispatcher.event(
            DirectionsChosenEvent(
                augmenter=name,
                round=number,
                decisions=[{"hit_id": hit_id, **_as_dict(d)} for hit_id, d in decisions.items()],
                calls=len(judge.sent),
                prompt_tokens=sum(judge.sent),
            )
        )


def _decision(view: _View, judged: Mapping[str, Decision]) -> Decision:
    if not view.more:
        return Decision("none", "no_neighbor")
    return judged.get(view.text) or Decision("none", "blank")


def _as_dict(decision: Decision) -> dict[str, Any]:
    said = {"answer": decision.answer, "error": decision.error}
    return {
        "direction": decision.direction,
        "reason": decision.reason,
        **{key: value for key, value in said.items() if value is not None},
    }

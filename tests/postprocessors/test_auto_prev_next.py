"""AutoPrevNextNodePostprocessor: the hits that are judged, the effects of answers, and the reports."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers import positions, recorded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core import Settings
from llama_index.core.llms import ChatMessage, CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.prompts import ChatPromptTemplate, PromptTemplate
from pydantic import ValidationError

from llama_index_ext_ctxaug import (
    AutoPrevNextNodePostprocessor,
    ConfigurationError,
    DirectionsChosenEvent,
    UnclearAnswerError,
    read_provenance,
)
from llama_index_ext_ctxaug.testing import ObservedDocstore, ScriptedLLM, docstore_of, hits, linked_document
from llama_index_ext_ctxaug.testing.worlds import World, shuffled, worlds

QUERY = "What is told?"
Answers = Callable[[str], str]


def excerpt(prompt: str) -> str:
    """Return the excerpt that a default prompt asks about."""
    return prompt.rsplit("Excerpt: ", 1)[1].rsplit("\nQuestion: ", 1)[0]


def by_chunk(answers: dict[int, str]) -> Answers:
    """Answer by the number of the chunk in question; NONE for others."""
    return lambda prompt: answers.get(int(re.search(r"chunk (\d+)", excerpt(prompt))[1]), "NONE")  # type: ignore[index]


@pytest.fixture
def decisions() -> Iterator[list[DirectionsChosenEvent]]:
    """Collect the events about directions."""
    with recorded(DirectionsChosenEvent) as events:
        yield events


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("PREVIOUS", [1, 2, 3]), ("NEXT", [3, 4, 5]), ("BOTH", [1, 2, 3, 4, 5]), ("NONE", [3])],
)
def test_the_answer_decides(postprocess: Any, answer: str, expected: list[int]) -> None:
    """PREVIOUS, NEXT and BOTH add num_nodes chunks on the named sides; NONE adds nothing."""
    nodes = linked_document(8)
    augmenter = AutoPrevNextNodePostprocessor(
        docstore=docstore_of(nodes), llm=ScriptedLLM(answers=[answer]), num_nodes=2
    )
    result = postprocess(augmenter, hits(nodes, [3]), query_str=QUERY)
    assert positions(result) == expected
    added = [hit for hit in result if (p := read_provenance(hit.node)) and p.role == "neighbor"]
    assert len(added) == len(expected) - 1


def test_each_hit_has_its_own_answer(postprocess: Any) -> None:
    """Runs keep the rank of their first hit and are in reading order; hits keep their scores."""
    nodes = linked_document(30)
    llm = ScriptedLLM(answers=by_chunk({20: "PREVIOUS", 3: "NEXT", 4: "NEXT", 11: "NONE"}))
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm)
    retrieved = hits(nodes, [20, 4, 11, 3])
    result = postprocess(augmenter, retrieved, query_str=QUERY)
    assert positions(result) == [19, 20, 3, 4, 5, 11]
    assert {hit.node.node_id: hit.score for hit in result if hit.score is not None} == {
        hit.node.node_id: hit.score for hit in retrieved
    }


def test_the_prompt_carries_excerpt_and_query(postprocess: Any) -> None:
    """The hit's own text and the question are in the prompt, which asks for exactly one word."""
    nodes = linked_document(3)
    llm = ScriptedLLM(answers=["NONE"])
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm)
    postprocess(augmenter, hits(nodes, [1]), query_str="Who won?")
    assert excerpt(llm.prompts[0]) == nodes[1].text
    assert "Question: Who won?" in llm.prompts[0]
    assert "exactly one word" in llm.prompts[0]


def test_the_model_of_the_settings(postprocess: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an LLM of its own it uses Settings.llm at the time of the call."""
    nodes = linked_document(3)
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes))
    llm = ScriptedLLM(answers=["NEXT"])
    monkeypatch.setattr(Settings, "_llm", llm)
    assert positions(postprocess(augmenter, hits(nodes, [1]), query_str=QUERY)) == [1, 2]
    assert len(llm.prompts) == 1


def test_no_call_without_a_neighbor(postprocess: Any, decisions: list[DirectionsChosenEvent]) -> None:
    """A document's only chunk, and hits between hits, have nothing to add and cost no call."""
    alone, nodes = linked_document(1, source_id="alone"), linked_document(5)
    llm = ScriptedLLM(answers=["BOTH"])
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(alone, nodes), llm=llm)
    retrieved = hits(alone, [0]) + hits(nodes, [2, 1, 3])
    result = postprocess(augmenter, retrieved, query_str=QUERY)
    assert positions(result) == [0, 0, 1, 2, 3, 4]
    assert sorted(excerpt(prompt) for prompt in llm.prompts) == [nodes[1].text, nodes[3].text]
    reasons = [decision["reason"] for decision in decisions[0].decisions]
    assert reasons == ["no_neighbor", "no_neighbor", "answer", "answer"]


def test_no_call_where_filters_refuse_the_neighbors(postprocess: Any) -> None:
    """A neighbor that may not be added causes no call."""
    nodes = linked_document(5)
    llm = ScriptedLLM(answers=["BOTH"])
    augmenter = AutoPrevNextNodePostprocessor(
        docstore=docstore_of(nodes), llm=llm, neighbor_filters=lambda node: False
    )
    assert positions(postprocess(augmenter, hits(nodes, [2]), query_str=QUERY)) == [2]
    assert llm.prompts == []


def test_no_call_for_blank_and_repeated_text(
    postprocess: Any, decisions: list[DirectionsChosenEvent]
) -> None:
    """A blank hit adds nothing; hits of equal text share one call, and each expands by its answer."""
    nodes = linked_document(["a", " \n", "b", "same", "c", "d", "same", "e"])
    llm = ScriptedLLM(answers=["NEXT"])
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm)
    result = postprocess(augmenter, hits(nodes, [1, 3, 6]), query_str=QUERY)
    assert positions(result) == [1, 3, 4, 6, 7]
    assert [excerpt(prompt) for prompt in llm.prompts] == ["same"]
    assert [decision["reason"] for decision in decisions[0].decisions] == ["blank", "answer", "answer"]


def test_no_call_for_no_nodes(postprocess: Any) -> None:
    """num_nodes=0 and an empty list of hits make no call and no read."""
    nodes = linked_document(3)
    store, llm = ObservedDocstore(docstore_of(nodes)), ScriptedLLM(answers=["BOTH"])
    retrieved = hits(nodes, [1])
    nothing = AutoPrevNextNodePostprocessor(docstore=store, llm=llm, num_nodes=0)
    assert postprocess(nothing, retrieved, query_str=QUERY) == retrieved
    assert postprocess(AutoPrevNextNodePostprocessor(docstore=store, llm=llm), []) == []
    assert (llm.prompts, store.batches) == ([], [])


def test_a_query_is_needed(postprocess: Any) -> None:
    """Without a query the error names what to pass, and an augmenter that needs none."""
    nodes = linked_document(3)
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=ScriptedLLM(answers=["NEXT"]))
    with pytest.raises(ConfigurationError, match=r"query_str=.*PrevNextNodePostprocessor"):
        postprocess(augmenter, hits(nodes, [1]))


def test_one_read_for_all(postprocess: Any) -> None:
    """The neighbors of all hits are read at once before the calls, and not again for the expansion."""
    nodes = linked_document(40)
    store = ObservedDocstore(docstore_of(nodes))
    augmenter = AutoPrevNextNodePostprocessor(docstore=store, llm=ScriptedLLM(answers=["BOTH"]))
    postprocess(augmenter, hits(nodes, range(1, 40, 4)), query_str=QUERY)
    assert len(store.batches) == 1
    assert len(set(store.node_reads)) == len(store.node_reads)


# ---------------------------------------------------------------- unclear answers and errors


@pytest.mark.parametrize("answer", ["", "我不知道。", "Perhaps. " * 40])
def test_an_unclear_answer_is_none(postprocess: Any, caplog: pytest.LogCaptureFixture, answer: str) -> None:
    """An unclear answer does not fail the query; one warning shows its first 100 characters."""
    nodes = linked_document(20)
    llm = ScriptedLLM(answers=by_chunk({4: answer, 9: answer, 14: "NEXT"}))
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm)
    with caplog.at_level(logging.WARNING):
        result = postprocess(augmenter, hits(nodes, [4, 9, 14]), query_str=QUERY)
    assert positions(result) == [4, 9, 14, 15]
    assert len(caplog.messages) == 1
    assert "2 of 3 answers" in caplog.messages[0]
    assert repr(answer[:100]) in caplog.messages[0]


def test_an_unclear_answer_can_raise(postprocess: Any) -> None:
    """on_unclear="raise" raises an error that shows the answer."""
    nodes = linked_document(5)
    augmenter = AutoPrevNextNodePostprocessor(
        docstore=docstore_of(nodes), llm=ScriptedLLM(answers=["Hm?"]), on_unclear="raise"
    )
    with pytest.raises(UnclearAnswerError, match="'Hm\\?'"):
        postprocess(augmenter, hits(nodes, [1, 3]), query_str=QUERY)


class Failing(ScriptedLLM):
    """Fails on prompts about one chunk."""

    api_key: str = "sk-secret"

    def _reply(self, prompt: str) -> str:
        if "chunk 4 " in excerpt(prompt):
            raise RuntimeError(f"no service for {self.api_key}")
        return super()._reply(prompt)


def test_an_error_of_the_model_is_none(
    postprocess: Any, caplog: pytest.LogCaptureFixture, decisions: list[DirectionsChosenEvent]
) -> None:
    """An LLM error counts as NONE for its hit, with one warning without the key; others are decided."""
    nodes = linked_document(20)
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=Failing(answers=["NEXT"]))
    with caplog.at_level(logging.DEBUG, logger="llama_index_ext_ctxaug"):
        result = postprocess(augmenter, hits(nodes, [4, 9]), query_str=QUERY)
    assert positions(result) == [4, 9, 10]
    assert len(caplog.messages) == 1
    assert "1 of 2 hits" in caplog.messages[0]
    assert "RuntimeError: no service for ***" in caplog.messages[0]
    assert decisions[0].decisions[0]["reason"] == "llm_error"
    shown = caplog.text + repr(augmenter) + augmenter.to_json() + decisions[0].model_dump_json()
    assert "sk-secret" not in shown


def test_an_error_of_the_model_can_raise(postprocess: Any) -> None:
    """on_llm_error="raise" raises the LLM's error unchanged."""
    nodes = linked_document(20)
    augmenter = AutoPrevNextNodePostprocessor(
        docstore=docstore_of(nodes), llm=Failing(answers=["NEXT"]), on_llm_error="raise"
    )
    with pytest.raises(RuntimeError, match="no service"):
        postprocess(augmenter, hits(nodes, [9, 4]), query_str=QUERY)


def test_a_slow_model_is_none(postprocess: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A call that exceeds llm_timeout counts as NONE, and is not waited for."""
    nodes = linked_document(5)
    augmenter = AutoPrevNextNodePostprocessor(
        docstore=docstore_of(nodes), llm=ScriptedLLM(answers=["NEXT"], latency=3), llm_timeout=0.05
    )
    begin = time.perf_counter()
    with caplog.at_level(logging.WARNING):
        assert positions(postprocess(augmenter, hits(nodes, [2]), query_str=QUERY)) == [2]
    assert time.perf_counter() - begin < 2
    assert "no answer within 0.05 s" in caplog.messages[0]


def test_a_quick_model_is_not_late(postprocess: Any) -> None:
    """Within llm_timeout, answers and errors are passed on unchanged."""
    nodes = linked_document(20)
    augmenter = AutoPrevNextNodePostprocessor(
        docstore=docstore_of(nodes), llm=Failing(answers=["NEXT"]), llm_timeout=30
    )
    assert positions(postprocess(augmenter, hits(nodes, [4, 9]), query_str=QUERY)) == [4, 9, 10]
    raising = augmenter.model_copy(update={"on_llm_error": "raise"})
    with pytest.raises(RuntimeError, match="no service"):
        postprocess(raising, hits(nodes, [4]), query_str=QUERY)


def test_a_failing_store(postprocess: Any) -> None:
    """The docstore's error is raised before any call; on_store_error="return_hits" gives the hits."""
    nodes = linked_document(5)
    store, llm = ObservedDocstore(docstore_of(nodes), fail_after=0), ScriptedLLM(answers=["BOTH"])
    retrieved = hits(nodes, [2])
    with pytest.raises(ConnectionError):
        postprocess(AutoPrevNextNodePostprocessor(docstore=store, llm=llm), retrieved, query_str=QUERY)
    patient = AutoPrevNextNodePostprocessor(docstore=store, llm=llm, on_store_error="return_hits")
    assert postprocess(patient, retrieved, query_str=QUERY) == retrieved
    assert llm.prompts == []


# ---------------------------------------------------------------- cost


class Counting(ScriptedLLM):
    """Records how many of its calls run at once; it waits for the expected number."""

    expected: int = 0

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Answer and count the call."""
        with LOCK:
            UNDER_WAY.append(UNDER_WAY[-1] + 1)
        end = time.perf_counter() + 5
        while max(UNDER_WAY) < self.expected and time.perf_counter() < end:
            time.sleep(0.002)
        try:
            return super().complete(prompt, formatted, **kwargs)
        finally:
            with LOCK:
                UNDER_WAY.append(UNDER_WAY[-1] - 1)

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Answer and count the call."""
        UNDER_WAY.append(UNDER_WAY[-1] + 1)
        end = time.perf_counter() + 5
        while max(UNDER_WAY) < self.expected and time.perf_counter() < end:
            await asyncio.sleep(0.002)
        try:
            return await super().acomplete(prompt, formatted, **kwargs)
        finally:
            UNDER_WAY.append(UNDER_WAY[-1] - 1)


LOCK = threading.Lock()
UNDER_WAY = [0]


@pytest.mark.parametrize("workers", [1, 3, 10])
def test_calls_run_side_by_side(postprocess: Any, workers: int) -> None:
    """Exactly num_workers calls run at once, if there is enough work."""
    nodes = linked_document(40)
    UNDER_WAY[:] = [0]
    llm = Counting(answers=["NEXT"], latency=0.01, expected=workers)
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm, num_workers=workers)
    postprocess(augmenter, hits(nodes, range(1, 40, 4)), query_str=QUERY)
    assert max(UNDER_WAY) == workers
    assert len(llm.prompts) == 10


async def test_the_async_path_uses_async_calls() -> None:
    """Apostprocess_nodes awaits the LLM's async call."""
    nodes = linked_document(40)
    llm = ScriptedLLM(answers=["NEXT"])
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm)
    await augmenter.apostprocess_nodes(hits(nodes, [3, 8]), query_str=QUERY)
    assert llm.async_calls == len(llm.prompts) == 2


class SyncOnly(CustomLLM):
    """A user's model without async calls."""

    @property
    def metadata(self) -> LLMMetadata:
        """Return the defaults."""
        return LLMMetadata()

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Answer slowly."""
        time.sleep(0.01)
        return CompletionResponse(text="NEXT")

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        """Answer in one piece."""
        yield self.complete(prompt)


def test_a_model_without_async_calls(postprocess: Any) -> None:
    """A model that has only sync calls runs in threads, so that the event loop stays free."""
    nodes = linked_document(5)
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=SyncOnly())
    assert positions(postprocess(augmenter, hits(nodes, [1, 3]), query_str=QUERY)) == [1, 2, 3, 4]


async def test_a_cancelled_call_ends_the_others() -> None:
    """Cancelling the call cancels the model calls that are running."""
    nodes = linked_document(40)
    UNDER_WAY[:] = [0]
    augmenter = AutoPrevNextNodePostprocessor(
        docstore=docstore_of(nodes), llm=Counting(answers=["NEXT"], latency=60)
    )
    task = asyncio.create_task(augmenter.apostprocess_nodes(hits(nodes, [3, 8, 13]), query_str=QUERY))
    while UNDER_WAY[-1] < 3:
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert UNDER_WAY[-1] == 0


@given(st.permutations(range(4)), st.integers(1, 5))
@settings(max_examples=15, deadline=None)
def test_the_order_of_answers_never_shows(delays: list[int], workers: int) -> None:
    """Whichever answer arrives first, the output is the same."""
    nodes = linked_document(30)
    says = by_chunk({3: "NEXT", 9: "PREVIOUS", 15: "BOTH"})

    def slow(prompt: str) -> str:
        time.sleep(delays[[3, 9, 15, 21].index(int(re.search(r"chunk (\d+)", excerpt(prompt))[1]))] * 2e-3)  # type: ignore[index]
        return says(prompt)

    augmenter = AutoPrevNextNodePostprocessor(
        docstore=docstore_of(nodes), llm=ScriptedLLM(answers=slow), num_workers=workers
    )
    result = augmenter.postprocess_nodes(hits(nodes, [15, 3, 21, 9]), query_str=QUERY)
    assert positions(result) == [14, 15, 16, 3, 4, 21, 8, 9]


# ---------------------------------------------------------------- one call for all


def test_together_is_one_call(postprocess: Any, decisions: list[DirectionsChosenEvent]) -> None:
    """decide="together" sends all excerpts, numbered, in one call, and reads the answers by number."""
    nodes = linked_document(30)
    llm = ScriptedLLM(answers=['{"1": "NEXT", "2": "NONE", "3": "PREVIOUS"}'])
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm, decide="together")
    result = postprocess(augmenter, hits(nodes, [20, 4, 10]), query_str=QUERY)
    assert positions(result) == [20, 21, 4, 9, 10]
    assert len(llm.prompts) == decisions[0].calls == 1
    for number, place in ((1, 20), (2, 4), (3, 10)):
        assert f"Excerpt {number}: {nodes[place].text}" in llm.prompts[0]


@pytest.mark.parametrize("useless", ["NEXT", '{"1": "NEXT"}', '{"1": "NEXT", "2": "Hm?"}', ""])
def test_together_falls_back(postprocess: Any, useless: str) -> None:
    """After an unusable joint answer, each hit gets a call of its own."""
    nodes = linked_document(30)
    llm = ScriptedLLM(answers=[useless, "NEXT", "NEXT"])
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm, decide="together")
    assert positions(postprocess(augmenter, hits(nodes, [20, 4]), query_str=QUERY)) == [20, 21, 4, 5]
    assert len(llm.prompts) == 3


def test_together_that_does_not_fit(postprocess: Any) -> None:
    """Excerpts that do not fit into one prompt are judged one by one."""
    nodes = linked_document([f"Chunk {place} " + "tells of the sea. " * 85 for place in range(12)])
    llm = ScriptedLLM(answers=["NEXT"], context_window=900)
    augmenter = AutoPrevNextNodePostprocessor(
        docstore=docstore_of(nodes),
        llm=llm,
        decide="together",
        infer_prev_next_tmpl="{context_str} {query_str}",
        together_tmpl="{context_str} {query_str}",
    )
    assert positions(postprocess(augmenter, hits(nodes, [9, 4]), query_str=QUERY)) == [9, 10, 4, 5]
    assert len(llm.prompts) == 2


def test_together_with_a_failing_model(postprocess: Any) -> None:
    """An error of the one call counts as NONE for all, without further calls."""
    nodes = linked_document(30)
    calls: list[str] = []

    def fail(prompt: str) -> str:
        calls.append(prompt)
        raise RuntimeError("no service")

    augmenter = AutoPrevNextNodePostprocessor(
        docstore=docstore_of(nodes), llm=ScriptedLLM(answers=fail), decide="together"
    )
    assert positions(postprocess(augmenter, hits(nodes, [20, 4]), query_str=QUERY)) == [20, 4]
    assert len(calls) == 1


# ---------------------------------------------------------------- several rounds


def test_rounds_walk_on(postprocess: Any, decisions: list[DirectionsChosenEvent]) -> None:
    """max_rounds asks again with the expanded context, in reading order, until the answer is NONE."""
    nodes = linked_document(12)
    llm = ScriptedLLM(answers=["NEXT", "PREVIOUS", "NEXT", "NONE"])
    store = ObservedDocstore(docstore_of(nodes))
    augmenter = AutoPrevNextNodePostprocessor(docstore=store, llm=llm, max_rounds=9)
    assert positions(postprocess(augmenter, hits(nodes, [5]), query_str=QUERY)) == [4, 5, 6, 7]
    asked = ["\n\n".join(nodes[n].text for n in run) for run in ([5], [5, 6], [4, 5, 6], [4, 5, 6, 7])]
    assert [excerpt(prompt) for prompt in llm.prompts] == asked
    assert [event.round for event in decisions] == [1, 2, 3, 4]
    assert len(set(store.node_reads)) == len(store.node_reads)


def test_rounds_end(postprocess: Any) -> None:
    """Expansion ends after max_rounds, or earlier at the end of the document."""
    nodes = linked_document(6)
    llm = ScriptedLLM(answers=["NEXT"])
    three = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm, max_rounds=3)
    assert positions(postprocess(three, hits(nodes, [1]), query_str=QUERY)) == [1, 2, 3, 4]
    assert len(llm.prompts) == 3
    llm = ScriptedLLM(answers=["BOTH"])
    many = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm, max_rounds=50, num_nodes=2)
    assert positions(postprocess(many, hits(nodes, [2]), query_str=QUERY)) == [0, 1, 2, 3, 4, 5]
    assert len(llm.prompts) == 2


# ---------------------------------------------------------------- long hits


@pytest.mark.parametrize("mode", ["compact", "refine"])
def test_long_hits_are_refined(postprocess: Any, mode: str) -> None:
    """The parts of a hit too long for one prompt are refined in turn with the answer so far."""
    long = " ".join(f"Sentence {number} tells of the sea." for number in range(400))
    nodes = linked_document(["a", long, "c"])
    llm = ScriptedLLM(answers=["PREVIOUS", "NEXT"], context_window=2000)
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm, response_mode=mode)
    assert positions(postprocess(augmenter, hits(nodes, [1]), query_str=QUERY)) == [1, 2]
    assert len(llm.prompts) > 1
    assert "PREVIOUS" in llm.prompts[1].rsplit("the answer was: ", 1)[1][:20]
    for number in range(400):
        assert any(f"Sentence {number} tells" in prompt for prompt in llm.prompts)


def test_long_hits_are_united_or_cut(postprocess: Any) -> None:
    """Mode accumulate unites the answers of the parts; simple_summarize judges only the first part."""
    long = " ".join(f"Sentence {number} tells of the sea." for number in range(400))
    nodes = linked_document(["a", long, "c"])
    results = {}
    for mode in ("accumulate", "simple_summarize"):
        llm = ScriptedLLM(answers=["PREVIOUS", "NONE", "NEXT"], context_window=2000)
        augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm, response_mode=mode)
        results[mode] = (
            positions(postprocess(augmenter, hits(nodes, [1]), query_str=QUERY)),
            len(llm.prompts),
        )
    assert results["accumulate"][0] == [0, 1, 2]
    assert results["accumulate"][1] >= 3
    assert results["simple_summarize"] == ([0, 1], 1)


def test_a_window_too_small_for_the_prompt(postprocess: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A model with a window too small for the prompt counts as a failing model."""
    nodes = linked_document(3)
    llm = ScriptedLLM(answers=["NEXT"], context_window=64)
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm)
    with caplog.at_level(logging.WARNING):
        assert positions(postprocess(augmenter, hits(nodes, [1]), query_str=QUERY)) == [1]
    assert "no room is left" in caplog.messages[0]


@pytest.mark.parametrize("mode", ["tree_summarize", "generation", "no_text", "context_only"])
def test_modes_that_ignore_the_templates(mode: str) -> None:
    """Response modes that ignore the templates are rejected, and the error lists those that work."""
    with pytest.raises(ValidationError, match=f"'{mode}' does not use.*'compact'.*'refine'"):
        AutoPrevNextNodePostprocessor(docstore=docstore_of(), response_mode=mode)


# ---------------------------------------------------------------- prompts and saving


def test_prompts_of_all_kinds(postprocess: Any) -> None:
    """A string, a text template and a chat template all work as prompts."""
    nodes = linked_document(3)
    for prompt in (
        "{query_str} <- {context_str}",
        PromptTemplate("{query_str} <- {context_str}"),
        PromptTemplate("{q} <- {c}", template_var_mappings={"query_str": "q", "context_str": "c"}),
        ChatPromptTemplate([ChatMessage("{query_str} <- {context_str}")]),
    ):
        llm = ScriptedLLM(answers=["NEXT"])
        augmenter = AutoPrevNextNodePostprocessor(
            docstore=docstore_of(nodes), llm=llm, infer_prev_next_tmpl=prompt
        )
        postprocess(augmenter, hits(nodes, [1]), query_str=QUERY)
        assert f"{QUERY} <- {nodes[1].text}" in llm.prompts[0]


@pytest.mark.parametrize(
    ("name", "lacking", "missing"),
    [
        ("infer_prev_next_tmpl", "Context: {context_str}", "{query_str}"),
        ("infer_prev_next_tmpl", "", "{context_str}, {query_str}"),
        ("refine_prev_next_tmpl", "{context_msg} {query_str}", "{existing_answer}"),
        ("together_tmpl", "{query_str}", "{context_str}"),
    ],
)
def test_prompts_need_their_variables(name: str, lacking: str, missing: str) -> None:
    """A prompt without a required variable is rejected at construction and update, with its name."""
    with pytest.raises(ValidationError, match=re.escape(f"{name} lacks {missing}")):
        AutoPrevNextNodePostprocessor(docstore=docstore_of(), **{name: lacking})
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of())
    with pytest.raises(ConfigurationError, match=re.escape(f"{name} lacks {missing}")):
        augmenter.update_prompts({name: PromptTemplate(lacking)})
    with pytest.raises(ValidationError, match="must be a string or a prompt template"):
        AutoPrevNextNodePostprocessor(docstore=docstore_of(), **{name: 7})


def test_prompts_can_be_got_and_updated(postprocess: Any) -> None:
    """All three templates are prompts in LlamaIndex's sense, and an update applies to the next call."""
    nodes = linked_document(3)
    llm = ScriptedLLM(answers=["NEXT"])
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm)
    assert set(augmenter.get_prompts()) == {"infer_prev_next_tmpl", "refine_prev_next_tmpl", "together_tmpl"}
    augmenter.update_prompts({"infer_prev_next_tmpl": PromptTemplate("Mine: {context_str} {query_str}")})
    postprocess(augmenter, hits(nodes, [1]), query_str=QUERY)
    assert llm.prompts[0].startswith("Mine: ")


@pytest.mark.parametrize("prompt", [None, "{context_str} {query_str}"])
def test_saving(postprocess: Any, prompt: str | None) -> None:
    """to_dict and to_json omit docstore and LLM, dump prompts as plain data, and round-trip."""
    nodes = linked_document(3)
    store = docstore_of(nodes)
    more = {} if prompt is None else {"infer_prev_next_tmpl": prompt}
    augmenter = AutoPrevNextNodePostprocessor(
        docstore=store, llm=ScriptedLLM(answers=["BOTH"]), answer_labels={"next": ["suivant"]}, **more
    )
    data = json.loads(augmenter.to_json())
    assert data == augmenter.to_dict()
    assert not {"llm", "docstore"} & set(data)
    assert prompt is None or data["infer_prev_next_tmpl"] == prompt
    llm = ScriptedLLM(answers=["suivant"])
    again = AutoPrevNextNodePostprocessor.from_dict(data, docstore=store, llm=llm)
    assert again.to_dict() == data
    assert positions(postprocess(again, hits(nodes, [1]), query_str=QUERY)) == [1, 2]
    before = ScriptedLLM(answers=["suivant"])
    postprocess(augmenter.model_copy(update={"llm": before}), hits(nodes, [1]), query_str=QUERY)
    assert llm.prompts == before.prompts


def test_labels_of_another_language(postprocess: Any) -> None:
    """answer_labels adds words for the answers."""
    nodes = linked_document(3)
    augmenter = AutoPrevNextNodePostprocessor(
        docstore=docstore_of(nodes),
        llm=ScriptedLLM(answers=["Nicht vorher, sondern nachher."]),
        answer_labels={"previous": ["vorher"], "next": ["nachher"], "not": ["nicht"]},
    )
    assert positions(postprocess(augmenter, hits(nodes, [1]), query_str=QUERY)) == [1, 2]


# ---------------------------------------------------------------- what is reported


def test_events_and_verbose(
    postprocess: Any, decisions: list[DirectionsChosenEvent], caplog: pytest.LogCaptureFixture
) -> None:
    """The event holds each decision, its raw answer, the calls and the tokens; verbose logs decisions."""
    nodes = linked_document(20)
    llm = ScriptedLLM(answers=by_chunk({4: "**Next**, I think", 9: "dunno"}))
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm, verbose=True)
    with caplog.at_level(logging.INFO):
        postprocess(augmenter, hits(nodes, [4, 9]), query_str=QUERY)
    (event,) = decisions
    assert event.decisions == [
        {
            "hit_id": nodes[4].node_id,
            "direction": "next",
            "reason": "answer",
            "answer": "**Next**, I think",
        },
        {"hit_id": nodes[9].node_id, "direction": "none", "reason": "unclear", "answer": "dunno"},
    ]
    assert event.calls == 2
    sent = sum(len(Settings.tokenizer(prompt)) for prompt in llm.prompts)
    assert abs(event.prompt_tokens - sent) <= 2 * event.calls
    logged = "\n".join(record.getMessage() for record in caplog.records if record.levelno == logging.INFO)
    assert f"{nodes[4].node_id} -> NEXT (answer)" in logged
    assert f"{nodes[9].node_id} -> NONE (unclear)" in logged


# ---------------------------------------------------------------- promises over random stores


def answer_for(prompt: str) -> str:
    """Return an answer that depends on the excerpt alone."""
    return ("PREVIOUS", "NEXT", "NONE", "BOTH", "?!")[sum(map(ord, excerpt(prompt))) % 5]


@given(worlds(), st.integers(0, 3), st.integers(1, 3), st.integers(1, 4))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_promises(world: World, num_nodes: int, rounds: int, workers: int) -> None:
    """Hits and inputs stay, sync and async agree, and neighbors are of the hits' documents."""
    before = [(hit.to_dict(), hit.node.hash) for hit in world.hits]
    store = world.store()
    augmenter = AutoPrevNextNodePostprocessor(
        docstore=store,
        llm=ScriptedLLM(answers=answer_for),
        num_nodes=num_nodes,
        max_rounds=rounds,
        num_workers=workers,
    )
    result = augmenter.postprocess_nodes(world.hits, query_str=QUERY)
    assert len(set(store.node_reads)) == len(store.node_reads)
    again = asyncio.run(augmenter.apostprocess_nodes(world.hits, query_str=QUERY))
    assert [hit.to_dict() for hit in result] == [hit.to_dict() for hit in again]
    assert before == [(hit.to_dict(), hit.node.hash) for hit in world.hits]
    found = {hit.node.node_id for hit in world.hits}
    out = [hit.node.node_id for hit in result]
    assert found <= set(out)
    assert len(set(out)) == len(out)
    for hit in result:
        provenance = read_provenance(hit.node)
        if provenance is None:
            assert any(hit is given_hit for given_hit in world.hits)
        else:
            assert all(world.nodes[id_].ref_doc_id == hit.node.ref_doc_id for id_ in provenance.hits)


@given(worlds(tidy=True), st.integers(1, 2), st.integers(0, 100))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_order_of_hits_shows_in_ranks_alone(world: World, num_nodes: int, seed: int) -> None:
    """Hits in another order add the same nodes."""
    augmenter = AutoPrevNextNodePostprocessor(
        docstore=world.store(), llm=ScriptedLLM(answers=answer_for), num_nodes=num_nodes
    )
    one = augmenter.postprocess_nodes(world.hits, query_str=QUERY)
    other = augmenter.postprocess_nodes(shuffled(world.hits, seed), query_str=QUERY)
    assert {hit.node.node_id for hit in one} == {hit.node.node_id for hit in other}


def test_what_an_augmenter_added_is_not_judged(postprocess: Any) -> None:
    """A second run judges only the hits, and adds nothing around what was added."""
    nodes = linked_document(9)
    llm = ScriptedLLM(answers=by_chunk({4: "NEXT", 5: "NEXT"}))
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm, max_rounds=1)
    once = postprocess(augmenter, hits(nodes, [4]), query_str=QUERY)
    assert positions(postprocess(augmenter, once, query_str=QUERY)) == [4, 5]
    assert {excerpt(prompt) for prompt in llm.prompts} == {nodes[4].text}


def test_passages(postprocess: Any) -> None:
    """With output="passages" a hit and its wanted neighbor are one text."""
    nodes = linked_document(9)
    augmenter = AutoPrevNextNodePostprocessor(
        docstore=docstore_of(nodes), llm=ScriptedLLM(answers=["PREVIOUS"]), output="passages"
    )
    (passage,) = postprocess(augmenter, hits(nodes, [4]), query_str=QUERY)
    assert nodes[3].text in passage.node.text
    assert passage.node.text.endswith(nodes[4].text)

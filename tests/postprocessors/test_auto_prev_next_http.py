"""AutoPrevNextNodePostprocessor over a real OpenAI client and a loopback HTTP endpoint that misbehaves."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from helpers import positions, recorded
from llama_index.core.schema import NodeWithScore
from llama_index.llms.openai import OpenAI
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from llama_index_ext_ctxaug import (
    AutoPrevNextNodePostprocessor,
    ContextAugmentationEndEvent,
    DirectionsChosenEvent,
)
from llama_index_ext_ctxaug.directions.answer import parse_direction
from llama_index_ext_ctxaug.testing import docstore_of, hits, linked_document

KEY = "sk-very-secret-0123456789"
Post = Callable[..., list[NodeWithScore]]


@pytest.fixture(params=["sync", "async"])
def post(request: pytest.FixtureRequest) -> Post:
    """Call the postprocessor sync or async; the client may first read certificate files."""
    if request.param == "sync":
        return lambda augmenter, nodes: augmenter.postprocess_nodes(nodes, query_str="Who won?")
    return lambda augmenter, nodes: asyncio.run(augmenter.apostprocess_nodes(nodes, query_str="Who won?"))


def reply(text: str | None) -> dict[str, Any]:
    """Return a chat completion; None gives one without a choice."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o-mini",
        "choices": [] if text is None else [choice],
    }


def endpoint(server: HTTPServer, answer: Callable[[str], Response | dict[str, Any]]) -> list[dict[str, Any]]:
    """Serve answers to chat requests by the last message, and collect the bodies of the requests."""
    bodies: list[dict[str, Any]] = []

    def handle(request: Request) -> Response:
        assert request.headers["Authorization"] == f"Bearer {KEY}"
        bodies.append(json.loads(request.data))
        said = answer(bodies[-1]["messages"][-1]["content"])
        return said if isinstance(said, Response) else Response(json.dumps(said), mimetype="application/json")

    # A path of its own: a request that an earlier test gave up on may arrive only now.
    server.path = f"/{uuid4().hex}/v1"
    server.expect_request(f"{server.path}/chat/completions", method="POST").respond_with_handler(handle)
    return bodies


def model(server: HTTPServer, **options: Any) -> OpenAI:
    """Return the client, pointed at the endpoint."""
    options = {"max_retries": 0, "timeout": 20.0, **options}
    return OpenAI(model="gpt-4o-mini", api_key=KEY, api_base=server.url_for(server.path), **options)


def test_the_requests_carry_the_prompt(httpserver: HTTPServer, post: Post) -> None:
    """Each request has rules, worked examples as turns, the excerpt and the question; answers decide."""
    nodes = linked_document(12)
    bodies = endpoint(httpserver, lambda asked: reply("NEXT" if "chunk 3 " in asked else "**Previous**"))
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=model(httpserver))
    assert positions(post(augmenter, hits(nodes, [3, 8]))) == [3, 4, 7, 8]
    asked = {body["messages"][-1]["content"] for body in bodies}
    assert asked == {f"Excerpt: {nodes[place].text}\nQuestion: Who won?" for place in (3, 8)}
    roles = [message["role"] for message in bodies[0]["messages"]]
    assert roles[0] == "system"
    worked = [m["content"] for m in bodies[0]["messages"] if m["role"] == "assistant"]
    assert {parse_direction(content) for content in worked} == {"previous", "next", "none"}


def test_a_429_is_retried_by_the_client(httpserver: HTTPServer, post: Post) -> None:
    """The client retries a refused call, and its answer counts."""
    nodes = linked_document(5)
    refused: list[str] = []

    def answer(asked: str) -> Response | dict[str, Any]:
        if not refused:
            refused.append(asked)
            return Response("{}", status=429, headers={"retry-after-ms": "10"})
        return reply("BOTH")

    bodies = endpoint(httpserver, answer)
    augmenter = AutoPrevNextNodePostprocessor(
        docstore=docstore_of(nodes), llm=model(httpserver, max_retries=3)
    )
    assert positions(post(augmenter, hits(nodes, [2]))) == [1, 2, 3]
    assert len(bodies) == 2


def slowly(asked: str) -> dict[str, Any]:
    """Answer too late."""
    time.sleep(1)
    return reply("BOTH")


FAULTS: dict[str, Callable[[str], Response | dict[str, Any]]] = {
    "500": lambda asked: Response(f"broken near {KEY}", status=500),
    "401": lambda asked: Response(
        json.dumps({"error": {"message": f"bad key {KEY}"}}), status=401, mimetype="application/json"
    ),
    "429": lambda asked: Response("{}", status=429, headers={"retry-after-ms": "1"}),
    "timeout": slowly,
    "malformed": lambda asked: Response('{"choices": [{"mess', mimetype="application/json"),
    "no JSON": lambda asked: Response("<html>bad gateway</html>", mimetype="text/html"),
    "no choice": lambda asked: reply(None),
    "empty": lambda asked: reply(""),
}


@pytest.fixture
def events() -> Iterator[list[Any]]:
    """Collect this package's events."""
    with recorded(DirectionsChosenEvent, ContextAugmentationEndEvent) as events:
        yield events


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("decide", ["each", "together"])
def test_a_fault_is_none(
    httpserver: HTTPServer,
    post: Post,
    caplog: pytest.LogCaptureFixture,
    events: list[Any],
    fault: str,
    decide: str,
) -> None:
    """An endpoint fault counts as NONE with one warning; all hits are returned; the key is not shown."""
    nodes = linked_document(12)
    endpoint(httpserver, FAULTS[fault])
    augmenter = AutoPrevNextNodePostprocessor(
        docstore=docstore_of(nodes), llm=model(httpserver), llm_timeout=0.4, decide=decide, verbose=True
    )
    retrieved = hits(nodes, [8, 3])
    with caplog.at_level(logging.DEBUG, logger="llama_index_ext_ctxaug"):
        assert post(augmenter, retrieved) == retrieved
    own = [record for record in caplog.records if record.name.startswith("llama_index_ext_ctxaug")]
    warnings = [record for record in own if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "2 of 2" in warnings[0].getMessage()
    assert len(events) == 2
    shown = "".join(
        [
            *(event.model_dump_json() for event in events),
            *(record.getMessage() for record in own),
            repr(augmenter),
            str(augmenter),
        ]
    )
    shown += augmenter.to_json() + str(augmenter.to_dict())
    assert KEY not in shown


def test_one_fault_among_many(httpserver: HTTPServer, post: Post) -> None:
    """A fault on one hit does not affect the decisions on the others."""
    nodes = linked_document(20)
    endpoint(
        httpserver,
        lambda asked: Response("no", status=500) if "chunk 8 " in asked else reply("NEXT"),
    )
    augmenter = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=model(httpserver))
    assert positions(post(augmenter, hits(nodes, [8, 3, 13]))) == [8, 3, 4, 13, 14]

"""The example of model-chosen directions runs as a program, without a key and against an endpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

PROGRAM = Path(__file__).parents[1] / "examples" / "auto_prev_next.py"


def run(*arguments: str) -> str:
    """Return the output of the program, run in an environment without a key."""
    environment = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_a_key() -> None:
    """Without a key a script decides, and the output says so."""
    output = run()
    assert "a script, not by a language model" in output
    assert " calls, " in output
    assert output.count("[hit]") == 4


def test_against_an_endpoint(httpserver: HTTPServer) -> None:
    """With --api-base the server decides."""

    def handle(request: Request) -> Response:
        message = {"role": "assistant", "content": "BOTH"}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        return Response(json.dumps(body), mimetype="application/json")

    httpserver.expect_request("/v1/chat/completions", method="POST").respond_with_handler(handle)
    output = run("--api-base", httpserver.url_for("/v1"), "--top-k", "2")
    assert f"chosen by gpt-4o-mini at {httpserver.url_for('/v1')}" in output
    assert output.count("BOTH     answer") == 2
    assert "[added, 1 away]" in output

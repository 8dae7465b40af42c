"""The tools over the Model Context Protocol, with real clients."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from llama_index.tools.mcp import McpToolSpec
from mcp import Client, StdioServerParameters, stdio_client
from test_read_around import spec_of

from llama_index_ext_ctxaug import ReadAroundToolSpec
from llama_index_ext_ctxaug.testing import ObservedDocstore, docstore_of, linked_document
from llama_index_ext_ctxaug.tools.mcp_server import mcp_server

NAMES = ["search", "read_before", "read_after", "read_section", "outline"]


async def test_a_client_lists_read_only_tools() -> None:
    """The official client sees the tools, read-only and idempotent, with required arguments."""
    async with Client(mcp_server(spec_of(linked_document(5), [1]))) as client:
        tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == NAMES
    for tool in tools:
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
        assert tool.annotations.idempotent_hint
        assert tool.input_schema["required"] == ["query" if tool.name == "search" else "passage"]


async def test_a_client_searches_and_reads_on() -> None:
    """Answers over the protocol equal the texts of the tools."""
    nodes = linked_document(5)
    spec, twin = spec_of(nodes, [1]), spec_of(nodes, [1])
    async with Client(mcp_server(spec)) as client:
        found = await client.call_tool("search", {"query": "chunk"})
        after = await client.call_tool("read_after", {"passage": 1, "chunks": 2})
    assert found.content[0].text == str(twin.search("chunk"))
    assert after.content[0].text == str(twin.read_after("1", 2))
    assert not after.is_error


async def test_a_failing_store_is_an_error_of_the_tool() -> None:
    """A failing store gives an error in the answer, without the requested id."""
    nodes = linked_document(3)
    store = ObservedDocstore(docstore_of(nodes), fail_after=0, error=RuntimeError(f"no {nodes[1].node_id}"))
    async with Client(mcp_server(ReadAroundToolSpec(docstore=store))) as client:
        answer = await client.call_tool("read_after", {"passage": nodes[1].node_id})
    assert answer.is_error
    assert nodes[1].node_id not in answer.content[0].text


async def test_llama_index_s_client() -> None:
    """A LlamaIndex agent gets the tools through its own client."""
    nodes = linked_document(5)
    async with Client(mcp_server(spec_of(nodes, [1]))) as client:
        tools = await McpToolSpec(client=client.session).to_tool_list_async()
        assert [tool.metadata.name for tool in tools] == NAMES
        answer = await tools[0].acall(query="chunk")
    assert nodes[1].text in str(answer)


def command(docs: Path, *options: str) -> list[str]:
    """Return the command line of a server over a folder."""
    start = "from ctxaug_command import main; main()"
    return ["-c", start, "mcp", "--docs", str(docs), "--chunk-size", "30", "--chunk-overlap", "0", *options]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a document that is cut into several chunks."""
    text = "".join(f"Sentence {n} describes the harbor and its ships.\n" for n in range(20))
    (tmp_path / "harbor.txt").write_text(text, "utf-8")
    return tmp_path


async def read_harbor(target: Any) -> tuple[str, str]:
    """Search over a connection, and read on from the first passage."""
    async with Client(target) as client:
        found = await client.call_tool("search", {"query": "sentence 7 ships"})
        after = await client.call_tool("read_after", {"passage": "1", "chunks": 1})
    return found.content[0].text, after.content[0].text


async def test_the_command_serves_a_folder_over_stdio(folder: Path) -> None:
    """A client that starts the command searches the folder and reads on; nothing else is on stdout."""
    server = StdioServerParameters(command=sys.executable, args=command(folder))
    found, after = await read_harbor(stdio_client(server))
    assert "harbor.txt" in found
    assert "describes the harbor" in after


async def test_the_command_serves_over_http(folder: Path) -> None:
    """With --http the same tools are served on a local port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command(folder, "--http", str(port)), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        for _ in range(300):
            await asyncio.sleep(0.1)
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
        found, _ = await read_harbor(f"http://127.0.0.1:{port}/mcp")
    finally:
        process.terminate()
        await process.wait()
    assert "harbor.txt" in found

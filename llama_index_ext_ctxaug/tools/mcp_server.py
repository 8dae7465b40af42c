"""The tools of `ReadAroundToolSpec` over the Model Context Protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from llama_index_ext_ctxaug.tools.failures import ReadingError
from llama_index_ext_ctxaug.tools.read_around import ReadAroundToolSpec
from llama_index_ext_ctxaug.tools.reading import Reading

_READ_ONLY = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)


def mcp_server(spec: ReadAroundToolSpec, name: str = "documents") -> MCPServer[None]:
    """Return a server that offers the tools of a spec, annotated as read-only and idempotent.

    Args:
        spec: the tools.
        name: name of the server, shown to users of a client.

    Returns:
        The server; `run("stdio")` or `run("streamable-http", host=..., port=...)` starts it.
    """
    server: MCPServer[None] = MCPServer(name, instructions="Search the documents, then read on.")
    for tool in spec.to_tool_list():
        metadata = tool.metadata
        server.add_tool(
            _as_text(tool.async_fn),
            name=metadata.name,
            description=metadata.description,
            annotations=_READ_ONLY,
            structured_output=False,
        )
    return server


def _as_text(read: Callable[..., Awaitable[Reading]]) -> Callable[..., Awaitable[str]]:
    """Wrap a tool so that it returns the text for the model, and failures are errors of the protocol."""

    @wraps(read)
    async def tool(*args: object, **kwargs: object) -> str:
        try:
            return str(await read(*args, **kwargs))
        except ReadingError as error:
            raise ToolError(str(error)) from error

    tool.__annotations__["return"] = str
    return tool

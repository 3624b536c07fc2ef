"""The scripted team as an MCP server on stdin and stdout, for the tests to start."""

from __future__ import annotations

import asyncio

from serve_builders import make_config, make_crew

from jade.serve.mcp import mcp_server
from jade.serve.room import open_desk

if __name__ == "__main__":
    asyncio.run(mcp_server(open_desk(make_crew(), make_config(max_question_chars=200))).run_stdio_async())

"""The official client of the Model Context Protocol, over stdio, against `ask` and `search`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from serve_builders import NESTED, SIMPLE, make_config, make_crew

mcp = pytest.importorskip("mcp", reason="the package mcp is not installed")

from jade.serve.mcp import mcp_server  # noqa: E402
from jade.serve.room import open_desk  # noqa: E402
from jade.types import Prompt  # noqa: E402


@asynccontextmanager
async def over_stdio() -> AsyncIterator[Any]:
    """A client session with the server as a process of its own."""
    from mcp.client.stdio import StdioServerParameters, stdio_client

    script = Path(__file__).with_name("scripted_mcp.py")
    server = StdioServerParameters(command=sys.executable, args=[str(script)])
    async with mcp.Client(stdio_client(server)) as client:
        yield client


async def test_an_agent_asks_and_searches_over_stdio() -> None:
    told: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async with over_stdio() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        answered = await client.call_tool("ask", {"question": NESTED}, progress_callback=hear)
        found = await client.call_tool("search", {"query": "river Lune", "limit": 2})
        refused = await client.call_tool("ask", {"question": "x" * 201})
        wrong = await client.call_tool("search", {"query": "river", "limit": 1000})
    assert set(tools) == {"ask", "search"}
    assert tools["ask"].annotations.read_only_hint is True
    assert answered.structured_content["answer"] == "Lune"
    assert answered.structured_content["supported"] is True
    assert answered.structured_content["steps"] == [f"{SIMPLE} Fernhill", "On which river is Fernhill? Lune"]
    assert [cited["title"] for cited in answered.structured_content["citations"]] == ["Ada Marlow", "Fernhill"]
    assert "Lune" in answered.content[0].text
    assert len(found.structured_content["passages"]) == 2
    assert found.structured_content["passages"][0]["source"].startswith("country.txt")
    assert refused.is_error
    assert "longer than 200" in refused.content[0].text
    assert wrong.is_error
    assert any(message.startswith("P for ") for message in told)


async def test_a_model_that_dies_is_told_to_the_agent() -> None:
    def broken(prompt: Prompt) -> str:
        raise RuntimeError("the model is gone")

    server = mcp_server(open_desk(make_crew(broken), make_config()))
    async with mcp.Client(server) as client:
        result = await client.call_tool("ask", {"question": SIMPLE})
    assert result.is_error
    assert "the model is gone" in result.content[0].text

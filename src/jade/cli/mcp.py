"""`jade mcp`: the team as a tool for other agents, over the Model Context Protocol on stdin and stdout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jade.cli.options import ConfigFile, Effort, Index, Model, Overrides, team_from
from jade.cli.serve import serve_settings

if TYPE_CHECKING:
    from jade.config import Config


def command(
    index: Index = None,
    model: Model = None,
    traces: Annotated[Path | None, typer.Option(help="A file that every trace is added to.")] = None,
    effort: Effort = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> None:
    """Serve `ask` and `search` to other agents (MCP over stdio)."""
    import asyncio

    given = [*serve_settings({"traces": traces}), *(settings or [])]
    asyncio.run(_serve(team_from(config, given, index=index, model=model, effort=effort, may_be_asked=True)))


async def _serve(config: Config) -> None:
    from jade.errors import ConfigError
    from jade.serve.room import check_files, open_desk
    from jade.team.crew import open_crew

    try:
        from jade.serve.mcp import mcp_server
    except ImportError:
        raise ConfigError("jade mcp needs the package mcp: pip install 'jade-team[serve]'") from None
    check_files(config.serve)
    async with open_crew(config) as crew:
        await mcp_server(open_desk(crew, config.serve, reward=config.reward)).run_stdio_async()

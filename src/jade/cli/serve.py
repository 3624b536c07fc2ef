"""`jade serve`: the team behind an OpenAI-compatible API, with the trace viewer beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jade.cli.options import ConfigFile, Effort, Index, Model, Overrides, team_from

if TYPE_CHECKING:
    from jade.config import Config


def command(
    index: Index = None,
    model: Model = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; others than loopback need --keys.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    keys: Annotated[Path | None, typer.Option(help="A file of API keys, one a line.")] = None,
    traces: Annotated[Path | None, typer.Option(help="A file that every trace is added to.")] = None,
    view: Annotated[list[Path] | None, typer.Option(help="A run or trace file to show at /ui; repeatable.")] = None,
    effort: Effort = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> None:
    """Serve the team: an OpenAI-compatible API, and the trace viewer at /ui."""
    import asyncio

    named = {"host": host, "port": port, "keys_file": keys, "traces": traces, "runs": view}
    given = [*serve_settings(named), *(settings or [])]
    asyncio.run(_serve(team_from(config, given, index=index, model=model, effort=effort, may_be_asked=True)))


def serve_settings(named: Mapping[str, Any]) -> list[str]:
    """Options of the command line as settings of the section `serve`; what was not given is left out."""
    given = {name: value for name, value in named.items() if value is not None}
    return [f"serve.{name}={json.dumps(value, default=str, ensure_ascii=False)}" for name, value in given.items()]


async def _serve(config: Config) -> None:
    from jade.serve.keys import check_exposure, read_keys
    from jade.serve.listen import listen, open_socket
    from jade.serve.room import answering_app, check_files
    from jade.team.crew import open_crew

    def say(url: str) -> None:
        typer.echo(f"jade: API at {url}/v1, viewer at {url}/ui", err=True)

    keys = read_keys(config.serve)
    check_exposure(config.serve.host, keys)
    check_files(config.serve)
    with open_socket(config.serve) as sock:
        async with open_crew(config) as crew:
            app = answering_app(crew, config.serve, keys, config.reward)
            await listen(app, config.serve, say, sock)

"""`jade serve`: the team behind an OpenAI-compatible API, with the trace viewer beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jade.cli.options import ConfigFile, Index, Model, Overrides, config_from

if TYPE_CHECKING:
    from jade.config import Config


def command(
    index: Index = None,
    model: Model = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; others than loopback need --keys.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    keys: Annotated[Path | None, typer.Option(help="A file of API keys, one a line.")] = None,
    traces: Annotated[Path | None, typer.Option(help="A file that every trace is added to.")] = None,
    view: Annotated[
        list[Path] | None, typer.Option(help="A run or trace file to show at /ui. May be given again.")
    ] = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> None:
    """Serve the team: an OpenAI-compatible API, and the trace viewer at /ui."""
    import asyncio

    chosen = config_from(config, settings, index=index, model=model)
    named = {"host": host, "port": port, "keys_file": keys, "traces": traces, "runs": tuple(view) if view else None}
    asyncio.run(_serve(with_serve_options(chosen, named)))


def with_serve_options(config: Config, named: dict[str, Any]) -> Config:
    """The config with the options that were given."""
    given = {name: value for name, value in named.items() if value is not None}
    return config.model_copy(update={"serve": config.serve.model_copy(update=given)})


async def _serve(config: Config) -> None:
    from jade.serve.keys import check_exposure, read_keys
    from jade.serve.listen import listen
    from jade.serve.room import answering_app
    from jade.team.crew import open_crew

    keys = read_keys(config.serve)
    check_exposure(config.serve.host, keys)
    async with open_crew(config) as crew:
        app = answering_app(crew, config.serve, keys)
        await listen(app, config.serve, lambda url: typer.echo(f"jade: API at {url}/v1, viewer at {url}/ui", err=True))

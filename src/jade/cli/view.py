"""`jade view`: look at traces, evaluations and training runs in the browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from jade.cli.options import ConfigFile, Overrides, config_from
from jade.cli.serve import serve_settings


def command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders or trace files; a folder of runs shows them all.")],
    host: Annotated[str | None, typer.Option(help="Address to listen on; others than loopback need --keys.")] = None,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 0,
    keys: Annotated[Path | None, typer.Option(help="A file of API keys, one a line.")] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> None:
    """Look at what a team did: traces as trees, two runs side by side, training curves as they grow."""
    import asyncio

    from jade.serve.keys import check_exposure, read_keys
    from jade.serve.listen import listen
    from jade.serve.room import viewing_app
    from jade.team.team import build_team

    named = {"host": host, "port": port, "keys_file": keys, "runs": runs}
    chosen = config_from(config, [*serve_settings(named), *(settings or [])])
    keyring = read_keys(chosen.serve)
    check_exposure(chosen.serve.host, keyring)
    app = viewing_app(build_team(chosen.team), chosen.serve, keyring)

    def show(url: str) -> None:
        typer.echo(f"jade: viewer at {url}/ui (Ctrl+C stops it)", err=True)
        if browser and _has_screen():
            _open_beside(f"{url}/ui")

    asyncio.run(listen(app, chosen.serve, show))


def _has_screen() -> bool:
    """Whether a browser with windows may be there; otherwise one that draws in this terminal would be started."""
    named = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    return not sys.platform.startswith("linux") or any(os.environ.get(name) for name in named)


def _open_beside(url: str) -> None:
    """Some browsers are waited for until they are closed, and the page comes from this very process."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

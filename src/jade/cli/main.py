"""`jade`: thin verbs, one file each. Nothing heavy is imported before a verb needs it.

Exit status: 0 when the verb did its work, 1 when the team failed at it, 2 when something is the user's to mend,
130 when it was stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from jade.cli import (
    ask,
    demo,
    evaluate,
    export,
    index,
    mcp,
    plot,
    report,
    retrieve_server,
    serve,
    trace,
    train,
    view,
    warmstart,
    world,
)
from jade.cli.screen import complain, print_what_can_be_printed
from jade.errors import JadeError

app = typer.Typer(name="jade", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
VERBS: dict[str, Callable[..., None]] = {
    "index": index.command,
    "ask": ask.command,
    "serve": serve.command,
    "view": view.command,
    "mcp": mcp.command,
    "eval": evaluate.command,
    "report": report.command,
    "warmstart": warmstart.command,
    "train": train.command,
    "plot": plot.command,
    "export": export.command,
    "retrieve-server": retrieve_server.command,
    "world": world.command,
    "demo": demo.command,
}
for name, command in VERBS.items():
    app.command(name)(command)
app.add_typer(trace.app, name="trace")


EXTRAS = {
    "local": ("torch", "transformers", "peft", "safetensors", "gguf", "llguidance"),
    "dense": ("sentence_transformers", "faiss"),
    "serve": ("mcp",),
}
"""Packages that not everyone needs, by the extra that brings them."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("jade-team"))
        raise typer.Exit


@app.callback()
def jade(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A team of language-model agents that answers questions over your documents and learns as a team."""


def main() -> None:
    """Run a verb; what is the user's to mend is said in one line, without a traceback."""
    print_what_can_be_printed()
    try:
        app(prog_name="jade")
    except JadeError as error:
        complain(str(error))
        sys.exit(2)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        extra = next((extra for extra, packages in EXTRAS.items() if missing in packages), None)
        if extra is None:
            raise
        complain(f"the package {missing} is not installed; pip install 'jade-team[{extra}]'")
        sys.exit(2)
    except OSError as error:
        if error.filename is None:
            raise
        complain(f"{error.filename}: {error.strerror}")
        sys.exit(2)

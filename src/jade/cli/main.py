"""`jade`: thin verbs, one file each. Nothing heavy is imported before a verb needs it."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from jade.cli import (
    ask,
    demo,
    evaluate,
    export,
    index,
    plot,
    report,
    retrieve_server,
    trace,
    train,
    warmstart,
    world,
)
from jade.errors import JadeError

app = typer.Typer(
    name="jade",
    help="A team of language-model agents that answers questions over your documents and learns as a team.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
VERBS: dict[str, Callable[..., None]] = {
    "index": index.command,
    "ask": ask.command,
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


def main() -> None:
    """Run a verb; what is the user's to mend is said in one line, without a traceback."""
    try:
        app()
    except JadeError as error:
        print(f"jade: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("jade: stopped", file=sys.stderr)
        sys.exit(130)

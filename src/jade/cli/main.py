"""`jade`: thin verbs, one file each. Nothing heavy is imported before a verb needs it."""

from __future__ import annotations

import sys

import typer

from jade.cli import ask, demo, trace
from jade.errors import JadeError

app = typer.Typer(
    name="jade",
    help="A team of language-model agents that answers questions over your documents and learns as a team.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("ask")(ask.command)
app.add_typer(trace.app, name="trace")
app.command("demo")(demo.command)


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

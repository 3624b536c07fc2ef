"""`jade trace show`: what the team did, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Look at traces.", no_args_is_help=True)


@app.callback()
def traces() -> None:
    """Look at traces."""


@app.command("show")
def show(
    file: Annotated[Path, typer.Argument(help="A file of traces (JSONL).")],
    trace_id: Annotated[str | None, typer.Option("--id", help="Show only the trace of this id.")] = None,
    outputs: Annotated[
        bool, typer.Option("--outputs", help="Add the raw text of every call and every passage read.")
    ] = False,
) -> None:
    """Print each trace as a tree: roles, outputs, tokens and time."""
    from jade.engine.record import read_traces
    from jade.errors import TraceUnreadable
    from jade.screen.answer import print_answer

    shown = 0
    for trace in read_traces(file):
        if trace_id in (None, trace.id):
            if shown:
                typer.echo("─" * 80)
            with _explained(file):
                print_answer(trace, everything=outputs)
            shown += 1
    if not shown:
        raise TraceUnreadable(f"{file}: no trace" + (f" with id {trace_id!r}" if trace_id else " in it"))


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    """What has the form of a trace may still hold a number for a text, or a node that is its own parent."""
    from jade.errors import TraceUnreadable

    try:
        yield
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise TraceUnreadable(f"{file}: not a trace: {type(error).__name__}: {error}") from None

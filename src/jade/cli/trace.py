"""`jade trace show`: what the team did, step by step."""

from __future__ import annotations

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
    outputs: Annotated[bool, typer.Option("--outputs", help="Add the raw text of every call.")] = False,
) -> None:
    """Print each trace as a tree: roles, outputs, tokens and time."""
    from rich.console import Console

    from jade.cli.ask import print_answer
    from jade.cli.tree import render_trace
    from jade.engine.record import read_traces
    from jade.errors import TraceUnreadable

    console = Console()
    shown = 0
    for trace in read_traces(file):
        if trace_id in (None, trace.id):
            shown += 1
            if outputs:
                console.print(render_trace(trace, outputs=True))
            else:
                print_answer(trace)
            console.rule()
    if not shown:
        raise TraceUnreadable(f"{file}: no trace" + (f" with id {trace_id!r}" if trace_id else " in it"))

"""`jade report`: finished runs as tables and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    runs: Annotated[
        list[str],
        typer.Argument(help="Folders that jade eval has written; those given as NAME=FOLDER are pooled by name."),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the report.")],
    baseline: Annotated[
        str | None, typer.Option(help="Method or name that the others are compared with; else vanilla-rag.")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(help="A,B,C,D: what A has over B less what C has over D, by method or name. May be given again."),
    ] = None,
    examples: Annotated[str | None, typer.Option(help="Method or name whose traces are shown; else jade.")] = None,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples of intervals and p-values.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
) -> None:
    """Write a report of one or several runs: Markdown, HTML, PNG and SVG."""
    from jade.evaluate.arms import read_arms
    from jade.evaluate.report import write_report

    written = write_report(
        read_arms(runs), out, baseline=baseline, focus=examples, changes=change or (), resamples=resamples, seed=seed
    )
    for path in written:
        typer.echo(str(path))

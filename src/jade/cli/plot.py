"""`jade plot`: what happened in a training run, as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    runs: Annotated[list[Path], typer.Argument(help="Folders of training runs; several are drawn side by side.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Where to put the pictures. Not given: RUN/plots, in the first run.")
    ] = None,
) -> None:
    """Draw outcome and turns, the mix of workflows and which datasets are split, over a run; or compare runs."""
    from jade.learn.monitor.plot import plot_runs

    for path in plot_runs(runs, out or runs[0] / "plots"):
        typer.echo(str(path))

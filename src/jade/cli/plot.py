"""`jade plot`: what happened in a training run, as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    run: Annotated[Path, typer.Argument(help="The folder of a training run.")],
    out: Annotated[Path | None, typer.Option("--out", help="Where to put the pictures. Not given: RUN/plots.")] = None,
) -> None:
    """Draw outcome and turns, and the mix of workflows, over the iterations of a run."""
    from jade.learn.plot import plot_run

    for path in plot_run(run, out or run / "plots"):
        typer.echo(str(path))

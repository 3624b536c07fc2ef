"""`jade export-verl`: a training config as a folder from which verl trains."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jade.cli.options import Overrides, config_from


def command(
    config: Annotated[Path, typer.Argument(help="A TOML file with a [learn] section; see runs/.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")],
    nodes: Annotated[int, typer.Option(min=1, help="Machines that verl uses.")] = 1,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of each machine.")] = 8,
    tensor_parallel: Annotated[int, typer.Option(min=1, help="GPUs that one copy of the sampler takes.")] = 1,
    settings: Overrides = None,
) -> None:
    """Write all that verl 0.9 needs to train the team: agent loop, settings, questions, launch script."""
    from jade.cluster.verl_export import Machines, export_verl

    folder = export_verl(config_from(config, settings), out, Machines(nodes, gpus, tensor_parallel))
    typer.echo(f"{folder}/launch.sh")

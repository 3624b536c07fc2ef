"""`jade train`: joint learning, from a config to checkpoints."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from jade.cli.options import Overrides, config_from

RunFolder = Annotated[Path | None, typer.Option("--out", help="The run's folder. Not given: beside the config.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in that folder.")]
Minutes = Annotated[float | None, typer.Option(help="Stop after this time, with a checkpoint, to be resumed.")]
RESUMED = "the same command with --resume"
"""How what was stopped is gone on with."""


class Backend(StrEnum):
    """What runs the processes of a run."""

    local = "local"
    torchrun = "torchrun"
    ray = "ray"


Engine = Annotated[
    Backend, typer.Option(help="In this process; in several of this machine (torchrun); or on a Ray cluster.")
]
Workers = Annotated[
    int, typer.Option(min=1, help="Learners of --backend torchrun or ray; the batch is shared by them.")
]
Address = Annotated[
    str | None, typer.Option(help="A Ray cluster (HOST:PORT, or auto). Not given: Ray is started on this machine.")
]


def command(
    config: Annotated[Path, typer.Argument(help="A TOML file with a section `learn`; see runs/.")],
    out: RunFolder = None,
    resume: Resume = False,
    minutes: Minutes = None,
    backend: Engine = Backend.local,
    workers: Workers = 1,
    address: Address = None,
    settings: Overrides = None,
) -> None:
    """Train the team: roll out, reward, update, again."""
    from rich.console import Console

    from jade.api.training import folder_for, train
    from jade.screen.terminal import saying_what_is_kept, tell

    chosen, folder = config_from(config, settings), out or folder_for(config)
    with saying_what_is_kept(folder, RESUMED):
        run = train(
            chosen, folder, resume=resume, minutes=minutes, backend=backend.value, workers=workers, address=address
        )
    tell(Console(stderr=True), f"{run.iterations} iterations done; the run is in {run.folder}")

"""`jade train`: joint learning, from a config to checkpoints."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jade.cli.options import Overrides, config_from
from jade.errors import ConfigError

if TYPE_CHECKING:
    from jade.config import Config
    from jade.learn.check import Say
    from jade.learn.checkpoint import Progress
    from jade.learn.monitor.show import Spectator

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
    import asyncio

    from rich.console import Console

    from jade.cli.screen import saying_what_is_kept
    from jade.learn.check import say_untrained
    from jade.learn.monitor.show import watch
    from jade.learn.open import say_if_bent, say_if_new

    console = Console(stderr=True)
    chosen, folder = config_from(config, settings), out or folder_for(config)

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    say_untrained(chosen, say)
    if resume:
        say_if_new(folder, say)
        say_if_bent(chosen, folder, say)
    with saying_what_is_kept(folder, RESUMED), watch(console) as spectator:
        if backend is Backend.local:
            _refuse_cluster_options(workers, address)
            progress = asyncio.run(_train(chosen, folder, spectator, resume, minutes, say))
        else:
            from jade.cluster.launch import train_on
            from jade.cluster.member import Task

            progress = train_on(backend.value, Task(chosen, folder, minutes, resume), spectator, workers, address)
    console.print(f"{progress.iteration} iterations done; the run is in {folder}", markup=False, soft_wrap=True)


async def _train(
    config: Config, folder: Path, spectator: Spectator, resume: bool, minutes: float | None, say: Say
) -> Progress:
    from jade.learn.check import say_if_unfit
    from jade.learn.open import Assemble, open_run
    from jade.team.crew import Crew

    assemble: Assemble | None = None
    if config.learn.vllm.urls:
        from jade.cluster.vllm import open_vllm_crew as assemble
    async with open_run(config, folder, spectator, resume=resume, assemble=assemble) as run:
        if isinstance(run.crew, Crew):  # else the index is open in other processes
            questions = [question for file in run.stream.files for question in file]
            await say_if_unfit(questions, run.crew.retriever, config.retrieval.index, say)
        return await run.train(minutes)


def _refuse_cluster_options(workers: int, address: str | None) -> None:
    if workers > 1 or address is not None:
        named = f"--workers {workers}" if workers > 1 else f"--address {address}"
        raise ConfigError(f"{named} needs --backend torchrun or --backend ray")


def folder_for(config: Path) -> Path:
    """Beside the config, in a folder of its name."""
    return config.parent / config.stem

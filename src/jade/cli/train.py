"""`jade train`: joint learning, from a config to checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jade.cli.options import Overrides, config_from

if TYPE_CHECKING:
    from jade.config import Config
    from jade.learn.checkpoint import Progress
    from jade.learn.show import Spectator

RunFolder = Annotated[Path | None, typer.Option("--out", help="The run's folder. Not given: beside the config.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in that folder.")]
Minutes = Annotated[float | None, typer.Option(help="Stop after this time, with a checkpoint, to be resumed.")]


def command(
    config: Annotated[Path, typer.Argument(help="A TOML file with a [learn] section; see runs/.")],
    out: RunFolder = None,
    resume: Resume = False,
    minutes: Minutes = None,
    settings: Overrides = None,
) -> None:
    """Train the team: roll out, reward, update, again."""
    import asyncio

    from rich.console import Console

    from jade.learn.show import watch

    console = Console(stderr=True)
    chosen, folder = config_from(config, settings), out or folder_for(config)
    with watch(console) as spectator:
        progress = asyncio.run(_train(chosen, folder, spectator, resume, minutes))
    console.print(f"{progress.iteration} iterations done; the run is in {folder}", markup=False, soft_wrap=True)


async def _train(config: Config, folder: Path, spectator: Spectator, resume: bool, minutes: float | None) -> Progress:
    from jade.learn.open import open_run
    from jade.team.crew import open_crew

    if config.learn.vllm.urls:
        from jade.cluster.vllm import open_vllm_crew as assemble
    else:
        assemble = open_crew
    async with open_run(config, folder, spectator, resume=resume, assemble=assemble) as run:
        return await run.train(minutes)


def folder_for(config: Path) -> Path:
    """Beside the config, in a folder of its name."""
    return config.parent / config.stem

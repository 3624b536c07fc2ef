"""What one process of a run does, whoever started it: it opens the run in a folder that was taken, and trains.

A process that is started again finds the newest checkpoint and goes on from there.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import torch

from jade.config import Config
from jade.errors import TrainingStopped
from jade.learn.check import check_training
from jade.learn.checkpoint import Checkpoints, Progress, read_progress
from jade.learn.monitor.show import Silent, Spectator
from jade.learn.open import Assemble, open_claimed
from jade.learn.ranks import agree, is_first
from jade.team.crew import open_crew


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be done, as every process is told it."""

    config: Config
    folder: Path
    minutes: float | None = None
    resume: bool = False


def take_part(task: Task, assemble: Assemble, spectator: Spectator | None = None) -> TrainingStopped | None:
    """Train to the end. That the guard ends a run is an outcome, the same in all processes; errors are raised."""

    async def train() -> None:
        material = check_training(task.config)
        async with open_claimed(task.config, material, task.folder, spectator or Silent(), assemble) as run:
            await run.train(task.minutes)

    try:
        asyncio.run(train())
    except TrainingStopped as stopped:
        return stopped
    return None


def assembly(config: Config) -> Assemble:
    """Who does the rollouts in a process of the run: a team on vLLM servers, or one with a backbone of its own."""
    if config.learn.vllm.urls:
        from jade.cluster.vllm import open_vllm_crew

        return open_vllm_crew
    return open_crew


def share_cores(config: Config, num_neighbours: int) -> None:
    """Processes on one machine share its cores, unless the config says how many threads each has."""
    if num_neighbours > 1 and not config.backbone.threads:
        torch.set_num_threads(max(1, torch.get_num_threads() // num_neighbours))


def progress_in(folder: Path) -> Progress:
    """Where the run in a folder stands; asked by all processes of a run or by one outside it."""
    newest = Checkpoints(folder / "checkpoints").newest()
    if newest is None:
        raise TrainingStopped(f"{folder} holds no checkpoint: the run ended before its first")
    return agree(read_progress(newest) if is_first() else Progress())

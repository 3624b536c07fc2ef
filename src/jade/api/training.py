"""Teaching and training a team, and what a run has written down."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from jade.api.loop import call_apart, run_to_end
from jade.api.settings import Settings, config_of
from jade.config import Config
from jade.errors import ConfigError

if TYPE_CHECKING:
    from jade.learn.check import Say
    from jade.learn.checkpoint import Progress
    from jade.learn.monitor.show import Spectator

Source: TypeAlias = Config | str | Path
"""A config, or its TOML file."""
Backend: TypeAlias = Literal["local", "torchrun", "ray"]
"""In this process; in several of this machine; on a Ray cluster."""


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A training run that has ended, or whose time was up."""

    folder: Path
    iterations: int
    best: float | None
    """The best reward on the dev questions; None where there are none."""
    best_iteration: int


def train(
    config: Source,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    minutes: float | None = None,
    backend: Backend = "local",
    workers: int = 1,
    address: str | None = None,
    settings: Settings | None = None,
) -> TrainedRun:
    """Train the team: roll out, reward, update, again. What `jade train` does, with what it shows."""
    from rich.console import Console

    from jade.learn.check import say_untrained
    from jade.learn.monitor.show import watch
    from jade.learn.open import say_if_bent, say_if_new
    from jade.screen.terminal import tell

    console = Console(stderr=True)
    say = partial(tell, console)
    chosen, folder = config_of(config, None, settings), folder_of(config, out)
    say_untrained(chosen, say)
    if resume:
        say_if_new(folder, say)
        say_if_bent(chosen, folder, say)
    with watch(console) as spectator:
        if backend == "local":
            _refuse_cluster_options(workers, address)
            done = run_to_end(_train(chosen, folder, spectator, resume, minutes, say))
        else:
            from jade.cluster.launch import train_on
            from jade.cluster.member import Task

            done = train_on(backend, Task(chosen, folder, minutes, resume), spectator, workers, address)
    return TrainedRun(folder, done.iteration, done.best, done.best_iteration)


def warm_start(
    config: Source,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    minutes: float | None = None,
    settings: Settings | None = None,
) -> Path | None:
    """Teach every role from gold data. Gives the folder of the model, or of its adapter; None when the time was up
    before. What `jade warmstart` does."""
    from rich.console import Console

    from jade.learn.monitor.show import watch
    from jade.learn.open import say_if_new
    from jade.learn.warmstart.run import run_warmstart
    from jade.screen.terminal import tell

    console = Console(stderr=True)
    say = partial(tell, console)
    chosen, folder = config_of(config, None, settings), folder_of(config, out)
    if resume:
        say_if_new(folder, say)
    with watch(console) as spectator:
        fit = partial(run_warmstart, chosen, folder, spectator, say, resume=resume, minutes=minutes)
        return call_apart(fit)


async def _train(
    config: Config, folder: Path, spectator: Spectator, resume: bool, minutes: float | None, say: Say
) -> Progress:
    from jade.learn.check import say_if_unfit
    from jade.learn.open import Assemble, open_run
    from jade.team.crew import Crew

    assemble: Assemble | None = None
    if config.learn.vllm.urls:
        from jade.cluster.vllm import open_vllm_crew as assemble
    async with open_run(config, folder, spectator, resume=resume, assemble=assemble, say=say) as run:
        if isinstance(run.crew, Crew):  # else the index is open in other processes
            questions = [question for file in run.stream.files for question in file]
            await say_if_unfit(questions, run.crew.retriever, config.retrieval.index, say)
        return await run.train(minutes)


def _refuse_cluster_options(workers: int, address: str | None) -> None:
    if workers > 1 or address is not None:
        named = f"--workers {workers}" if workers > 1 else f"--address {address}"
        raise ConfigError(f"{named} needs --backend torchrun or --backend ray")


def read_metrics(run: str | Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The rows of a run's `metrics.jsonl`, also while it is at work: `iteration`, `dev`, `guard` and `mind`, or those
    of one kind. `pandas.DataFrame(rows)` takes them as they are."""
    from jade.learn.monitor.journal import read_journal

    return list(read_journal(Path(run), kind))


def export(run: str | Path, out: str | Path, *, merge: bool = False, checkpoint: str = "best") -> Path:
    """Write a run's weights as a folder that transformers, peft and vLLM load, and `open_team(model=...)` too."""
    from jade.learn.export import export_run

    return export_run(Path(run), Path(out), merge=merge, dtype="float32", checkpoint=checkpoint)


def folder_for(config: Path) -> Path:
    """Beside the config, in a folder of its name."""
    return config.parent / config.stem


def folder_of(config: Source, out: str | Path | None) -> Path:
    if out is not None:
        return Path(out)
    if isinstance(config, Config):
        raise ConfigError("out: not given; name the run's folder, as its config has no file that it could lie beside")
    return folder_for(Path(config))

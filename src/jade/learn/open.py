"""Open all that a training run or a warm start needs, from one config, and close it again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import torch

from jade.config import ClusterConfig, Config, dump_config, load_config
from jade.engine.hold import locked
from jade.errors import ConfigError
from jade.learn.check import Material, Say, check_alone, check_training, keep_quiet
from jade.learn.checkpoint import Checkpoints
from jade.learn.learner import Learner
from jade.learn.monitor.show import Spectator
from jade.learn.policy import load_policy
from jade.learn.questions import QuestionStream
from jade.learn.rollouts.beside import Beside, num_beside, open_beside
from jade.learn.rollouts.line import stand_back
from jade.learn.rollouts.sampler import Troupe
from jade.learn.texts import TEXTS, check_texts, write_whole
from jade.learn.train import Run
from jade.team.crew import Crew, open_crew

FREE = (
    "learn.iterations",
    "learn.dev_every",
    "learn.keep",
    "learn.processes",
    "learn.traces_every",
    "learn.trackers",
    "learn.vllm.urls",
    "learn.vllm.folder",
    "learn.vllm.timeout_seconds",
    "warmstart.epochs",
    *(f"cluster.{name}" for name in ClusterConfig.model_fields),
)
"""Settings that may change when a run is resumed; any other would make it another run."""


Assemble = Callable[[Config], AbstractAsyncContextManager[Crew | Troupe]]
"""Opens the team that does the rollouts."""


@asynccontextmanager
async def open_run(
    config: Config,
    folder: Path,
    spectator: Spectator,
    *,
    resume: bool = False,
    assemble: Assemble | None = None,
    say: Say = keep_quiet,
) -> AsyncIterator[Run]:
    """A training run, ready to go on from where it stands. Unless told otherwise a crew in this process does the
    rollouts, or in processes beside it."""
    if config.learn.ahead:
        stand_back()
    material = check_training(config, say)
    assemble = assemble or (open_beside if num_beside(config) else open_crew)
    with claimed(config, folder, resume):
        async with open_claimed(config, material, folder, spectator, assemble) as run:
            yield run


@asynccontextmanager
async def open_claimed(
    config: Config, material: Material, folder: Path, spectator: Spectator, assemble: Assemble
) -> AsyncIterator[Run]:
    """The same in a folder that was taken before: what each process of a run opens."""
    set_threads(config)
    async with assemble(_for_sampling(config)) as crew:
        if isinstance(crew, Troupe) and not isinstance(crew, Beside):
            check_alone(config, "a troupe")
        policy = load_policy(config.backbone, config.learn.policy, config.seed)
        dev = [question for file in material.dev for question in file]
        stream = QuestionStream(material.train, config.seed, config.learn.balance)
        yield Run(config, crew, Learner(policy, config.learn), stream, dev, folder, spectator)


def _for_sampling(config: Config) -> Config:
    """The sampler speaks through weights that the learner gives it, adapters merged."""
    return config.model_copy(update={"backbone": config.backbone.model_copy(update={"adapter": None})})


@contextmanager
def claimed(config: Config, folder: Path, resume: bool) -> Iterator[None]:
    """Take a folder for a run, and keep it to this process until the run has ended."""
    with locked(folder):
        claim(config, folder, resume)
        yield


def claim(config: Config, folder: Path, resume: bool) -> None:
    """Take a folder for a run. A run that is there already is gone on with only when asked for, and only as it was."""
    written = folder / "config.toml"
    if not written.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(written, dump_config(config))
        check_texts(config, folder, anew=True)
        return
    begun = bool(Checkpoints(folder / "checkpoints").all())
    if begun and not resume:
        raise ConfigError(f"--out: {folder} holds a run already; give --resume to go on with it, or another folder")
    if not begun and not _is_own(written):
        raise ConfigError(
            f"--out: {written} is not a run's own, which would replace it; give another folder, or move it"
        )
    before = load_config(written)
    changed = [name for name in differences(before, config) if name not in FREE]
    if resume and changed:
        raise ConfigError(f"{_changed(changed[0], before, config)} in {folder}; a resumed run must be the same run")
    # Where neither weights nor examples were made yet, nothing was made of what was noted.
    check_texts(config, folder, anew=not begun and not any(folder.glob("examples*")))
    write_whole(written, dump_config(config))


def _is_own(written: Path) -> bool:
    """Whether a run wrote this config, also an older one, which had not all of today's settings."""
    text = written.read_text(encoding="utf-8")
    return written.with_name(TEXTS).is_file() or text == dump_config(load_config(written))


def say_if_new(folder: Path, say: Callable[[str], None]) -> None:
    """Say, before a run or a warm start is resumed, where there is none: its folder may be mistyped."""
    if not (folder / "config.toml").is_file():
        say(f"there is no run in {folder} to go on with: it begins")


def say_if_bent(config: Config, folder: Path, say: Callable[[str], None]) -> None:
    """Say, before a run is resumed, where its number of iterations has changed and its step size decays over them."""
    written = folder / "config.toml"
    if config.learn.ppo.decay == "none" or not written.is_file():
        return
    was, now = load_config(written).learn.iterations, config.learn.iterations
    if was != now:
        say(f"learn.iterations was {was} and is now {now}: from here the step size falls towards iteration {now}")


def differences(one: Config, other: Config) -> list[str]:
    """Dotted names of the settings in which two configs differ."""
    left, right = (_flat(config.model_dump(mode="json")) for config in (one, other))
    return sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))


def _changed(name: str, before: Config, now: Config) -> str:
    was, new = (_flat(config.model_dump(mode="json")).get(name) for config in (before, now))
    return f"{name}: is {new!r} and was {was!r} when the run began"


def _flat(data: dict[str, object], path: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in data.items():
        name = f"{path}{key}"
        flat |= _flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


def set_threads(config: Config) -> None:
    if config.backbone.threads:
        torch.set_num_threads(config.backbone.threads)

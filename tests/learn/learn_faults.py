"""Faults to inject into a training run, one for each way in which the guard can be called, and the run that has one.

python tests/learn/learn_faults.py     the table of all of them: injected, said in the log, what came of it
"""

from __future__ import annotations

import asyncio
import io
import math
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from learn_runs import make_config, make_run, make_shared_model, merge, small_world
from rich.console import Console
from torch.utils.hooks import RemovableHandle

from jade.backbone.scripted import ScriptedBackbone
from jade.config import Config
from jade.errors import BackboneFailed, TrainingStopped
from jade.learn.learner import Learner
from jade.learn.monitor.journal import read_journal
from jade.learn.monitor.show import Lines
from jade.learn.policy import load_policy
from jade.learn.transitions import Experience
from jade.types import Prompt

AT = 2
"""Iterations that are done when a fault strikes."""
ITERATIONS = 4
ANSWERS = {question.text: question.answers[0] for question in small_world().questions}


class FaultyLearner(Learner):
    """Spoils itself right before the update of one iteration, or behind the one before it, as often as told."""

    def __init__(
        self, config: Config, spoil: Callable[[Learner], None], *, at: int, times: int, saved: bool = False
    ) -> None:
        super().__init__(load_policy(config.backbone, config.learn.policy, config.seed), config.learn)
        self._spoil, self._at, self._times, self._saved = spoil, at, times, saved

    def update(self, experience: Experience, *, iteration: int, seed: int) -> dict[str, float]:
        if not self._saved:
            self._spoil_at(iteration)
        figures = super().update(experience, iteration=iteration, seed=seed)
        if self._saved:
            self._spoil_at(iteration + 1)
        return figures

    def _spoil_at(self, iteration: int) -> None:
        if iteration == self._at and self._times:
            self._times -= 1
            self._spoil(self)


@torch.no_grad()
def lose_a_weight(learner: Learner) -> None:
    next(learner.policy.parameters())[5:] = math.nan


def break_the_gradient(learner: Learner) -> None:
    """The next gradient of one weight is infinite, though the loss is not."""
    weight = next(weight for _, weight in learner.policy.policy_parameters())
    hooks: list[RemovableHandle] = []

    def spoil_once(gradient: torch.Tensor) -> torch.Tensor:
        hooks.pop().remove()
        return gradient * math.inf

    hooks.append(weight.register_hook(spoil_once))


@torch.no_grad()
def leap(learner: Learner) -> None:
    generator = torch.Generator().manual_seed(0)
    for _, weight in learner.policy.policy_parameters():
        weight.add_(0.3 * torch.randn(weight.shape, generator=generator))


@torch.no_grad()
def become_certain(learner: Learner) -> None:
    learner.policy.causal.get_output_embeddings().weight *= 500


@torch.no_grad()
def become_noise(learner: Learner) -> None:
    learner.policy.causal.get_output_embeddings().weight *= 0


class TurningScript(ScriptedBackbone):
    """A team that behaves well, and badly for as often as told when the policy has reached a version."""

    def __init__(self, bad: Callable[[Prompt], str], *, at: int, times: int) -> None:
        super().__init__(lambda prompt: (bad if self._turned else behave)(prompt))
        self._turned, self._at, self._times = False, at, times

    async def update_weights(self, named_tensors: object, version: int) -> None:
        self._turned = version == self._at and self._times > 0
        self._times -= self._turned


def behave(prompt: Prompt) -> str:
    if prompt.role == "P":
        return f"<workflow>{'R,AG' if len(prompt.user) % 2 else 'AG'}</workflow>"
    asked = prompt.user.rpartition("Question: ")[2]
    return f"<answer>{ANSWERS.get(asked, 'unknown')}</answer>"


def babble(prompt: Prompt) -> str:
    return "well then"


def break_down(prompt: Prompt) -> str:
    raise BackboneFailed("the model is gone")


def run_short(prompt: Prompt) -> str:
    """Plans cannot be had; the questions are answered all the same, by the fallback."""
    if prompt.role == "P":
        raise BackboneFailed("out of memory")
    return behave(prompt)


def always_the_same(prompt: Prompt) -> str:
    return "<workflow>AG</workflow>" if prompt.role == "P" else "<answer>no idea at all</answer>"


@dataclass(frozen=True)
class Fault:
    """What is done to a run, and what the guard should call it."""

    event: str
    injected: str
    detail: str
    """How the guard's own words begin."""
    spoil: Callable[[Learner], None] | None = None
    bad: Callable[[Prompt], str] | None = None
    learn: Mapping[str, Any] = field(default_factory=dict)
    back: int = AT
    """The iteration that a rollback goes back to: behind weights that sampled badly or were found frozen or noise."""
    saved: bool = False
    """Whether the weights are spoiled behind an update: a checkpoint holds them, and rollouts are sampled by them."""

    @property
    def name(self) -> str:
        return self.injected.partition(":")[0]


FROZEN = {"guard": {"max_kl": 1e9}}
"""Only the entropy is bounded from below, as it is by default."""
NOISE = {"guard": {"max_entropy": 5.72, "max_kl": 1e9}}

FAULTS = (
    Fault("not finite", "loss: a weight becomes NaN", "the loss (loss nan", lose_a_weight),
    Fault("not finite", "gradient: one is infinite, the loss is not", "the gradient", break_the_gradient),
    Fault("kl", "leap: noise on all weights", "moved", leap, learn={"guard": {"max_kl": 0.5}}),
    Fault("entropy", "frozen: logits times 500", "0", become_certain, learn=FROZEN, back=AT - 1),
    Fault("entropy", "noise: logits times 0", "5.72", become_noise, learn=NOISE, back=AT - 1),
    Fault(
        "entropy", "frozen and saved: a checkpoint's too", "0", become_certain, learn=FROZEN, back=AT - 1, saved=True
    ),
    Fault("entropy", "noise and saved: a checkpoint's too", "5.72", become_noise, learn=NOISE, back=AT - 1, saved=True),
    Fault("failures", "breakdown: every call of the model raises", "100% of the questions", bad=break_down),
    Fault("failures", "shortage: every call of the planner raises", "33% of the calls", bad=run_short),
    Fault("format", "babble: every output is malformed", "100% of the outputs", bad=babble, back=AT - 1),
    Fault(
        "collapse",
        "one plan: always AG, always wrong",
        "100% of the plans",
        bad=always_the_same,
        learn={"questions_per_iteration": 6},
        back=AT - 1,
    ),
)


@dataclass(frozen=True)
class Aftermath:
    """What a run with a fault left behind."""

    guard: list[dict[str, Any]]
    """The journal's guard events."""
    log: str
    iterations: int
    rates: list[float]
    stopped: str
    """The report of a run that was ended, empty for one that was not."""
    learner: Learner


async def run_with(fault: Fault, model: Path, folder: Path, *, times: int) -> Aftermath:
    """A run of a few iterations that the fault strikes so often, always at the same point."""
    config = make_config(model, {"learn": merge({"iterations": ITERATIONS}, fault.learn)})
    learner = FaultyLearner(config, fault.spoil or (lambda learner: None), at=AT, times=times, saved=fault.saved)
    backbone = TurningScript(fault.bad, at=AT, times=times) if fault.bad else None
    log = io.StringIO()
    run = make_run(config, folder, backbone=backbone, learner=learner, spectator=Lines(Console(file=log, width=200)))
    stopped = ""
    try:
        await run.train()
    except TrainingStopped as ending:
        stopped = str(ending)
    rates = [row["learning_rate"] for row in read_journal(folder, "iteration") if "learning_rate" in row]
    return Aftermath(
        list(read_journal(folder, "guard")), log.getvalue(), run.progress.iteration, rates, stopped, learner
    )


async def print_table(model: Path, folder: Path) -> None:
    print("| event | injected | said in the log | after one fault | after a fault that stays |\n|---|---|---|---|---|")
    for number, fault in enumerate(FAULTS):
        once = await run_with(fault, model, folder / f"once-{number}", times=1)
        always = await run_with(fault, model, folder / f"always-{number}", times=9)
        said = next(line for line in once.log.splitlines() if "guard:" in line)
        (row,) = once.guard
        scales = ", ".join(f"{each['scale']:g}" for each in always.guard)
        print(
            f"| {fault.event} | {fault.injected} | `{said}` | back to iteration {row['back_to']}, "
            f"then on to {once.iterations} of {ITERATIONS} | step size times {scales}, then "
            f"{'stopped with a report' if always.stopped else 'NOT stopped'} |",
            flush=True,
        )
    print(f"\nThe report of the last one: `{always.stopped}`")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(print_table(make_shared_model(Path(place) / "model"), Path(place)))
    sys.exit(0)

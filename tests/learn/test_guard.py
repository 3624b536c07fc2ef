from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from learn_runs import make_config, make_run, small_world

from jade.backbone.scripted import ScriptedBackbone
from jade.config import Config, GuardConfig
from jade.errors import BackboneFailed, TrainingStopped
from jade.learn.guard import Alarm, Guard
from jade.learn.journal import read_journal
from jade.learn.learner import Learner
from jade.learn.policy import load_policy
from jade.learn.transitions import Experience
from jade.types import Prompt

GOOD = {"reward": 0.5, "malformed": 0.1, "top_plan": 0.6}

ANSWERS = {question.text: question.answers[0] for question in small_world().questions}


class FaultyLearner(Learner):
    """Spoils itself right before the update of one iteration, as often as told."""

    def __init__(self, config: Config, spoil: Callable[[Learner], None], *, at: int, times: int) -> None:
        super().__init__(load_policy(config.backbone, config.learn.policy, config.seed), config.learn)
        self._spoil, self._at, self._times = spoil, at, times

    def update(self, experience: Experience, *, iteration: int, seed: int) -> dict[str, float]:
        if iteration == self._at and self._times:
            self._times -= 1
            self._spoil(self)
        return super().update(experience, iteration=iteration, seed=seed)


@torch.no_grad()
def lose_a_weight(learner: Learner) -> None:
    next(learner.policy.parameters())[5:] = math.nan


@torch.no_grad()
def leap(learner: Learner) -> None:
    generator = torch.Generator().manual_seed(0)
    for _, weight in learner.policy.policy_parameters():
        weight.add_(0.3 * torch.randn(weight.shape, generator=generator))


@torch.no_grad()
def become_certain(learner: Learner) -> None:
    for weight in learner.policy.causal.get_output_embeddings().parameters():
        weight *= 500


class TurningScript(ScriptedBackbone):
    """A team that behaves well until the policy reaches a version, and badly from then on."""

    def __init__(self, good: Callable[[Prompt], str], bad: Callable[[Prompt], str], *, from_version: int) -> None:
        super().__init__(lambda prompt: (bad if self.version >= from_version else good)(prompt))
        self.version = 0

    async def update_weights(self, named_tensors: object, version: int) -> None:
        self.version = version


def behave(prompt: Prompt) -> str:
    if prompt.role == "P":
        return f"<workflow>{'R,AG' if len(prompt.user) % 2 else 'AG'}</workflow>"
    asked = prompt.user.rpartition("Question: ")[2]
    return f"<answer>{ANSWERS.get(asked, 'unknown')}</answer>"


def babble(prompt: Prompt) -> str:
    return "well then"


def break_down(prompt: Prompt) -> str:
    raise BackboneFailed("the model is gone")


def always_the_same(prompt: Prompt) -> str:
    return "<workflow>AG</workflow>" if prompt.role == "P" else "<answer>no idea at all</answer>"


def guard_rows(folder: Path) -> list[dict[str, Any]]:
    return list(read_journal(folder, "guard"))


@pytest.mark.parametrize(
    ("event", "spoil", "bounds"),
    [
        ("not finite", lose_a_weight, {}),
        ("kl", leap, {"max_kl": 0.5}),
        ("entropy", become_certain, {"min_entropy": 1.0, "max_kl": 1e9}),
    ],
)
async def test_a_bad_update_is_named_and_undone_with_a_smaller_step(
    tiny_model: Path, tmp_path: Path, event: str, spoil: Callable[[Learner], None], bounds: dict[str, float]
) -> None:
    config = make_config(tiny_model, {"learn": {"guard": bounds, "iterations": 3}})
    learner = FaultyLearner(config, spoil, at=1, times=1)
    progress = await make_run(config, tmp_path, learner=learner).train()
    (row,) = guard_rows(tmp_path)
    assert (row["event"], row["iteration"], row["back_to"]) == (event, 1, 1)
    assert progress.iteration == 3
    assert progress.strikes == 0
    assert all(bool(weight.isfinite().all()) for weight in learner.policy.parameters())
    rates = [row["learning_rate"] for row in read_journal(tmp_path, "iteration")]
    assert rates[1] == rates[2] < rates[0]


async def test_malformed_outputs_that_explode_are_named_and_stop_the_run_the_third_time(
    tiny_model: Path, tmp_path: Path
) -> None:
    config = make_config(tiny_model, {"learn": {"iterations": 5}})
    run = make_run(config, tmp_path, backbone=TurningScript(behave, babble, from_version=2))
    with pytest.raises(TrainingStopped, match=r"3 times in a row.*iteration 2: format: 100% .* checkpoint is"):
        await run.train()
    assert [(row["event"], row["back_to"]) for row in guard_rows(tmp_path)] == [("format", 1)] * 3
    assert [row["scale"] for row in guard_rows(tmp_path)] == [0.5, 0.25, 0.125]


async def test_questions_that_fail_one_after_the_other_stop_the_run_and_say_why(
    tiny_model: Path, tmp_path: Path
) -> None:
    config = make_config(tiny_model, {"learn": {"iterations": 5, "guard": {"patience": 1}}})
    run = make_run(config, tmp_path, backbone=TurningScript(behave, break_down, from_version=1))
    with pytest.raises(TrainingStopped, match=r"failures: 100% .* the model is gone"):
        await run.train()


async def test_plans_that_collapse_while_the_reward_drops_are_named(tiny_model: Path, tmp_path: Path) -> None:
    settings = {"learn": {"iterations": 5, "questions_per_iteration": 12, "guard": {"patience": 1}}}
    config = make_config(tiny_model, settings)
    run = make_run(config, tmp_path, backbone=TurningScript(behave, always_the_same, from_version=2))
    with pytest.raises(TrainingStopped, match="collapse"):
        await run.train()
    (row,) = guard_rows(tmp_path)
    assert row["event"] == "collapse"


async def test_rollbacks_at_different_places_are_not_in_a_row(tiny_model: Path, tmp_path: Path) -> None:
    config = make_config(tiny_model, {"learn": {"iterations": 2, "guard": {"patience": 2}}})
    learner = FaultyLearner(config, lose_a_weight, at=0, times=1)
    await make_run(config, tmp_path, learner=learner).train()
    longer = make_config(tiny_model, {"learn": {"iterations": 3, "guard": {"patience": 2}}})
    progress = await make_run(longer, tmp_path, learner=FaultyLearner(longer, lose_a_weight, at=2, times=1)).train()
    assert progress.iteration == 3
    assert len(guard_rows(tmp_path)) == 2


async def test_a_fault_that_stays_stops_the_run_with_its_last_good_weights(tiny_model: Path, tmp_path: Path) -> None:
    config = make_config(tiny_model)
    learner = FaultyLearner(config, lose_a_weight, at=1, times=9)
    with pytest.raises(TrainingStopped, match="not finite"):
        await make_run(config, tmp_path, learner=learner).train()
    assert all(bool(weight.isfinite().all()) for weight in learner.policy.parameters())


def test_one_plan_for_all_is_no_collapse_while_the_reward_holds() -> None:
    guard = Guard(GuardConfig(), [GOOD])
    guard.judge_rollout({"reward": 0.5, "malformed": 0.1, "top_plan": 1.0})


def test_one_plan_for_all_from_the_start_is_no_collapse() -> None:
    guard = Guard(GuardConfig(), [GOOD | {"top_plan": 1.0}])
    guard.judge_rollout({"reward": 0.1, "malformed": 0.1, "top_plan": 1.0})


def test_a_drop_of_the_reward_alone_is_no_alarm() -> None:
    Guard(GuardConfig(), [GOOD]).judge_rollout({"reward": 0.1, "malformed": 0.1, "top_plan": 0.7})


def test_without_a_memory_nothing_is_unusual() -> None:
    Guard(GuardConfig()).judge_rollout({"reward": 0.0, "malformed": 1.0, "top_plan": 1.0})


@pytest.mark.parametrize("kl", [1.0, math.nan, math.inf])
def test_a_divergence_out_of_bounds_or_not_finite_is_an_alarm(kl: float) -> None:
    with pytest.raises(Alarm, match="kl"):
        Guard(GuardConfig()).judge_update({"last_kl": kl, "entropy": 1.0})


def test_the_memory_reaches_back_only_so_far() -> None:
    guard = Guard(GuardConfig(window=2))
    for reward in (0.0, 1.0, 1.0):
        guard.remember(GOOD | {"reward": reward, "something": 1.0})
    assert guard.recent == [GOOD | {"reward": 1.0}] * 2

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

import pytest
from learn_faults import AT, FAULTS, ITERATIONS, Fault, FaultyLearner, lose_a_weight, run_short, run_with
from learn_runs import make_config, make_run, small_world

from jade.backbone.scripted import ScriptedBackbone
from jade.config import GuardConfig
from jade.errors import TrainingStopped
from jade.learn.guard import Alarm, Guard
from jade.learn.monitor.journal import read_journal

GOOD = {"reward": 0.5, "malformed": 0.1, "top_plan": 0.6}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_a_fault_is_named_in_the_log_and_undone_with_a_smaller_step(
    tiny_model: Path, tmp_path: Path, fault: Fault
) -> None:
    after = await run_with(fault, tiny_model, tmp_path, times=1)
    (row,) = after.guard
    assert (row["event"], row["iteration"], row["back_to"], row["scale"]) == (fault.event, AT, fault.back, 0.5)
    assert row["detail"].startswith(fault.detail)
    assert f"{AT} guard: {fault.event}: {row['detail']}; back to {fault.back}, step size times 0.5" in after.log
    assert (after.iterations, after.stopped) == (ITERATIONS, "")
    assert after.rates[-1] == pytest.approx(after.rates[0] / 2)
    assert all(bool(weight.isfinite().all()) for weight in after.learner.policy.parameters())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_a_fault_that_stays_stops_the_run_the_third_time_with_a_report(
    tiny_model: Path, tmp_path: Path, fault: Fault
) -> None:
    after = await run_with(fault, tiny_model, tmp_path, times=9)
    assert [(row["event"], row["back_to"], row["scale"]) for row in after.guard] == [
        (fault.event, fault.back, scale) for scale in (0.5, 0.25, 0.125)
    ]
    assert f"rolled this run back 3 times in a row and ended it at iteration {AT}" in after.stopped
    for row in after.guard:  # each once, however often it was the same
        assert after.stopped.count(f"iteration {AT}: {fault.event}: {row['detail']}") == 1
    assert f"the last good checkpoint is {tmp_path / 'checkpoints' / f'step-{fault.back:06d}'}; " in after.stopped
    by_hand = "mend what failed, then go on with --resume"
    remedy = by_hand if fault.event == "failures" else "a learn.ppo.learning_rate smaller than 0.001"
    assert after.stopped.endswith(remedy)
    assert all(bool(weight.isfinite().all()) for weight in after.learner.policy.parameters())


async def test_rollbacks_at_different_places_are_not_in_a_row(tiny_model: Path, tmp_path: Path) -> None:
    config = make_config(tiny_model, {"learn": {"iterations": 2, "guard": {"patience": 2}}})
    learner = FaultyLearner(config, lose_a_weight, at=0, times=1)
    await make_run(config, tmp_path, learner=learner).train()
    longer = make_config(tiny_model, {"learn": {"iterations": 3, "guard": {"patience": 2}}})
    progress = await make_run(longer, tmp_path, learner=FaultyLearner(longer, lose_a_weight, at=2, times=1)).train()
    assert progress.iteration == 3
    assert len(list(read_journal(tmp_path, "guard"))) == 2


async def test_a_dev_measurement_with_failed_steps_is_written_down_and_never_the_best(
    tiny_model: Path, tmp_path: Path
) -> None:
    backbone = ScriptedBackbone(run_short)
    run = make_run(make_config(tiny_model), tmp_path, backbone=backbone, dev=small_world().splits["dev"][:1])
    with pytest.raises(TrainingStopped, match="33% of the calls and searches failed"):
        await run.train()
    (row,) = read_journal(tmp_path, "dev")
    assert row["failed_steps"] == pytest.approx(1 / 3)
    assert run.progress.best is None


def test_one_plan_for_all_is_no_collapse_while_the_reward_holds() -> None:
    guard = Guard(GuardConfig(), [GOOD])
    guard.judge_rollout({"reward": 0.5, "malformed": 0.1, "top_plan": 1.0})


@pytest.mark.parametrize(("error", "alarm"), [(0.02, True), (0.05, False)])
def test_a_drop_that_chance_in_the_draw_of_questions_explains_is_no_collapse(error: float, alarm: bool) -> None:
    figures = {"reward": GOOD["reward"] - 0.1, "reward_error": error, "malformed": 0.1, "top_plan": 1.0}
    guard = Guard(GuardConfig(), [GOOD])
    with pytest.raises(Alarm, match="collapse") if alarm else nullcontext():
        guard.judge_rollout(figures)


def test_one_plan_for_all_from_the_start_is_no_collapse() -> None:
    guard = Guard(GuardConfig(), [GOOD | {"top_plan": 1.0}])
    guard.judge_rollout({"reward": 0.1, "malformed": 0.1, "top_plan": 1.0})


def work_through(guard: Guard, iterations: Iterable[dict[str, float]]) -> None:
    for figures in iterations:
        guard.judge_rollout(GOOD | figures)
        guard.remember(GOOD | figures)


@pytest.mark.parametrize("window", [1, 5])
@pytest.mark.parametrize("fall", [0.005, 0.01, 0.015])
def test_plans_that_become_one_slowly_while_the_reward_falls_slowly_are_a_collapse(fall: float, window: int) -> None:
    course = [{"top_plan": min(1.0, 0.6 + 0.02 * i), "reward": max(0.0, 0.5 - fall * i)} for i in range(60)]
    with pytest.raises(Alarm, match=r"at best 60%, and the reward fell from 0\.500"):
        work_through(Guard(GuardConfig(window=window)), course)


def test_a_reward_that_drops_long_after_plans_became_one_is_a_collapse_also_behind_a_checkpoint() -> None:
    guard = Guard(GuardConfig())
    work_through(guard, [{"top_plan": 0.6 if i < 5 else 1.0} for i in range(20)])
    restored = Guard(GuardConfig(), guard.recent)
    with pytest.raises(Alarm, match="collapse: 100% of the plans are the same, at best 60%"):
        restored.judge_rollout(GOOD | {"top_plan": 1.0, "reward": 0.1})


def test_plans_that_become_one_while_the_reward_rises_are_no_collapse() -> None:
    course = [{"top_plan": min(1.0, 0.6 + 0.02 * i), "reward": 0.3 + 0.005 * i} for i in range(60)]
    work_through(Guard(GuardConfig()), course)


def test_a_drop_of_the_reward_alone_is_no_alarm() -> None:
    Guard(GuardConfig(), [GOOD]).judge_rollout({"reward": 0.1, "malformed": 0.1, "top_plan": 0.7})


def test_without_a_memory_nothing_is_unusual() -> None:
    Guard(GuardConfig()).judge_rollout({"reward": 0.0, "malformed": 1.0, "top_plan": 1.0})


@pytest.mark.parametrize("kl", [1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["last_kl", "kl_after"])
def test_a_divergence_out_of_bounds_or_not_finite_is_an_alarm(name: str, kl: float) -> None:
    with pytest.raises(Alarm, match="kl"):
        Guard(GuardConfig()).judge_update({"last_kl": 0.0, "kl_after": 0.0, "entropy": 1.0, name: kl})


async def test_an_only_step_that_is_far_too_long_is_seen_though_its_mini_batch_came_before_it(
    tiny_model: Path, tmp_path: Path
) -> None:
    settings = {"ppo": {"learning_rate": 0.3, "minibatches": 1}, "guard": {"max_kl": 0.5, "patience": 1}}
    with pytest.raises(TrainingStopped, match=r"iteration 0: kl: moved .* nats a token from the sampler"):
        await make_run(make_config(tiny_model, {"learn": settings}), tmp_path).train()


def test_the_memory_reaches_back_only_so_far() -> None:
    guard = Guard(GuardConfig(window=2))
    for reward in (0.0, 1.0, 1.0):
        guard.remember(GOOD | {"reward": reward, "something": 1.0})
    assert [{name: row[name] for name in GOOD} for row in guard.recent] == [GOOD | {"reward": 1.0}] * 2
    assert guard.recent[-1].keys() == {*GOOD, "least_malformed", "least_top_plan", "best_reward"}
    assert guard.recent[-1]["best_reward"] == 1.0


@pytest.mark.parametrize("window", [1, 5])
@pytest.mark.parametrize("rise", [0.09, 0.02])
def test_a_malformed_share_that_rises_slowly_is_an_alarm_as_well(window: int, rise: float) -> None:
    guard = Guard(GuardConfig(window=window))
    for iteration in range(100):
        figures = GOOD | {"malformed": min(1.0, 0.05 + rise * iteration)}
        if figures["malformed"] > 0.05 + 0.3:
            # What is remembered goes through a checkpoint as often as a run is resumed.
            guard = Guard(GuardConfig(window=window), guard.recent)
            with pytest.raises(Alarm, match=r"format: .* at best 5%"):
                guard.judge_rollout(figures)
            return
        guard.judge_rollout(figures)
        guard.remember(figures)


def test_a_malformed_share_that_falls_and_swings_a_little_is_no_alarm() -> None:
    guard = Guard(GuardConfig())
    for iteration in range(50):
        figures = GOOD | {"malformed": max(0.0, 0.9 - 0.1 * iteration) + 0.1 * (iteration % 2)}
        guard.judge_rollout(figures)
        guard.remember(figures)

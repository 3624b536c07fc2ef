from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from learn_builders import Killed, lose_one_file
from learn_faults import FaultyLearner, always_the_same, become_certain, behave, lose_a_weight
from learn_runs import make_config, make_run, small_world

from jade.backbone.local.backbone import LocalBackbone
from jade.backbone.scripted import ScriptedBackbone
from jade.config import Config
from jade.engine.record import read_traces
from jade.learn.checkpoint import Checkpoints, iteration_of
from jade.learn.monitor.journal import read_journal
from jade.learn.train import Run, draw_effort, make_jobs
from jade.reward.outcome import assign_rewards
from jade.team.crew import Crew
from jade.types import Generation, Prompt, Sampling


def numbers(folder: Path) -> list[dict[str, Any]]:
    """The journal without what a clock says."""
    return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in read_journal(folder)]


async def test_a_run_rolls_out_updates_and_writes_a_line_for_every_iteration(tiny_model: Path, tmp_path: Path) -> None:
    run = make_run(make_config(tiny_model), tmp_path)
    progress = await run.train()
    rows = list(read_journal(tmp_path, "iteration"))
    assert progress.iteration == 3
    assert [row["iteration"] for row in rows] == [1, 2, 3]
    assert {"reward", "outcome", "rounds", "malformed", "approx_kl", "logp_gap", "seconds_rollout"} <= rows[0].keys()
    assert [iteration_of(place) for place in run.checkpoints.all()] == [2, 3]


async def test_identical_seeds_give_identical_runs(tiny_model: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        await make_run(make_config(tiny_model, {"learn": {"iterations": 2}}), tmp_path / name).train()
    assert numbers(tmp_path / "one") == numbers(tmp_path / "other")


async def test_another_seed_gives_another_run(tiny_model: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        config = make_config(tiny_model, {"seed": seed, "learn": {"iterations": 1}})
        await make_run(config, tmp_path / str(seed)).train()
    assert numbers(tmp_path / "0") != numbers(tmp_path / "1")


async def test_the_sampler_speaks_with_the_weights_of_the_last_update(tiny_model: Path, tmp_path: Path) -> None:
    run = make_run(make_config(tiny_model, {"learn": {"role_temperature": {"P": 1.5, "AG": 0.5}}}), tmp_path)
    await run.train()
    rows = list(read_journal(tmp_path, "iteration"))
    # Behaviour log-probs are the sampler's own; the learner computes the same ones again before every update.
    assert all(row["logp_gap_max"] < 1e-3 for row in rows)
    assert isinstance(run.crew, Crew)
    assert run.crew.cast.shared.policy_version == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize(("adapt", "dial"), [("full", 0.4), ("lora", 0.0)])
async def test_going_on_from_an_older_checkpoint_ends_where_going_through_does(
    tiny_model: Path, tmp_path: Path, adapt: str, dial: float
) -> None:
    settings = {
        "learn": {"iterations": 3, "checkpoint_every": 2, "policy": {"adapt": adapt}, "ppo": {"decay": "linear"}},
        "reward": {"dial": dial},
    }
    through = make_run(make_config(tiny_model, settings), tmp_path / "through")
    await through.train()
    shutil.copytree(tmp_path / "through", tmp_path / "killed")
    # As after a kill in the middle of an iteration: the newest checkpoint is an older one, the journal has more.
    killed = make_run(make_config(tiny_model, settings), tmp_path / "killed")
    killed.checkpoints.drop_after(2)
    await killed.train()
    assert numbers(tmp_path / "killed") == numbers(tmp_path / "through")
    for name in ("policy.safetensors", "optimiser.safetensors"):
        one, other = (tmp_path / run / "checkpoints/step-000003" / name for run in ("through", "killed"))
        assert one.read_bytes() == other.read_bytes()


async def test_rollouts_after_a_measurement_read_the_prompts_that_a_resumed_run_reads(
    tiny_model: Path, tmp_path: Path
) -> None:
    async def reused(folder: str, iterations: int) -> int:
        learn = {"iterations": iterations, "dev_every": 2}
        run = make_run(make_config(tiny_model, {"learn": learn}), tmp_path / folder, dev=small_world().splits["dev"])
        await run.train()
        assert isinstance(run.crew, Crew)
        assert isinstance(run.crew.cast.shared, LocalBackbone)
        return run.crew.cast.shared.counts.prompt_tokens_reused

    through = await reused("through", 3)
    # Copied or computed, a prompt's keys and values differ in their last digits.
    assert await reused("resumed", 2) + await reused("resumed", 3) == through
    assert numbers(tmp_path / "resumed") == numbers(tmp_path / "through")


async def test_a_run_that_was_rolled_back_and_then_killed_equals_one_that_was_not(
    tiny_model: Path, tmp_path: Path
) -> None:
    await make_run(make_config(tiny_model, {"learn": {"iterations": 1}}), tmp_path / "bold").train()
    (bold,) = read_journal(tmp_path / "bold", "iteration")
    # A step that the guard calls too long; half of it is not.
    bounds = {"guard": {"max_kl": 0.9 * bold["kl_after"]}, "checkpoint_every": 2}
    config = make_config(tiny_model, {"learn": bounds})
    await make_run(config, tmp_path / "through").train()
    assert [row["event"] for row in read_journal(tmp_path / "through", "guard")] == ["kl"]
    shutil.copytree(tmp_path / "through", tmp_path / "killed")
    killed = make_run(config, tmp_path / "killed")
    killed.checkpoints.drop_after(0)
    await killed.train()
    assert numbers(tmp_path / "killed") == numbers(tmp_path / "through")


def states(*places: Path) -> list[dict[str, Any]]:
    """What checkpoints know of their runs, but for where their journals end."""
    return [json.loads((place / "state.json").read_text()) | {"journal_bytes": 0} for place in places]


async def rolled_back_at(failed: int, config: Config, folder: Path) -> Run:
    """A run whose update fails once, with a checkpoint after every second iteration."""
    run = make_run(config, folder, learner=FaultyLearner(config, lose_a_weight, at=failed, times=1))
    await run.train()
    assert [row["back_to"] for row in read_journal(folder, "guard")] == [failed - 1]
    return run


def assert_same_checkpoint(one: Path, other: Path) -> None:
    for name in ("policy.safetensors", "optimiser.safetensors"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    assert states(one) == states(other)


async def test_after_a_rollback_weights_moments_and_memory_are_the_checkpoints_and_the_step_is_smaller(
    tiny_model: Path, tmp_path: Path
) -> None:
    settings = {"learn": {"iterations": 4, "checkpoint_every": 2}}
    await rolled_back_at(3, make_config(tiny_model, settings), tmp_path / "rolled back")
    # The same by hand: a run that ended at the checkpoint, with what the guard writes there, and went on.
    await make_run(
        make_config(tiny_model, {"learn": settings["learn"] | {"iterations": 2}}), tmp_path / "by hand"
    ).train()
    state = tmp_path / "by hand/checkpoints/step-000002/state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"scale": 0.5, "strikes": 1, "failed_at": 3}))
    await make_run(make_config(tiny_model, settings), tmp_path / "by hand").train()
    one, other = (tmp_path / run / "checkpoints/step-000004" for run in ("rolled back", "by hand"))
    assert_same_checkpoint(one, other)
    (state_found,) = states(one)
    assert (state_found["scale"], len(state_found["recent"])) == (0.5, 4)


async def test_a_run_resumed_after_a_rollback_keeps_the_smaller_step_the_memory_and_the_moments(
    tiny_model: Path, tmp_path: Path
) -> None:
    config = make_config(tiny_model, {"learn": {"iterations": 6, "checkpoint_every": 2}})
    await rolled_back_at(3, config, tmp_path / "through")
    shutil.copytree(tmp_path / "through", tmp_path / "killed")
    killed = make_run(config, tmp_path / "killed")
    killed.checkpoints.drop_after(4)
    await killed.train()
    assert numbers(tmp_path / "killed") == numbers(tmp_path / "through")
    assert_same_checkpoint(*(tmp_path / run / "checkpoints/step-000006" for run in ("through", "killed")))


async def test_a_run_killed_while_a_rollback_removes_a_checkpoint_can_be_resumed(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(tiny_model, {"learn": {"iterations": 4, "guard": {"max_kl": 1e9}}})
    learner = FaultyLearner(config, become_certain, at=2, times=1, saved=True)
    drop_after = Checkpoints.drop_after

    def drop_half(checkpoints: Checkpoints, iteration: int) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("shutil.rmtree", lose_one_file)
            drop_after(checkpoints, iteration)

    monkeypatch.setattr(Checkpoints, "drop_after", drop_half)
    with pytest.raises(Killed):
        await make_run(config, tmp_path, learner=learner).train()
    monkeypatch.undo()
    run = make_run(config, tmp_path)
    assert (await run.train()).iteration == 4
    assert sorted(path.name for path in run.checkpoints.folder.iterdir()) == ["step-000003", "step-000004"]


async def test_a_run_killed_before_its_first_checkpoint_begins_again(tiny_model: Path, tmp_path: Path) -> None:
    config = make_config(tiny_model, {"learn": {"iterations": 1}})
    dev = small_world().splits["dev"][:1]
    await make_run(config, tmp_path / "through", dev=dev).train()
    killed = make_run(config, tmp_path / "killed", dev=dev)
    killed.journal.write("dev", 0, {"reward": 0.0})
    await killed.train()
    assert numbers(tmp_path / "killed") == numbers(tmp_path / "through")


async def test_only_the_roles_that_train_are_learned_from(tiny_model: Path, tmp_path: Path) -> None:
    run = make_run(make_config(tiny_model, {"learn": {"iterations": 1, "train_roles": ["P"]}}), tmp_path)
    await run.train()
    (row,) = read_journal(tmp_path, "iteration")
    assert [name for name in row if name.startswith("tokens/")] == ["tokens/P"]


async def test_the_best_checkpoint_on_dev_is_kept(tiny_model: Path, tmp_path: Path) -> None:
    config = make_config(tiny_model, {"learn": {"iterations": 2, "dev_every": 1}})
    run = make_run(config, tmp_path, dev=small_world().splits["dev"][:1])
    progress = await run.train()
    scores = {row["iteration"]: row["reward"] for row in read_journal(tmp_path, "dev")}
    assert sorted(scores) == [0, 1, 2]
    assert progress.best == max(scores.values())
    assert progress.best_iteration in [iteration_of(place) for place in run.checkpoints.all()]


class RightAt(ScriptedBackbone):
    """A team that knows the answers while its policy has one version; notes how each question was sampled."""

    def __init__(self, version: int) -> None:
        super().__init__(lambda prompt: behave(prompt) if self._right else always_the_same(prompt))
        self._right, self._version = False, version
        self.temperatures: dict[str, set[float]] = {}

    async def update_weights(self, named_tensors: object, version: int) -> None:
        self._right = version == self._version

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        asked = prompt.user.rpartition("Question: ")[2]
        self.temperatures.setdefault(asked, set()).add(sampling.temperature)
        return await super().generate(prompt, sampling)


async def test_the_best_is_the_one_with_the_highest_score_on_dev_also_after_a_resumption(
    tiny_model: Path, tmp_path: Path
) -> None:
    dev = small_world().splits["dev"][:1]
    for iterations in (4, 5):
        config = make_config(
            tiny_model, {"learn": {"iterations": iterations, "dev_every": 1, "guard": {"max_kl": 1e9}}}
        )
        run = make_run(config, tmp_path, backbone=RightAt(1), dev=dev)
        progress = await run.train()
        assert (progress.best, progress.best_iteration) == (1.0, 1)
    assert [row["reward"] for row in read_journal(tmp_path, "dev")] == [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert [iteration_of(place) for place in run.checkpoints.all()] == [1, 4, 5]


async def test_dev_is_measured_as_the_team_would_answer_not_as_rollouts_are_sampled(
    tiny_model: Path, tmp_path: Path
) -> None:
    settings = {"learn": {"iterations": 1, "temperature": 0.7}, "sampling": {"temperature": 0.2}}
    backbone, dev = RightAt(0), small_world().splits["dev"][:1]
    await make_run(make_config(tiny_model, settings), tmp_path, backbone=backbone, dev=dev).train()
    assert backbone.temperatures.pop(dev[0].text) == {0.2}
    assert set.union(*backbone.temperatures.values()) == {0.7}


async def test_a_limit_in_minutes_stops_at_a_boundary_with_a_checkpoint(tiny_model: Path, tmp_path: Path) -> None:
    run = make_run(make_config(tiny_model, {"learn": {"iterations": 50, "checkpoint_every": 50}}), tmp_path)
    progress = await run.train(minutes=1e-6)
    assert 0 <= progress.iteration < 50
    assert iteration_of(run.checkpoints.all()[-1]) == progress.iteration


async def test_traces_of_an_iteration_are_kept_with_their_prompts(tiny_model: Path, tmp_path: Path) -> None:
    await make_run(make_config(tiny_model, {"learn": {"iterations": 1, "traces_every": 1}}), tmp_path).train()
    traces = list(read_traces(tmp_path / "traces" / "iteration-000001.jsonl"))
    assert len(traces) == 2
    assert all(step.generation.prompt_ids for trace in traces for step in trace.steps if step.generation)


def test_rollouts_of_a_question_differ_in_their_seed_and_share_their_prices(tiny_model: Path) -> None:
    config = make_config(tiny_model, {"learn": {"rollouts": 3}, "reward": {"dial": 0.4}})
    jobs = make_jobs(small_world().splits["train"][:2], config, iteration=5)
    assert len({job.seed for job in jobs}) == 6
    assert jobs[0].effort == jobs[1].effort == jobs[2].effort != jobs[3].effort


def test_with_a_mirror_every_second_rollout_is_as_dear_as_the_others_are_cheap(tiny_model: Path) -> None:
    config = make_config(tiny_model, {"learn": {"rollouts": 4}, "reward": {"dial": 0.4, "mirror": True}})
    for jobs in (make_jobs(small_world().splits["train"][:1], config, iteration) for iteration in range(20)):
        here, there, *others = [job.effort for job in jobs]
        assert others == [here, there]
        assert here is not None
        assert there is not None
        assert here.alpha + there.alpha == pytest.approx(0.4)
        assert here.beta + there.beta == pytest.approx(0.4)
        assert 0 <= there.alpha <= 0.4


def test_the_dial_draws_prices_between_nothing_and_its_end(tiny_model: Path) -> None:
    config = make_config(tiny_model, {"reward": {"dial": 0.4}})
    drawn = [draw_effort(config, iteration, 0, 0) for iteration in range(200)]
    assert all(effort and 0 <= effort.alpha <= 0.4 and 0 <= effort.beta <= 0.4 for effort in drawn)
    assert max(effort.alpha for effort in drawn if effort) > 0.3
    assert draw_effort(make_config(tiny_model), 0, 0, 0) is None


async def test_an_iteration_of_the_ramp_costs_its_share_of_the_price(tiny_model: Path, tmp_path: Path) -> None:
    learn = {"iterations": 3, "traces_every": 1, "checkpoint_every": 1}
    await make_run(make_config(tiny_model, {"learn": learn, "reward": {"alpha": 0.3, "ramp": 2}}), tmp_path).train()
    for iteration, row in enumerate(read_journal(tmp_path, "iteration")):
        traces = list(read_traces(tmp_path / "traces" / f"iteration-{iteration + 1:06d}.jsonl"))
        full = sum(0.3 * min(trace.usage.rounds, 3) / 3 for trace in traces) / len(traces)
        assert full > 0
        assert row["cost"] == pytest.approx(full * iteration / 2)
        assert row["reward"] == pytest.approx(row["outcome"] - row["cost"])


async def test_the_guard_compares_rewards_at_one_price_while_prices_rise(tiny_model: Path, tmp_path: Path) -> None:
    learn = {"iterations": 3, "traces_every": 1, "checkpoint_every": 1}
    run = make_run(make_config(tiny_model, {"learn": learn, "reward": {"alpha": 0.3, "ramp": 2}}), tmp_path)
    await run.train()
    rows = list(read_journal(tmp_path, "iteration"))
    assert rows[0]["cost"] == 0
    for iteration, (row, seen) in enumerate(zip(rows, run.guard.recent, strict=True)):
        traces = list(read_traces(tmp_path / "traces" / f"iteration-{iteration + 1:06d}.jsonl"))
        full = sum(0.3 * min(trace.usage.rounds, 3) / 3 for trace in traces) / len(traces)
        assert seen["reward"] == pytest.approx(row["outcome"] - full)


async def test_the_planner_is_told_the_prices_that_its_question_pays(tiny_model: Path, tmp_path: Path) -> None:
    config = make_config(tiny_model, {"learn": {"iterations": 2, "traces_every": 1}, "reward": {"dial": 0.4}})
    await make_run(config, tmp_path).train()
    row = list(read_journal(tmp_path, "iteration"))[1]
    traces = list(read_traces(tmp_path / "traces" / "iteration-000002.jsonl"))
    # Every draw follows from the seed, the iteration and the place in it: a resumed run draws the same again.
    assert [trace.effort for trace in traces] == [draw_effort(config, 1, place, 0) for place in range(2)]
    for trace in traces:
        planned = [step.observation.effort for step in trace.steps if step.role == "P"]
        assert planned
        assert set(planned) == {trace.effort}
    paid = [
        trace.effort.alpha * min(trace.usage.rounds, 3) / 3 + trace.effort.beta * min(trace.usage.retrievals, 3) / 3
        for trace in traces
        if trace.effort
    ]
    assert row["cost"] == pytest.approx(sum(paid) / 2)
    assert row["reward"] == pytest.approx(row["outcome"] - row["cost"])
    for trace, price in zip(traces, paid, strict=True):
        charged = [reward.cost for reward in assign_rewards(trace, config.reward).values()]
        assert charged == pytest.approx([price] * len(charged))

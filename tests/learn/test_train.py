from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from learn_runs import make_config, make_run, small_world

from jade.backbone.local import LocalBackbone
from jade.engine.record import read_traces
from jade.learn.checkpoint import iteration_of
from jade.learn.journal import read_journal
from jade.learn.train import draw_effort, make_jobs
from jade.reward.outcome import assign_rewards
from jade.team.crew import Crew


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
    bounds = {"guard": {"max_kl": 0.9 * bold["last_kl"]}, "checkpoint_every": 2}
    config = make_config(tiny_model, {"learn": bounds})
    await make_run(config, tmp_path / "through").train()
    assert [row["event"] for row in read_journal(tmp_path / "through", "guard")] == ["kl"]
    shutil.copytree(tmp_path / "through", tmp_path / "killed")
    killed = make_run(config, tmp_path / "killed")
    killed.checkpoints.drop_after(0)
    await killed.train()
    assert numbers(tmp_path / "killed") == numbers(tmp_path / "through")


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


def test_the_dial_draws_prices_between_nothing_and_its_end(tiny_model: Path) -> None:
    config = make_config(tiny_model, {"reward": {"dial": 0.4}})
    drawn = [draw_effort(config, iteration, 0) for iteration in range(200)]
    assert all(effort and 0 <= effort.alpha <= 0.4 and 0 <= effort.beta <= 0.4 for effort in drawn)
    assert max(effort.alpha for effort in drawn if effort) > 0.3
    assert draw_effort(make_config(tiny_model), 0, 0) is None


async def test_the_planner_is_told_the_prices_that_its_question_pays(tiny_model: Path, tmp_path: Path) -> None:
    config = make_config(tiny_model, {"learn": {"iterations": 2, "traces_every": 1}, "reward": {"dial": 0.4}})
    await make_run(config, tmp_path).train()
    row = list(read_journal(tmp_path, "iteration"))[1]
    traces = list(read_traces(tmp_path / "traces" / "iteration-000002.jsonl"))
    # Every draw follows from the seed, the iteration and the place in it: a resumed run draws the same again.
    assert [trace.effort for trace in traces] == [draw_effort(config, 1, place) for place in range(2)]
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

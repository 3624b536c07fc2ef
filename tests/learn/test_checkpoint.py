from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from learn_builders import Killed, lose_one_file, make_experience, make_transition
from safetensors.torch import load_file

from jade.config import BackboneConfig, LearnConfig
from jade.errors import TrainingStopped
from jade.learn.checkpoint import Checkpoints, Progress, iteration_of, read_progress
from jade.learn.learner import Learner
from jade.learn.policy import load_policy

PROGRESS = Progress(3, 0.5, 1, 2, ({"reward": 0.1 + 0.2},), 1 / 3, 2, 99)


def make_learner(tiny_model: Path, **settings: object) -> Learner:
    cfg = LearnConfig.model_validate({"ppo": {"learning_rate": 1e-2}, "credit": {"rule": "shared"}, **settings})
    return Learner(load_policy(BackboneConfig(model=str(tiny_model), device="cpu"), cfg.policy), cfg)


def train_a_little(learner: Learner, seed: int = 0) -> None:
    calls = [make_transition(f"t{n}", outcome=float(n % 2), first_id=10 * n + 3) for n in range(6)]
    learner.update(make_experience(calls), iteration=0, seed=seed)


def everything(learner: Learner) -> list[torch.Tensor]:
    moments = [value for state in learner.optimiser.state.values() for value in state.values()]
    return [tensor.detach().clone() for tensor in (*learner.policy.parameters(), *moments)]


@pytest.mark.parametrize("adapt", ["full", "lora"])
def test_a_checkpoint_brings_weights_optimiser_and_progress_back_exactly(
    tiny_model: Path, tmp_path: Path, adapt: str
) -> None:
    checkpoints, policy = Checkpoints(tmp_path), {"policy": {"adapt": adapt}}
    saved = make_learner(tiny_model, **policy)
    train_a_little(saved)
    place = checkpoints.save(saved.policy, saved.optimiser, PROGRESS)
    loaded = make_learner(tiny_model, **policy)
    assert checkpoints.load(place, loaded.policy, loaded.optimiser) == PROGRESS
    assert all(torch.equal(one, other) for one, other in zip(everything(saved), everything(loaded), strict=True))
    for learner in (saved, loaded):
        train_a_little(learner, seed=1)
    assert all(torch.equal(one, other) for one, other in zip(everything(saved), everything(loaded), strict=True))


def test_nothing_but_safetensors_and_json_is_written(tiny_model: Path, tmp_path: Path) -> None:
    learner = make_learner(tiny_model)
    train_a_little(learner)
    place = Checkpoints(tmp_path).save(learner.policy, learner.optimiser, PROGRESS)
    assert sorted(path.name for path in place.iterdir()) == [
        "optimiser.safetensors",
        "policy.safetensors",
        "state.json",
    ]
    assert any(name.startswith("exp_avg_sq/") for name in load_file(place / "optimiser.safetensors"))
    assert json.loads((place / "state.json").read_text())["iteration"] == 3


def test_the_last_few_and_the_best_are_kept(tiny_model: Path, tmp_path: Path) -> None:
    learner, checkpoints = make_learner(tiny_model), Checkpoints(tmp_path, keep=2)
    for iteration in range(6):
        checkpoints.save(learner.policy, learner.optimiser, Progress(iteration, best_iteration=1))
    assert [iteration_of(place) for place in checkpoints.all()] == [1, 4, 5]


def test_the_best_of_a_point_that_a_rollback_goes_back_to_is_still_there(tiny_model: Path, tmp_path: Path) -> None:
    """At 2 there was a new best, which the rollback takes back with all that came after 1."""
    learner, checkpoints = make_learner(tiny_model), Checkpoints(tmp_path, keep=2)
    for iteration, best in ((0, 0), (1, 0), (2, 2)):
        checkpoints.save(learner.policy, learner.optimiser, Progress(iteration, best_iteration=best))
    goal = checkpoints.newest(before=2)
    assert goal is not None
    restored = checkpoints.load(goal, learner.policy, learner.optimiser)
    checkpoints.drop_after(restored.iteration)
    assert checkpoints.place(restored.best_iteration) in checkpoints.all()


def test_what_was_cut_off_in_writing_does_not_count(tiny_model: Path, tmp_path: Path) -> None:
    learner, checkpoints = make_learner(tiny_model), Checkpoints(tmp_path)
    checkpoints.save(learner.policy, learner.optimiser, Progress(1))
    (tmp_path / ".partial-step-000002").mkdir()
    (tmp_path / ".partial-step-000002" / "policy.safetensors").write_bytes(b"half")
    newest = checkpoints.newest()
    assert newest is not None
    assert iteration_of(newest) == 1
    checkpoints.save(learner.policy, learner.optimiser, Progress(2))
    assert not (tmp_path / ".partial-step-000002").exists()


@pytest.mark.parametrize("how", ["saved again", "dropped", "forgotten"])
def test_what_was_cut_off_in_removing_does_not_count_and_is_cleared_away(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    learner, checkpoints = make_learner(tiny_model), Checkpoints(tmp_path, keep=2)

    def save(iteration: int) -> None:
        checkpoints.save(learner.policy, learner.optimiser, Progress(iteration))

    save(1)
    save(2)
    removals = {
        "saved again": lambda: save(2),
        "dropped": lambda: checkpoints.drop_after(1),
        "forgotten": lambda: save(3),
    }
    monkeypatch.setattr("shutil.rmtree", lose_one_file)
    with pytest.raises(Killed):
        removals[how]()
    monkeypatch.undo()
    left = {"saved again": [1], "dropped": [1], "forgotten": [2, 3]}[how]
    assert [iteration_of(place) for place in checkpoints.all()] == left
    for place in checkpoints.all():
        checkpoints.load(place, learner.policy, learner.optimiser)
    save(4)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"step-{n:06d}" for n in (left[-1], 4)]


def test_a_checkpoint_that_has_lost_a_file_does_not_count(tiny_model: Path, tmp_path: Path) -> None:
    learner, checkpoints = make_learner(tiny_model), Checkpoints(tmp_path)
    for iteration in (1, 2):
        place = checkpoints.save(learner.policy, learner.optimiser, Progress(iteration))
    (place / "policy.safetensors").unlink()
    assert [iteration_of(place) for place in checkpoints.all()] == [1]


def test_going_back_behind_an_iteration_finds_the_newest_before_it(tiny_model: Path, tmp_path: Path) -> None:
    learner, checkpoints = make_learner(tiny_model), Checkpoints(tmp_path, keep=9)
    for iteration in (0, 5, 10):
        checkpoints.save(learner.policy, learner.optimiser, Progress(iteration))
    found = [checkpoints.newest(before) for before in (None, 11, 10, 1, 0)]
    assert [iteration_of(place) for place in found if place] == [10, 10, 5, 0, 0]
    checkpoints.drop_after(5)
    assert [iteration_of(place) for place in checkpoints.all()] == [0, 5]


def test_a_checkpoint_of_another_shape_is_refused_with_a_reason(tiny_model: Path, tmp_path: Path) -> None:
    learner = make_learner(tiny_model)
    place = Checkpoints(tmp_path).save(learner.policy, learner.optimiser, Progress())
    other = make_learner(tiny_model, policy={"adapt": "lora"})
    with pytest.raises(TrainingStopped, match=r"learn\.policy"):
        Checkpoints(tmp_path).load(place, other.policy, other.optimiser)


@pytest.mark.parametrize("text", ["{", '{"schema": 99, "recent": []}'])
def test_a_damaged_or_foreign_state_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(TrainingStopped, match="checkpoint"):
        read_progress(tmp_path)

"""The loop in one and in several processes, started by torch's own launcher."""

from __future__ import annotations

import multiprocessing
import random
from pathlib import Path

import pytest
from cluster_runs import make_cluster_config, numbers, same_within_rounding, with_huge_model
from placed_run import take_place
from torch.distributed.launcher.api import elastic_launch

from jade.cluster.member import Task
from jade.cluster.torchrun import launch_settings, train_with_torchrun
from jade.config import Config
from jade.errors import TrainingStopped
from jade.learn.checkpoint import Progress
from jade.learn.monitor.show import Silent


def train(config: Config, folder: Path, workers: int, *, resume: bool = False) -> Progress:
    return train_with_torchrun(Task(config, folder, resume=resume), Silent(), workers)


def test_one_process_gives_the_numbers_of_the_run_here(config: Config, here: Path, tmp_path: Path) -> None:
    assert train(config, tmp_path / "one", 1).iteration == 3
    assert numbers(tmp_path / "one") == numbers(here)


def test_two_processes_one_of_them_killed_in_a_random_iteration_give_the_same_within_rounding(
    config: Config, material: Path, here: Path, tmp_path: Path
) -> None:
    order, chance = material / "kill-learner", random.Random(4)
    order.write_text(f"{chance.randrange(2)} {chance.randint(1, 3)}")
    train(config, tmp_path / "two", 2)
    assert not order.exists(), "nobody was killed"
    assert same_within_rounding(tmp_path / "two", here)


def placed_by_torchrun(task: Task, workers: int) -> set[str]:
    """What processes say that torch's launcher, and not `jade train`, has started."""
    multiprocessing.set_forkserver_preload(["jade.cluster.torchrun"])
    return set(elastic_launch(launch_settings(workers, restarts=0), take_place)(task).values())


def test_processes_that_torchrun_has_started_take_their_places(config: Config, here: Path, tmp_path: Path) -> None:
    task = Task(config, tmp_path / "placed")
    assert placed_by_torchrun(task, 2) == {"3 iterations"}
    assert same_within_rounding(task.folder, here)
    (said,) = placed_by_torchrun(task, 2)
    assert "holds a run already" in said


def test_too_little_memory_is_said_by_every_process_that_torchrun_has_started(config: Config, tmp_path: Path) -> None:
    (said,) = placed_by_torchrun(Task(with_huge_model(config, tmp_path / "huge"), tmp_path / "run"), 2)
    assert "2 learners and 2 samplers need about" in said
    assert "\n" not in said
    assert not (tmp_path / "run").exists()


def test_a_learner_that_dies_too_often_ends_the_run_in_one_line_and_another_number_of_them_goes_on(
    tiny_model: Path, material: Path, here: Path, tmp_path: Path
) -> None:
    config = make_cluster_config(tiny_model, material, {"cluster": {"restarts": 0}})
    (material / "kill-learner").write_text("0 2")
    with pytest.raises(TrainingStopped, match=r"learner 0 died too often \(.*SIGKILL.*--resume") as raised:
        train(config, tmp_path / "run", 1)
    assert "\n" not in str(raised.value)
    assert train(config, tmp_path / "run", 2, resume=True).iteration == 3
    assert same_within_rounding(tmp_path / "run", here)

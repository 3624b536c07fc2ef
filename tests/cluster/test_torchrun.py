"""The loop in one and in several processes, started by torch's own launcher."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_runs import make_cluster_config, numbers, train_here, write_material

from jade.cluster.member import Task
from jade.cluster.torchrun import train_with_torchrun
from jade.config import Config
from jade.learn.show import Silent


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_material(tmp_path_factory.mktemp("material"))


def train(config: Config, folder: Path, workers: int) -> None:
    train_with_torchrun(Task(config, folder), Silent(), workers)


async def test_one_and_two_processes_give_the_numbers_of_none(tiny_model: Path, material: Path, tmp_path: Path) -> None:
    config = make_cluster_config(tiny_model, material)
    await train_here(config, tmp_path / "here")
    train(config, tmp_path / "one", 1)
    train(config, tmp_path / "two", 2)
    assert numbers(tmp_path / "one") == numbers(tmp_path / "here")
    for row, other in zip(numbers(tmp_path / "two"), numbers(tmp_path / "here"), strict=True):
        assert row == pytest.approx(other, rel=1e-4, abs=1e-5)

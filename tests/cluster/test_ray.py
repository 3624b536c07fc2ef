"""Ray runs the learners and keeps the rollout actors alive; what is computed is what one process computes.

Loading torch is most of what a process of such a run does, so that each run here shows several things at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mortal_roller
import pytest
from cluster_runs import numbers, same_within_rounding
from mortal_roller import ORDER, MortalRoller

pytest.importorskip("ray", reason="ray is not installed: pip install 'jade-team[ray]'")

import ray

from jade.cluster.member import Task
from jade.cluster.ray_actors import Post, RayTroupe, kept_alive
from jade.cluster.ray_room import connected, plan_room
from jade.cluster.ray_train import train_with_ray
from jade.config import Config, SamplingConfig
from jade.engine.rollout import Job
from jade.learn.monitor.show import Silent
from jade.types import Question

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning:ray.data.context")
"""Ray Train sets options of Ray Data that Ray Data has deprecated."""
JOBS = [Job(Question(f"q{number}", "Who?"), number) for number in range(5)]


@pytest.fixture(scope="module", autouse=True)
def cluster(config: Config) -> Iterator[None]:
    """One Ray for all tests here, started as a run on one machine starts it, with room for two runs at once: actors
    go a moment after their run."""
    with connected(config, 4, None):
        yield


@pytest.fixture
def rollers(config: Config, tmp_path: Path) -> Iterator[list[Any]]:
    ray.cloudpickle.register_pickle_by_value(mortal_roller)  # Ray's processes cannot import from this folder
    room = plan_room(config, 1, 2, {"CPU": 4.0})
    started = [kept_alive(MortalRoller, room).remote(tmp_path) for _ in range(room.actors)]
    yield started
    for actor in started:
        ray.kill(actor)


async def test_questions_dealt_to_two_actors_come_back_in_order_though_one_dies(
    rollers: list[Any], tmp_path: Path
) -> None:
    troupe = RayTroupe(SamplingConfig(), rollers, post=Post(7))
    (tmp_path / ORDER).write_text("once")
    traces = await troupe.roll_out(JOBS, concurrency=64)
    assert [(trace.question, trace.answer) for trace in traces] == [(job.question, "7") for job in JOBS]
    assert (tmp_path / ORDER).read_text() == "", "nobody was killed"


async def test_questions_whose_actor_dies_twice_are_records_and_the_actor_lives_on(
    rollers: list[Any], tmp_path: Path
) -> None:
    troupe = RayTroupe(SamplingConfig(), rollers[:1])
    (tmp_path / ORDER).write_text("once\ntwice")
    lost = await troupe.roll_out(JOBS, concurrency=64)
    assert [trace.question for trace in lost] == [job.question for job in JOBS]
    assert all(trace.error and "the rollout actor died twice" in trace.error for trace in lost)
    found = await troupe.roll_out(JOBS, concurrency=64)
    assert [(trace.error, trace.answer) for trace in found] == [(None, "0")] * len(JOBS)


def test_one_learner_and_one_actor_give_the_numbers_of_one_process(config: Config, here: Path, tmp_path: Path) -> None:
    assert train_with_ray(Task(config, tmp_path / "ray"), Silent()).iteration == 3
    assert numbers(tmp_path / "ray") == numbers(here)


def test_two_learners_one_of_them_and_an_actor_killed_at_random_points_give_the_same_within_rounding(
    config: Config, material: Path, here: Path, tmp_path: Path
) -> None:
    learner, sampler, chance = material / "kill-learner", material / "kill-sampler", random.Random(5)
    learner.write_text(f"{chance.randrange(2)} {chance.randint(1, 3)}")
    sampler.write_text(f"{chance.randint(1, 12)}")
    train_with_ray(Task(patient_with_one_actor(config), tmp_path / "ray"), Silent(), workers=2)
    assert not learner.exists(), "no learner was killed"
    assert sampler.read_text() == "", "no actor was killed"
    assert same_within_rounding(tmp_path / "ray", here)


def patient_with_one_actor(config: Config) -> Config:
    """It asks the cluster to grow, too, and waits for the cores that the run before may not have given back yet."""
    return config.model_copy(update={"cluster": config.cluster.model_copy(update={"actors": 1, "wait_minutes": 30.0})})

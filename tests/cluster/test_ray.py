"""Ray runs the learners and keeps the rollout actors alive; what is computed is what one process computes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cluster_runs import make_cluster_config, numbers, same_within_rounding, train_here, write_material

pytest.importorskip("ray", reason="ray is not installed: pip install 'jade-team[ray]'")

import ray

from jade.cluster.member import Task
from jade.cluster.ray_actors import RayTroupe, start_actors
from jade.cluster.ray_room import connected, make_room
from jade.cluster.ray_train import train_with_ray
from jade.config import Config, SamplingConfig
from jade.engine.rollout import Job, rollout
from jade.learn.policy import Policy, load_policy
from jade.learn.questions import read_question_file
from jade.learn.sampler import publish
from jade.learn.show import Silent
from jade.team.crew import open_crew
from jade.types import Trace

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning:ray.data.context")
"""Ray Train sets options of Ray Data that Ray Data has deprecated."""
SAMPLING = SamplingConfig(temperature=1.0)
ROOM_FOR = {"CPU": 4.0}


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_material(tmp_path_factory.mktemp("material"))


@pytest.fixture(scope="module")
def config(tiny_model: Path, material: Path) -> Config:
    return make_cluster_config(tiny_model, material)


@pytest.fixture(scope="module", autouse=True)
def cluster(config: Config) -> Iterator[None]:
    """One Ray for all tests here, with room for two runs at once: actors go a moment after their run."""
    with connected(config, 4, None):
        yield


@pytest.fixture(scope="module")
def actors(config: Config, cluster: None) -> Iterator[Sequence[Any]]:
    started = start_actors(make_room(config, 1, 2, ROOM_FOR), config)
    yield started
    for actor in started:
        ray.kill(actor)


@pytest.fixture(scope="module")
def policy(config: Config) -> Policy:
    return load_policy(config.backbone, config.learn.policy, seed=1)


@pytest.fixture(scope="module")
def here(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in this process, with which all others are compared."""
    folder = tmp_path_factory.mktemp("here")
    asyncio.run(train_here(config, folder))
    return folder


def make_jobs(config: Config) -> list[Job]:
    questions = read_question_file(config.learn.questions[0])[:6]
    return [Job(question, seed) for seed, question in enumerate(questions)]


def spoken(traces: Sequence[Trace]) -> list[tuple[object, ...]]:
    """Who said what to which question, by token ids, and what came of it."""
    return [
        (trace.id, trace.answer, trace.error, *(step.generation.token_ids for step in trace.steps if step.generation))
        for trace in traces
    ]


@pytest.fixture
async def expected(config: Config, policy: Policy) -> list[tuple[object, ...]]:
    """What a crew in this process says with the policy's weights."""
    async with open_crew(config) as crew:
        crew = replace(crew, sampling=SAMPLING)
        await publish(policy, crew, 1)
        return spoken(await rollout(make_jobs(config), crew))


async def test_actors_say_with_the_weights_they_are_sent_what_a_crew_says_here(
    config: Config, policy: Policy, actors: Sequence[Any], expected: list[tuple[object, ...]]
) -> None:
    troupe = RayTroupe(SAMPLING, actors)
    await troupe.follow(policy, 1)
    traces = await troupe.roll_out(make_jobs(config), concurrency=64)
    assert spoken(traces) == expected
    versions = {step.generation.policy_version for trace in traces for step in trace.steps if step.generation}
    assert versions == {1}


@pytest.mark.parametrize("chance", [0, 1])
async def test_an_actor_killed_in_a_rollout_loses_no_question(
    config: Config,
    policy: Policy,
    actors: Sequence[Any],
    material: Path,
    expected: list[tuple[object, ...]],
    chance: int,
) -> None:
    troupe = RayTroupe(SAMPLING, actors)
    await troupe.follow(policy, 1)
    order = material / "kill-sampler"
    order.write_text(f"{random.Random(chance).randint(1, 6)}")
    assert spoken(await troupe.roll_out(make_jobs(config), concurrency=64)) == expected
    assert order.read_text() == "", "nobody was killed"


async def test_questions_whose_actor_dies_twice_are_records_and_the_actor_lives_on(
    config: Config, policy: Policy, actors: Sequence[Any], material: Path, expected: list[tuple[object, ...]]
) -> None:
    troupe = RayTroupe(SAMPLING, actors[:1])
    await troupe.follow(policy, 1)
    (material / "kill-sampler").write_text("1 1")
    jobs = make_jobs(config)
    lost = await troupe.roll_out(jobs, concurrency=64)
    assert [trace.question for trace in lost] == [job.question for job in jobs]
    assert all(trace.error and "the rollout actor died twice" in trace.error for trace in lost)
    assert spoken(await troupe.roll_out(jobs, concurrency=64)) == expected


def test_one_learner_and_one_actor_give_the_numbers_of_one_process(config: Config, here: Path, tmp_path: Path) -> None:
    progress = train_with_ray(Task(config, tmp_path / "ray"), Silent())
    assert progress.iteration == 3
    assert numbers(tmp_path / "ray") == numbers(here)


def test_two_learners_one_of_them_killed_give_the_same_within_rounding(
    config: Config, material: Path, here: Path, tmp_path: Path
) -> None:
    order = material / "kill-learner"
    order.write_text("1 3")
    train_with_ray(Task(config, tmp_path / "ray"), Silent(), workers=2)
    assert not order.exists(), "nobody was killed"
    assert same_within_rounding(tmp_path / "ray", here)

"""All of learning on a CPU: a model made from nothing, a warm start from gold data, PPO by the team's reward."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from learn_runs import WordRetriever, merge, world_passages
from transformers import AutoTokenizer

from jade.backbone.chat import ChatFormat
from jade.backbone.local import LocalBackbone
from jade.config import Config, SamplingConfig
from jade.corpus.world import make_world
from jade.engine.rollout import rollout
from jade.learn.export import export_policy
from jade.learn.figures import rollout_figures
from jade.learn.journal import read_journal
from jade.learn.learner import Learner
from jade.learn.policy import load_policy
from jade.learn.questions import QuestionStream
from jade.learn.tiny import TinySize, make_tiny_model
from jade.learn.train import Run, make_jobs
from jade.learn.warmstart.collect import Course, collect
from jade.learn.warmstart.examples import tokenise
from jade.learn.warmstart.fit import Fit
from jade.learn.warmstart.gold import ONE_ROUND, lesson_of
from jade.learn.warmstart.leaks import drop_leaks
from jade.team.crew import Cast, Crew
from jade.team.team import build_team
from jade.types import Question

PROMPTS = {"planner": "Plan.", "rewriter": "Query.", "answerer": "Answer.", "summariser": "Conclude."}
"""A model made from nothing reads no instructions: a word tells the roles apart."""
SETTINGS: dict[str, Any] = {
    "team": {"workflows": ["R,AG", "QR,R,AG"]},
    "backbone": {"device": "cpu", "inline": True, "threads": 1, "max_prompt_tokens": 400},
    "retrieval": {"k": 1},
    "warmstart": {"epochs": 30, "learning_rate": 4e-3, "examples_per_step": 16, "passes": 3},
    "learn": {
        "iterations": 12,
        "questions_per_iteration": 10,
        "rollouts": 4,
        "checkpoint_every": 100,
        "dev_every": 100,
        "traces_every": 100,
        "credit": {"rule": "group"},
        "policy": {"critic": "none"},
        "ppo": {"learning_rate": 4e-4, "minibatches": 4, "epochs": 2},
    },
}


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    asked = [q for q in make_world(60, 200, 1).splits["train"] if q.metadata["workflow"] == ONE_ROUND]
    return asked[:10]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, questions: list[Question]) -> Config:
    """A model that was made, taught and exported; the config with which it goes on."""
    folder = tmp_path_factory.mktemp("start")
    (folder / "prompts").mkdir()
    for name, text in PROMPTS.items():
        (folder / "prompts" / f"{name}.md").write_text(text)
    texts = [passage.text for passage in passages()] + [f"{q.text} {q.answers[0]}" for q in questions]
    size = TinySize(vocabulary=700, width=64, layers=2, positions=1024)
    tiny = make_tiny_model(folder / "tiny", texts, size)
    config = with_model(Config.model_validate(merge(SETTINGS, {"team": {"prompts": str(folder / "prompts")}})), tiny)
    return with_model(config, warm_up(config, questions, folder))


def passages() -> list[Any]:
    return world_passages(make_world(60, 200, 1))


def with_model(config: Config, model: Path) -> Config:
    return config.model_copy(update={"backbone": config.backbone.model_copy(update={"model": str(model)})})


def warm_up(config: Config, questions: list[Question], folder: Path) -> Path:
    import asyncio

    lessons, leaks = drop_leaks([lesson_of(question) for question in questions], [])
    course = Course(build_team(config.team), lessons, [], leaks)
    examples = asyncio.run(collect(config, course, WordRetriever(passages())))
    chat = ChatFormat(AutoTokenizer.from_pretrained(config.backbone.model))
    policy = load_policy(config.backbone, config.learn.policy, config.seed)
    Fit(config, policy, tokenise(examples, chat, config.backbone.max_prompt_tokens), folder / "fit").train()
    losses = [row["loss"] for row in read_journal(folder / "fit", "fit")]
    assert losses[-1] < losses[0] / 4
    return export_policy(policy, config, folder / "model")


def make_crew_of(config: Config) -> Crew:
    backbone = LocalBackbone.open(config.backbone)
    return Crew(build_team(config.team), Cast(backbone), WordRetriever(passages()), config.budget, config.sampling, 1)


@pytest.mark.slow
async def test_learning_raises_the_reward_over_a_control_that_does_not_learn(
    start: Config, questions: list[Question], tmp_path: Path
) -> None:
    stream = QuestionStream([questions], start.seed)
    learner = Learner(load_policy(start.backbone, start.learn.policy, start.seed), start.learn)
    run = Run(start, make_crew_of(start), learner, stream, [], tmp_path)
    await run.train()
    rows = list(read_journal(tmp_path, "iteration"))
    learned = [row["step_reward"] for row in rows[-3:]]
    control = [await without_learning(start, stream, row["iteration"] - 1) for row in rows[-3:]]
    assert fmean(learned) > fmean(control) + 0.1
    assert fmean(row["malformed"] for row in rows[-3:]) < 0.75 * rows[0]["malformed"]


async def without_learning(config: Config, stream: QuestionStream, iteration: int) -> float:
    """What a learning rate of 0 gives in an iteration: the same questions and seeds, the weights of the start."""
    crew = replace(make_crew_of(config), sampling=SamplingConfig(temperature=config.learn.temperature))
    jobs = make_jobs(stream.draw(iteration, config.learn.questions_per_iteration), config, iteration)
    return rollout_figures(await rollout(jobs, crew), config.reward)["step_reward"]

"""All of learning on a CPU: a model made from nothing, a warm start from gold data, PPO by the team's reward.

The start has learned what every role says but not which plan suits a question: it was shown each question with the gold
plan and with others. So the team earns about half of what it could, in the right format, and the rest is to be learned
from what its answers earn: to split the questions of two hops and no others, and to answer them.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from learn_runs import WordRetriever, merge, world_passages
from transformers import AutoTokenizer

from jade.backbone.chat import ChatFormat
from jade.backbone.local.backbone import LocalBackbone
from jade.config import Config
from jade.corpus.world import World, make_world
from jade.learn.export import export_policy
from jade.learn.learner import Learner
from jade.learn.monitor.journal import read_journal
from jade.learn.policy import load_policy
from jade.learn.questions import QuestionStream
from jade.learn.tiny import TinySize, make_tiny_model
from jade.learn.train import Run
from jade.learn.warmstart.collect import Course, collect
from jade.learn.warmstart.examples import tokenise
from jade.learn.warmstart.fit import Fit
from jade.learn.warmstart.gold import ONE_ROUND, lesson_of
from jade.learn.warmstart.leaks import drop_leaks
from jade.team.crew import Cast, Crew
from jade.team.team import build_team
from jade.types import Question, Role

PROMPTS = {
    "planner": "Plan.",
    "serial": "Split in order.",
    "rewriter": "Query.",
    "answerer": "Answer.",
    "summariser": "Conclude.",
}
"""A model made from nothing reads no instructions: a word tells the roles apart."""
OF_EACH_KIND = 5
"""Questions of one round, and as many of two hops."""
SETTINGS: dict[str, Any] = {
    "team": {"workflows": ["R,AG", "QR,R,AG", "QDS"], "child_workflows": ["R,AG"]},
    "budget": {"depth": 1, "children": 2},
    "backbone": {"device": "cpu", "inline": True, "threads": 1, "max_prompt_tokens": 400},
    "retrieval": {"k": 1},
    # So small that the team's reward, and not the formats, is what is learned from.
    "reward": {"format_penalty": -0.2},
    "warmstart": {
        "epochs": 200,
        "learning_rate": 4e-3,
        "examples_per_step": 16,
        "passes": 6,
        "other_plans": 0.5,
        "checkpoint_every": 10000,
    },
    "learn": {
        "questions_per_iteration": 2 * OF_EACH_KIND,
        "rollouts": 12,
        "checkpoint_every": 100,
        "dev_every": 100,
        "traces_every": 100,
        "ppo": {"learning_rate": 3e-4, "critic_learning_rate": 1e-2, "warmup": 3, "epochs": 2},
    },
}
BY_GROUP = {"credit": {"rule": "group"}, "policy": {"critic": "none"}}
MARGIN = 0.1
WITHOUT_LEARNING = {"learning_rate": 0.0, "epochs": 1, "minibatches": 1}

Rows = list[dict[str, Any]]


@lru_cache
def world() -> World:
    return make_world(60, 200, 1)


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    train = world().splits["train"]
    one_round = [q for q in train if q.metadata["workflow"] == ONE_ROUND]
    serial = [q for q in train if q.metadata["workflow"] == Role.SERIAL and len(q.metadata["decomposition"]) == 2]
    return one_round[:OF_EACH_KIND] + serial[:OF_EACH_KIND]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, questions: list[Question]) -> Config:
    """A model that was made, taught and exported; the config with which it goes on."""
    folder = tmp_path_factory.mktemp("start")
    (folder / "prompts").mkdir()
    for name, text in PROMPTS.items():
        (folder / "prompts" / f"{name}.md").write_text(text)
    texts = [passage.text for passage in world_passages(world())] + [f"{q.text} {q.answers[0]}" for q in questions]
    size = TinySize(vocabulary=700, width=64, layers=2, positions=1024)
    tiny = make_tiny_model(folder / "tiny", texts, size)
    config = with_model(Config.model_validate(merge(SETTINGS, {"team": {"prompts": str(folder / "prompts")}})), tiny)
    return with_model(config, warm_up(config, questions, folder))


@pytest.fixture(scope="module")
def control(start: Config, questions: list[Question], tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """What a learning rate of 0 gives: whatever the rule of credit, the weights of the start."""
    still = BY_GROUP | {"iterations": 5, "ppo": WITHOUT_LEARNING}
    rows = asyncio.run(learn(start, still, questions, tmp_path_factory.mktemp("control")))
    assert fmean(row["malformed"] for row in rows) < 0.25
    return rows


def with_model(config: Config, model: Path) -> Config:
    return config.model_copy(update={"backbone": config.backbone.model_copy(update={"model": str(model)})})


def warm_up(config: Config, questions: list[Question], folder: Path) -> Path:
    lessons, leaks = drop_leaks([lesson_of(question) for question in questions], [])
    course = Course(build_team(config.team), lessons, [], leaks)
    examples = asyncio.run(collect(config, course, make_retriever()))
    chat = ChatFormat(AutoTokenizer.from_pretrained(config.backbone.model))
    policy = load_policy(config.backbone, config.learn.policy, config.seed)
    Fit(config, policy, tokenise(examples, chat, config.backbone.max_prompt_tokens), folder / "fit").train()
    losses = [row["loss"] for row in read_journal(folder / "fit", "fit")]
    assert losses[-1] < losses[0] / 50
    return export_policy(policy, config, folder / "model")


def make_retriever() -> WordRetriever:
    return WordRetriever(world_passages(world()))


async def learn(start: Config, settings: dict[str, Any], questions: list[Question], folder: Path) -> Rows:
    """A training run from the start with these settings of `learn`; the lines of its journal."""
    config = Config.model_validate(merge(start.model_dump(), {"learn": settings}))
    backbone = LocalBackbone.open(config.backbone)
    crew = Crew(build_team(config.team), Cast(backbone), make_retriever(), config.budget, config.sampling, 1)
    learner = Learner(load_policy(config.backbone, config.learn.policy, config.seed), config.learn)
    await Run(config, crew, learner, QuestionStream([questions], config.seed), [], folder).train()
    return list(read_journal(folder, "iteration"))


def mean(rows: Rows, name: str) -> float:
    return fmean(row.get(name, 0.0) for row in rows)


def assert_rises(rows: Rows, control: Rows) -> None:
    """The mean reward of the last iterations is above that of the first and above the control's, by three times what
    chance parts them by: where nothing is learned, the mean of an iteration's 120 rollouts deviates by about 0.04."""
    earned = mean(rows[-3:], "reward")
    assert earned > mean(rows[:2], "reward") + MARGIN
    assert earned > mean(control, "reward") + MARGIN


@pytest.mark.slow
async def test_learning_raises_the_teams_reward_over_a_control_that_does_not_learn(
    start: Config, questions: list[Question], control: Rows, tmp_path: Path
) -> None:
    rows = await learn(start, BY_GROUP | {"iterations": 12}, questions, tmp_path)
    assert_rises(rows, control)
    # Half of the questions have two hops, and what was split at random is split where it pays.
    assert mean(rows[-3:], "plan/QDS") > mean(control, "plan/QDS") + 0.05


@pytest.mark.slow
async def test_so_does_learning_with_the_default_credit_and_its_critic(
    start: Config, questions: list[Question], control: Rows, tmp_path: Path
) -> None:
    assert (start.learn.credit.rule, start.learn.policy.critic) == ("trajectory", "head")
    rows = await learn(start, {"iterations": 12}, questions, tmp_path)
    assert_rises(rows, control)
    # Its errors shrink though there is more and more to expect.
    assert mean(rows[-3:], "value") < 0.9 * mean(rows[:1], "value")

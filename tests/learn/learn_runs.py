"""Builders of whole training runs: a world, a retriever over its pages, a crew, a learner."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from jade.backbone.base import Backbone
from jade.backbone.local.backbone import LocalBackbone
from jade.config import Config
from jade.corpus.world import World, make_world
from jade.learn.learner import Learner
from jade.learn.monitor.show import Silent, Spectator
from jade.learn.policy import load_policy
from jade.learn.questions import QuestionStream
from jade.learn.tiny import TinySize, make_tiny_model
from jade.learn.train import Run
from jade.reward.metrics import normalise
from jade.team.crew import Cast, Crew
from jade.team.roles import RoleSpec
from jade.team.team import Team, build_team
from jade.types import Passage, Question

TEXT = "Who wrote the book? <answer>Ada Lane</answer> <workflow>QR,R,DS,AG</workflow> <id>Document0</id> <query>"


def make_shared_model(folder: Path) -> Path:
    """A tiny model that knows no word but those of the formats."""
    size = TinySize(vocabulary=320, width=32, layers=2, heads=4, key_value_heads=2, positions=512)
    return make_tiny_model(folder, [TEXT] * 20, size)


def halve_model(model: Path, folder: Path) -> Path:
    """The same model in a folder of its own, as most are published: in bfloat16."""
    shutil.copytree(model, folder)
    AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).save_pretrained(folder)
    return folder


class WordRetriever:
    """Passages by the number of words they share with the query."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._passages = [(passage, set(normalise(f"{passage.title} {passage.text}").split())) for passage in passages]

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [self._best(set(normalise(query).split()), k) for query in queries]

    def _best(self, words: set[str], k: int) -> list[Passage]:
        ranked = sorted(self._passages, key=lambda pair: (-len(words & pair[1]), pair[0].id))
        return [passage for passage, _ in ranked[:k]]

    async def close(self) -> None:
        return None


@lru_cache
def small_world() -> World:
    return make_world(60, 60, 1)


def world_passages(world: World) -> list[Passage]:
    return [Passage(str(number), page.title, page.text) for number, page in enumerate(world.pages)]


def make_config(tiny_model: Path, settings: Mapping[str, Any] | None = None) -> Config:
    """Two questions an iteration, three iterations, on a CPU, every batch the same in every run."""
    base: dict[str, Any] = {
        "backbone": {"model": str(tiny_model), "device": "cpu", "inline": True, "max_prompt_tokens": 400},
        "retrieval": {"k": 1},
        "budget": {"rounds": 2, "calls": 4},
        "learn": {
            "iterations": 3,
            "questions_per_iteration": 2,
            "checkpoint_every": 1,
            "dev_every": 100,
            "traces_every": 100,
            "ppo": {"learning_rate": 1e-3, "minibatches": 2},
            "guard": {"max_kl": 50.0, "max_entropy": 20.0},
        },
    }
    return Config.model_validate(merge(base, settings or {}))


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        known = merged.get(key)
        merged[key] = merge(known, value) if isinstance(known, dict) and isinstance(value, Mapping) else value
    return merged


def terse(team: Team) -> Team:
    """A team that is cut off after a few tokens: a model with random weights has nothing to say anyway."""
    members = {c: replace(m, max_tokens=6) if isinstance(m, RoleSpec) else m for c, m in team.members.items()}
    return replace(team, members=members)


def make_crew(config: Config, backbone: Backbone | None = None) -> Crew:
    return Crew(
        terse(build_team(config.team)),
        Cast(backbone or LocalBackbone.open(config.backbone)),
        WordRetriever(world_passages(small_world())),
        config.budget,
        config.sampling,
        config.retrieval.k,
    )


def make_run(
    config: Config,
    folder: Path,
    *,
    backbone: Backbone | None = None,
    learner: Learner | None = None,
    dev: Sequence[Question] = (),
    spectator: Spectator | None = None,
) -> Run:
    if learner is None:
        learner = Learner(load_policy(config.backbone, config.learn.policy, config.seed), config.learn)
    stream = QuestionStream([small_world().splits["train"]], config.seed)
    return Run(config, make_crew(config, backbone), learner, stream, dev, folder, spectator or Silent())

"""One process of several that share an update; started by the tests, which compare what comes of it."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from learn_builders import make_experience, make_transition

from jade.config import BackboneConfig, LearnConfig
from jade.learn.checkpoint import Checkpoints, Progress
from jade.learn.learner import Learner
from jade.learn.policy import load_policy
from jade.learn.transitions import Experience

Figures = dict[str, float]
SETTINGS: dict[str, dict[str, Any]] = {
    "all weights, a value head": {},
    "all weights, a critic of its own, a reference": {"policy": {"critic": "separate"}, "ppo": {"kl_weight": 0.1}},
    "adapters": {"policy": {"adapt": "lora", "lora_rank": 2}},
    "no critic": {"policy": {"critic": "none"}, "credit": {"rule": "group"}},
}


def make_mixed(num: int) -> Experience:
    """Calls of two roles and of different lengths; fewer in the last mini-batch than there may be processes."""
    roles = itertools.cycle([("P", 50), ("AG", 100)])
    return make_experience(
        [
            make_transition(f"t{n}", role=role, num_tokens=2 + n % 5, outcome=float(n % 3 == 0), first_id=first)
            for n, (role, first) in zip(range(num), roles, strict=False)
        ]
    )


def update(model: Path, settings: dict[str, Any], folder: Path) -> Figures:
    """An update, a checkpoint, and another update by a learner that begins with the checkpoint."""
    learn = {
        "policy": {"tokens_per_batch": 64, **settings.get("policy", {})},
        "ppo": {"learning_rate": 1e-3, "minibatches": 2, **settings.get("ppo", {})},
        "credit": {"rule": "shared", **settings.get("credit", {})},
    }
    cfg = LearnConfig.model_validate(learn)
    backbone = BackboneConfig(model=str(model), device="cpu")
    first, second = (Learner(load_policy(backbone, cfg.policy), cfg) for _ in range(2))
    experience = as_sampled(first, make_mixed(7))
    first.update(experience, iteration=0, seed=0)
    checkpoints = Checkpoints(folder)
    place = checkpoints.save(first.policy, first.optimiser, Progress(iteration=1))
    checkpoints.load(place, second.policy, second.optimiser)
    return second.update(experience, iteration=1, seed=1)


def as_sampled(learner: Learner, experience: Experience) -> Experience:
    """The same calls with the log-probs that this policy gives them. From made-up ones some mini-batches would teach
    nothing but rounding errors, which the optimiser would blow up into steps."""
    pairs = zip(experience.transitions, learner.look_back(experience).logps, strict=True)
    return make_experience([dataclasses.replace(call, logprobs=tuple(logp.tolist())) for call, logp in pairs])


def take_part(rank: int, num_ranks: int, model: Path, folder: Path) -> dict[str, Figures]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=num_ranks)
    try:
        return {name: update(model, settings, folder / name) for name, settings in SETTINGS.items()}
    finally:
        dist.destroy_process_group()

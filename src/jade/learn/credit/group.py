"""A rule without a critic: several rollouts of one question are each other's baseline.

A trace's advantage is its team reward minus the mean over its group (over the group's deviation, if asked); every
token of every step of the trace shares it. A format penalty is added to the offending step alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jade.config import CreditConfig
from jade.learn.credit.base import Credit, Floats, spread
from jade.learn.transitions import Experience

SMALLEST_DEVIATION = 1e-6
"""A group whose rollouts all earned the same says nothing, and must not be blown up into something."""


def group(experience: Experience, values: Sequence[Floats], cfg: CreditConfig) -> Credit:
    rewards = {name: list(of.values()) for name, of in team_rewards(experience).items()}
    baselines = {name: (mean_of(each), float(np.std(each))) for name, each in rewards.items()}
    advantages = []
    for transition in experience.transitions:
        mean, deviation = baselines[transition.group]
        centred = transition.reward.team - mean
        if cfg.group_std:
            centred /= max(deviation, SMALLEST_DEVIATION)
        advantages.append(centred + transition.reward.format)
    returns = [transition.reward.total for transition in experience.transitions]
    return Credit(spread(advantages, values), spread(returns, values))


def mean_of(rewards: Sequence[float]) -> float:
    """Of equal rewards that reward exactly, where a sum would have been rounded."""
    return rewards[0] if len(set(rewards)) == 1 else float(np.mean(rewards))


def team_rewards(experience: Experience) -> dict[str, dict[str, float]]:
    """Reward by trace, by group: a trace counts once in the baseline, however many steps it took."""
    earned: dict[str, dict[str, float]] = {}
    for transition in experience.transitions:
        earned.setdefault(transition.group, {})[transition.trace] = transition.reward.team
    return earned

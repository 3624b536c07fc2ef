"""What each step of a trace is told to have earned, in a trainer whose GAE stays inside one call.

Such a trainer (verl) puts one reward on the last token of each call. Two of our credit rules can be said in that form:
`shared` as it stands, and `trajectory` where nothing is discounted (gamma = lambda = 1), because then a token's
advantage is all that is earned from its step on, less its value. Others are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jade.config import LearnConfig
from jade.errors import ConfigError
from jade.types import Transition


def shared_rewards(transitions: Sequence[Transition]) -> list[float]:
    """The team's reward and the step's own penalty."""
    return [transition.reward.total for transition in transitions]


def rewards_to_go(transitions: Sequence[Transition]) -> list[float]:
    """The team's reward and the penalties of this step and of all after it; of one trace, in order."""
    rewards: list[float] = []
    penalties = 0.0
    for transition in reversed(transitions):
        penalties += transition.reward.format
        rewards.append(transition.reward.team + penalties)
    return rewards[::-1]


RULES: Mapping[str, Callable[[Sequence[Transition]], list[float]]] = {
    "shared": shared_rewards,
    "trajectory": rewards_to_go,
}


def check_credit(learn: LearnConfig) -> None:
    """Raises when the credit that a config asks for cannot be said as one reward a call."""
    credit = learn.credit
    if credit.rule not in RULES:
        raise ConfigError(f"learn.credit.rule: {credit.rule!r} has no form in verl; choose {' or '.join(RULES)}")
    if credit.rule == "trajectory" and (credit.gamma, credit.lam) != (1.0, 1.0):
        raise ConfigError(
            f"learn.credit.gamma, learn.credit.lam: {credit.gamma}, {credit.lam}; verl's estimate ends with each call, "
            "and trajectory credit survives that only undiscounted (1, 1); set both to 1 or choose the rule shared"
        )
    if credit.normalise != "batch":
        raise ConfigError(f"learn.credit.normalise: {credit.normalise!r}; verl normalises over the batch, always")

"""What an asker may set beside the question: the seed of the draws, and what to spend on the answer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from jade.config import RewardConfig
from jade.config.reward import EFFORTS
from jade.engine.effort import effort_of
from jade.serve.problems import Shape, told_as
from jade.types import Effort

Seed = Annotated[int, Field(ge=0, lt=2**63)]
Price = Annotated[float, Field(ge=0, le=10)]
Level = Literal["low", "medium", "high"]


class Prices(Shape):
    alpha: Price = 0.0
    """Price of a turn."""
    beta: Price = 0.0
    """Price of a search."""


EffortWish = Annotated[
    Level | Annotated[float, Field(ge=0, le=1)] | Prices,
    told_as('expected low, medium, high, a number from 0 to 1, or prices {"alpha", "beta"} from 0 to 10'),
]
"""A name, a place on the dial from 0 (spare) to 1 (spend all), or the prices themselves."""


def prices_of(wish: EffortWish | None, reward: RewardConfig) -> Effort | None:
    """The prices that the planner is told; where nothing is wished, those of the config."""
    if isinstance(wish, Prices):
        return Effort(wish.alpha, wish.beta)
    place = EFFORTS[wish] if isinstance(wish, str) else wish
    return effort_of(reward if place is None else reward.model_copy(update={"effort": place}))

"""The dial: what a question may cost, on one scale from 0 (spare) to 1 (spend all), as prices of turns and searches.

Training draws the prices of every question between nothing and the end of the dial; an effort at inference is a place
on the same scale. Prices have two decimals, as the planner reads them, so what it is told is what is charged.
"""

from __future__ import annotations

from random import Random

from jade.config import RewardConfig
from jade.types import Effort

USUAL_DIAL = 0.2
"""The end of the dial where the config names none."""
USUAL_EFFORT = 0.5
"""Of a team that has learned to heed prices and is not told how much to spend."""
NUM_PLACES = 21
"""Places on the dial that prices are drawn from, evenly apart. Both ends are among them, and are drawn as often as any
other: they are what `low` and `high` ask for."""


def effort_of(cfg: RewardConfig) -> Effort | None:
    """The prices that a config asks a question to be worked at; None where it neither has a dial nor an effort."""
    if cfg.effort is None and (cfg.dial == 0 or cfg.untold):
        return None
    return prices_at(USUAL_EFFORT if cfg.effort is None else cfg.effort, cfg.dial or USUAL_DIAL)


def prices_at(effort: float, dial: float) -> Effort:
    """Full effort pays nothing; none pays the most that training ever charged, for turns and for searches."""
    price = round((1 - effort) * dial, 2)
    return Effort(price, price)


def across(effort: Effort, dial: float) -> Effort:
    """The prices on the other side of the dial's middle."""
    # Never below 0: a price is rounded, and may be rounded up beyond the dial's end.
    return Effort(max(0.0, round(dial - effort.alpha, 2)), max(0.0, round(dial - effort.beta, 2)))


def draw_prices(dial: float, seed: int) -> Effort | None:
    """Prices for one question of a training run: turns and searches apart, so that each is heeded for itself."""
    if dial == 0:
        return None
    draw = Random(seed)
    turn, search = (draw.randrange(NUM_PLACES) / (NUM_PLACES - 1) for _ in range(2))
    return Effort(round(turn * dial, 2), round(search * dial, 2))

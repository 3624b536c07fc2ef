"""What every credit rule takes and gives, and the estimator that two of them share.

A rule turns rewards of steps into an advantage and a return for every action token:
`rule(experience, values, cfg) -> Credit`, where `values[i][t]` is the critic's value before token t of transition i
(zeros when there is no critic). Rules are pure: plain arrays in, plain arrays out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from jade.config import CreditConfig
from jade.learn.transitions import Experience

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Credit:
    """One array for each transition, one number for each of its action tokens."""

    advantages: tuple[Floats, ...]
    returns: tuple[Floats, ...]
    rows: tuple[int, ...] = ()
    """The transitions to learn from; a rule may leave this alone, it is filled afterwards."""
    given: tuple[Floats, ...] = ()
    """The advantages as the rule gave them, before they were normalised; filled afterwards too."""


Rule: TypeAlias = Callable[[Experience, Sequence[Floats], CreditConfig], Credit]


def gae(rewards: Floats, values: Floats, gamma: float, lam: float) -> Floats:
    """Generalised advantage estimates of one sequence of decisions that ends: A_t = d_t + gamma lam A_{t+1}."""
    next_values = np.append(values[1:], 0.0)
    # Plain numbers: one after the other they are added several times as fast as an array's.
    errors: list[float] = (rewards + gamma * next_values - values).tolist()
    advantages, carried = [], 0.0
    for error in reversed(errors):
        carried = error + gamma * lam * carried
        advantages.append(carried)
    return np.array(advantages[::-1], dtype=np.float64)


def on_last(reward: float, length: int) -> Floats:
    """A reward that arrives with the last of `length` tokens."""
    rewards = np.zeros(length)
    rewards[-1] = reward
    return rewards


def apart(flat: Floats, lengths: Iterable[int]) -> tuple[Floats, ...]:
    """Consecutive parts of these lengths, as views: thousands of small arrays take longer to make than to fill."""
    return tuple(flat[start:end] for start, end in pairwise(accumulate(lengths, initial=0)))


def spread(numbers: Sequence[float], like: Sequence[Floats]) -> tuple[Floats, ...]:
    """A number for each transition, at all of its tokens."""
    lengths = [len(row) for row in like]
    return apart(np.repeat(np.array(numbers, dtype=np.float64), lengths), lengths)


def each_alone(rewards: Sequence[float], values: Sequence[Floats], cfg: CreditConfig) -> Credit:
    """Every call is an episode of its own, with its reward on the last token, and GAE runs inside the call."""
    alone = zip(rewards, values, strict=True)
    return credit_of((gae(on_last(reward, len(value)), value, cfg.gamma, cfg.lam) for reward, value in alone), values)


def credit_of(advantages: Iterable[Floats], values: Sequence[Floats]) -> Credit:
    """Returns are what the critic should have said: advantage plus value."""
    kept = tuple(advantages)
    return Credit(kept, tuple(advantage + value for advantage, value in zip(kept, values, strict=True)))

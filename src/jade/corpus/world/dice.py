"""Draws that are the same for a seed in every process and every Python.

Only `random.Random(str).random()` is used: it is the one draw whose sequence Python promises never to change.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """A stream of draws of its own for each purpose, so that asking for more of one thing changes no other."""

    def __init__(self, *purpose: str | int) -> None:
        self.random = random.Random("/".join(map(str, purpose))).random

    def below(self, limit: int) -> int:
        return int(self.random() * limit)

    def between(self, low: int, high: int) -> int:
        """Both ends included."""
        return low + self.below(high - low + 1)

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        mixed = list(items)
        for last in range(len(mixed) - 1, 0, -1):
            other = self.below(last + 1)
            mixed[last], mixed[other] = mixed[other], mixed[last]
        return mixed

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """`count` different positions, in the order drawn; `count` is small beside `items` or equal to it."""
        # Drawing until enough of them differ takes ever longer the fewer are left.
        if count * 3 >= len(items):
            return self.shuffled(items)[:count]
        positions: dict[int, None] = {}
        while len(positions) < count:
            positions[self.below(len(items))] = None
        return [items[position] for position in positions]

"""A limit in minutes that is kept at the boundary of a unit of work, not in its middle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jade.learn.ranks import agree


class Deadline:
    """Says whether another unit of work, as long as the longest so far, still fits."""

    def __init__(self, minutes: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends = None if minutes is None else clock() + 60 * minutes
        self._longest = 0.0

    def has_time(self) -> bool:
        # Clocks of several processes differ: what the first one finds holds for all.
        return self._ends is None or agree(self._clock() + self._longest <= self._ends)

    @contextmanager
    def timing(self) -> Iterator[None]:
        started = self._clock()
        yield
        self._longest = max(self._longest, self._clock() - started)

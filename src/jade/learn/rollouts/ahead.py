"""Two phases at once: the next iteration's rollouts are made while this one's are learned from.

Rollouts are made by a crew in another process (`beside.py`), the update in a thread of this one, so that the
event loop stays free to hear from the other. Rollouts begin when the weights before the update have been published, and
the next weights are published when those rollouts have ended: a trace comes from one policy. So that those who sample
need not wait, the next begin as soon as that is done, before the last ones are looked at.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import torch

from jade.types import Trace

Result = TypeVar("Result")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The traces of an iteration, and how they came about."""

    traces: list[Trace]
    seconds: float
    """From the first question to the last answer, whatever else went on meanwhile."""
    lag: int = 0
    """Updates that were made since the weights which sampled them."""


class Ahead:
    """Holds the rollouts that were begun, of one iteration or of one that has ended and the next, and the thread that
    learns."""

    def __init__(self) -> None:
        self._begun: deque[asyncio.Task[Rollouts]] = deque()
        self._thread: ThreadPoolExecutor | None = None

    async def __aenter__(self) -> Ahead:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing goes on behind a run that has ended, however it did: an update that is under way is waited for, since
        a thread cannot be interrupted and its weights are about to be let go."""
        try:
            await self.drop()
        except Exception as also:
            if error is None:
                raise
            log.warning("rollouts that were begun ahead had failed as well: %s: %s", type(also).__name__, also)
        finally:
            if self._thread is not None:
                self._thread.shutdown(wait=True)
                self._thread = None

    @property
    def is_begun(self) -> bool:
        """Whether rollouts are under way, or there to be taken."""
        return bool(self._begun)

    def begin(self, rollouts: Coroutine[Any, Any, Rollouts]) -> None:
        """Start the next iteration's rollouts, with the weights that the sampler has now."""
        assert all(begun.done() for begun in self._begun), "one iteration is made ahead, not more"
        self._begun.append(asyncio.create_task(rollouts))

    async def learn(self, update: Callable[[], Result]) -> Result:
        """What the update gives, or raises, while the event loop stays free for the rollouts."""
        if self._thread is None:
            # One thread for the whole run: some of what torch keeps, it keeps for each thread.
            gpu = torch.cuda.current_device() if torch.cuda.is_initialized() else None
            self._thread = ThreadPoolExecutor(1, "jade-learn", _settle_in, (torch.get_num_threads(), gpu))
        return await asyncio.wrap_future(self._thread.submit(update))

    async def wait(self) -> None:
        """Until the rollouts that were begun have ended. What they raised is raised by those who take them."""
        if self._begun:
            await asyncio.wait(self._begun)

    async def take(self) -> Rollouts | None:
        """The rollouts that were begun first, if any were."""
        return await self._begun.popleft() if self._begun else None

    async def drop(self) -> None:
        """Give up what was begun, and wait until nothing of it goes on. What it had failed with is raised."""
        begun, self._begun = self._begun, deque()
        for one in begun:
            one.cancel()
        if begun:
            await asyncio.wait(begun)
        for one in begun:
            failure = None if one.cancelled() else one.exception()
            if failure is not None:
                raise failure


def _settle_in(num_threads: int, gpu: int | None) -> None:
    """A thread begins with all processors and the first GPU, whatever the one has that started it."""
    torch.set_num_threads(num_threads)
    if gpu is not None:
        torch.cuda.set_device(gpu)

"""What a question may spend, and what it has spent so far.

Parallel children get equal shares of what is left. One that needs more waits until every other has ended or waits too,
and then takes of what those that ended did not use, the first child first. So who gets the last of a budget follows
from what the children do, never from how fast they do it (but for seconds, which are the clock's).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from jade.config import BudgetConfig
from jade.types import Generation, Step, Usage

BUDGET_SPENT = "budget is spent"
"""How a step ends that was refused and did not fail: what it says before names the budget."""
SHARED = ("rounds", "retrievals", "calls", "tokens")
LENT = {"tokens": 1024}
"""How much of a budget is lent at a time; of those that are not named, one."""


def has_failed(step: Step) -> bool:
    """Whether a call or a search raised, so that its fallback ran; one that a budget refused did not fail."""
    return step.generation is None and step.error is not None and not step.error.endswith(BUDGET_SPENT)


@dataclass(slots=True)
class Account:
    """Of the question as a whole. The first refusal names the spent budget."""

    rounds: int = 0
    retrievals: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stopped: str = ""
    started: float = field(default_factory=time.monotonic)

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self.started

    def usage(self) -> Usage:
        return Usage(
            self.calls,
            self.rounds,
            self.retrievals,
            self.prompt_tokens,
            self.completion_tokens,
            self.elapsed_seconds,
        )


class Ledger:
    """What one branch of a question may spend. It refuses, never raises."""

    def __init__(
        self, limits: BudgetConfig, share: dict[str, int] | None = None, within: Pool | None = None, place: int = 0
    ) -> None:
        self.account: Account = within.parent.account if within else Account()
        self.left = dict(share) if share else {name: getattr(limits, name) for name in SHARED}
        self._limits = limits
        self._within = within
        self._place = place

    @property
    def seconds_left(self) -> float | None:
        """None where the clock is no budget."""
        return None if self._limits.seconds is None else self._limits.seconds - self.account.elapsed_seconds

    async def open_round(self) -> int | None:
        """The number of a new round, or None when no further one may begin."""
        if not (await self._has("rounds") and await self.may_call()):
            return None
        self.left["rounds"] -= 1
        self.account.rounds += 1
        return self.account.rounds

    async def may_call(self) -> bool:
        """Whether another model call fits, by number, by tokens and by time."""
        return await self._has("calls") and await self._has("tokens") and self.has_time()

    async def may_search(self) -> bool:
        return await self._has("retrievals")

    def has_time(self) -> bool:
        if self.seconds_left is None or self.seconds_left > 0:
            return True
        self.refuse("seconds")
        return False

    def count_call(self) -> None:
        self.left["calls"] -= 1
        self.account.calls += 1

    def count_search(self) -> None:
        self.left["retrievals"] -= 1
        self.account.retrievals += 1

    def charge(self, generation: Generation) -> None:
        self.left["tokens"] -= generation.prompt_tokens + generation.completion_tokens
        self.account.prompt_tokens += generation.prompt_tokens
        self.account.completion_tokens += generation.completion_tokens

    def refuse(self, name: str) -> None:
        self.account.stopped = self.account.stopped or name

    def share(self, num_branches: int) -> list[Ledger]:
        """Ledgers of parallel branches, which take all that is left; each gives back its rest by `end`."""
        pool = Pool(self, num_branches)
        shares = [
            {name: left // num_branches + (place < left % num_branches) for name, left in self.left.items()}
            for place in range(num_branches)
        ]
        self.left = dict.fromkeys(SHARED, 0)
        return [Ledger(self._limits, share, pool, place) for place, share in enumerate(shares)]

    def end(self) -> None:
        """A branch is finished: what it did not use, or used too much, is the others'."""
        assert self._within is not None, "only a branch ends"
        self._within.take_back(self.left)

    async def _has(self, name: str) -> bool:
        if self.left[name] > 0 or await self.borrow(name):
            return True
        self.refuse(name)
        return False

    async def borrow(self, name: str) -> bool:
        """More of a budget than this branch's share, if there is any."""
        # Again and again: tokens are charged once they are spent, so a branch may owe more than is lent at a time.
        while self._within is not None and self.left[name] <= 0:
            lent = await self._within.lend(name, self._place)
            if not lent:
                return False
            self.left[name] += lent
        return self.left[name] > 0


class Pool:
    """What parallel branches leave over, lent in an order that no clock decides."""

    def __init__(self, parent: Ledger, num_branches: int) -> None:
        self.parent = parent
        self._num_busy = num_branches
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def lend(self, name: str, place: int) -> int:
        """Wait for one's turn, then take a little of what is left; nothing when nothing is."""
        turn = self._waiting[place] = asyncio.get_running_loop().create_future()
        self._num_busy -= 1
        self._call_next()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():  # it no longer waits, and ends like any other
                self._waiting.pop(place, None)
                self._num_busy += 1
            raise
        if not (self.parent.left[name] > 0 or await self.parent.borrow(name)):
            return 0
        lent = min(LENT.get(name, 1), self.parent.left[name])
        self.parent.left[name] -= lent
        return lent

    def take_back(self, left: dict[str, int]) -> None:
        """From a branch that has ended."""
        for name, amount in left.items():
            self.parent.left[name] += amount
        self._num_busy -= 1
        self._call_next()

    def _call_next(self) -> None:
        # Branches are cancelled together and wake one by one: a cancelled one may still stand among those waiting.
        waiting = [place for place, turn in self._waiting.items() if not turn.cancelled()]
        if self._num_busy == 0 and waiting:
            self._num_busy += 1
            self._waiting.pop(min(waiting)).set_result(None)

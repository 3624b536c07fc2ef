"""What a question may spend, and what it has spent so far."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from jade.config import BudgetConfig
from jade.types import Generation, Usage


@dataclass(slots=True)
class Ledger:
    """The running account of one question. It refuses, never raises; the first refusal names the spent budget."""

    limits: BudgetConfig
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

    @property
    def seconds_left(self) -> float:
        return self.limits.seconds - self.elapsed_seconds

    def open_round(self) -> int | None:
        """The number of a new round, or None when no further one may begin."""
        if not (self._within("rounds", self.rounds < self.limits.rounds) and self.may_call()):
            return None
        self.rounds += 1
        return self.rounds

    def may_call(self) -> bool:
        """Whether another model call fits, by number, by tokens and by time."""
        return (
            self._within("calls", self.calls < self.limits.calls)
            and self._within("tokens", self.prompt_tokens + self.completion_tokens < self.limits.tokens)
            and self._within("seconds", self.seconds_left > 0)
        )

    def may_search(self) -> bool:
        return self._within("retrievals", self.retrievals < self.limits.retrievals)

    def refuse(self, name: str) -> None:
        self.stopped = self.stopped or name

    def charge(self, generation: Generation) -> None:
        self.prompt_tokens += generation.prompt_tokens
        self.completion_tokens += generation.completion_tokens

    def usage(self) -> Usage:
        return Usage(
            self.calls,
            self.rounds,
            self.retrievals,
            self.prompt_tokens,
            self.completion_tokens,
            self.elapsed_seconds,
        )

    def _within(self, name: str, holds: bool) -> bool:
        if not holds:
            self.refuse(name)
        return holds

"""What the parts of the local backbone hand to each other: a job, and what became of it."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from jade.backbone.constrain import ChoiceMatcher
from jade.types import Generation, Prompt, Sampling

WORD = 8
"""Bytes that a token id has in a row."""


def as_words(ids: Iterable[int]) -> bytes:
    return array("q", ids).tobytes()


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """Where an outcome is awaited."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]

    @classmethod
    def here(cls) -> Ticket:
        loop = asyncio.get_running_loop()
        return cls(loop, loop.create_future())

    def settle(self, value: Generation | Exception | None) -> None:
        """Only in the ticket's own loop. A future whose caller has gone is left alone."""
        if self.future.done():
            return
        if isinstance(value, Exception):
            self.future.set_exception(value)
        else:
            self.future.set_result(value)


Outcome: TypeAlias = tuple[Ticket, Generation | Exception | None]


@dataclass(slots=True, eq=False)
class Job:
    """One request on its way through the engine. Only `cancelled` is written by another thread."""

    prompt: Prompt
    sampling: Sampling
    adapter: str | None
    ticket: Ticket
    arrived: float = field(default_factory=time.perf_counter)
    cancelled: bool = False
    ids: tuple[int, ...] = ()
    row: bytes = b""
    """The ids once more, as 8-byte words: what is compared, looked up and sent to the device."""
    num_cut: int = 0
    refusal: Exception | None = None
    limit: int = 0
    matcher: ChoiceMatcher | None = None
    num_sampled: int = 0
    policy_version: int = 0

    def take_ids(self, ids: tuple[int, ...], num_cut: int) -> None:
        self.ids, self.row, self.num_cut = ids, as_words(ids), num_cut

    @property
    def num_positions(self) -> int:
        """Positions the job may need in its slot before it ends."""
        return len(self.ids) + self.limit

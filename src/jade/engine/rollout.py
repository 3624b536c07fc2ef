"""Many questions at once, under a bound, each ending as a trace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from jade.engine.solve import solve
from jade.errors import ConfigError
from jade.team.crew import Crew
from jade.types import Effort, Question, Trace

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Job:
    """One question to work, with the seed of its draws."""

    question: Question
    seed: int = 0
    effort: Effort | None = None


def ignore(position: int, trace: Trace) -> None:
    """The callback that does nothing."""


async def rollout(
    jobs: Sequence[Job], crew: Crew, *, concurrency: int = 64, on_trace: Callable[[int, Trace], None] = ignore
) -> list[Trace]:
    """A trace for every job, in the order of the jobs; `on_trace` hears each as soon as it is there."""
    if concurrency < 1:
        raise ConfigError(f"concurrency {concurrency}: at least one question must be in flight")
    traces: dict[int, Trace] = {}

    async def work(place: tuple[int, Job]) -> None:
        position, job = place
        traces[position] = await solve(job.question, crew, seed=job.seed, effort=job.effort)
        on_trace(position, traces[position])

    await work_through(list(enumerate(jobs)), work, concurrency)
    return [traces[position] for position in range(len(jobs))]


async def work_through(items: Sequence[Item], work: Callable[[Item], Awaitable[None]], concurrency: int) -> None:
    """Work all items, so many at once. What goes wrong first ends it and is raised as it is."""
    waiting = iter(items)

    async def take_turns() -> None:
        # The iterator is shared: whoever is free takes the next item.
        for item in waiting:
            await work(item)

    try:
        async with asyncio.TaskGroup() as workers:
            for _ in range(min(concurrency, len(items))):
                workers.create_task(take_turns())
    except BaseExceptionGroup as group:  # when one gives up all do, most of them for the same reason
        raise group.exceptions[0] from None

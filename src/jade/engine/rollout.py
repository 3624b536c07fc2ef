"""Many questions at once, under a bound, each ending as a trace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jade.engine.solve import solve
from jade.errors import ConfigError
from jade.team.crew import Crew
from jade.types import Effort, Question, Trace


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
    waiting: Iterator[tuple[int, Job]] = iter(enumerate(jobs))

    async def work_through() -> None:
        # The iterator is shared: whoever is free takes the next job.
        for position, job in waiting:
            trace = await solve(job.question, crew, seed=job.seed, effort=job.effort)
            traces[position] = trace
            on_trace(position, trace)

    async with asyncio.TaskGroup() as workers:
        for _ in range(min(concurrency, len(jobs))):
            workers.create_task(work_through())
    return [traces[position] for position in range(len(jobs))]

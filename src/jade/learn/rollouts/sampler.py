"""Who samples while the learner learns, and how they come to speak as it does: by its weights after every update.

A crew works in this process; where a run is several processes, each works its share of the questions with a crew of its
own. A troupe works elsewhere, as its author sees fit. Either way every process ends up with all the traces.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Protocol, runtime_checkable

from torch import Tensor

from jade.config import SamplingConfig
from jade.engine.rollout import Job, rollout
from jade.learn.policy import Policy
from jade.learn.ranks import agree, is_first, num_ranks, pool, rank
from jade.team.crew import Crew
from jade.types import Trace


@runtime_checkable
class Learns(Protocol):
    """A backbone whose weights can be overwritten while it lives."""

    async def update_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None: ...


@runtime_checkable
class Follows(Protocol):
    """A backbone that fetches what it needs from the policy itself (its adapter alone, say)."""

    async def follow(self, policy: Policy, version: int) -> None: ...


@dataclass(frozen=True)
class Troupe(ABC):
    """Crews in other places that work as one."""

    sampling: SamplingConfig

    @abstractmethod
    async def roll_out(self, jobs: Sequence[Job], *, concurrency: int) -> list[Trace]:
        """A trace for every job, in the order of the jobs."""

    def lay_out(self, policy: Policy) -> None:
        """What comes before `follow` and may be done while rollouts are still under way."""
        return None

    @abstractmethod
    async def follow(self, policy: Policy, version: int) -> None:
        """Speak as the policy does from now on. Called in every process of a run."""


async def work(jobs: Sequence[Job], crew: Crew | Troupe, *, concurrency: int) -> list[Trace]:
    """A trace for every job, in the order of the jobs and in every process."""
    if isinstance(crew, Troupe):
        return await crew.roll_out(jobs, concurrency=concurrency)
    mine = share_of(jobs) if not isinstance(crew.cast.shared, Follows) else jobs if is_first() else ()
    traces = await rollout(mine, crew, concurrency=concurrency)
    return dealt_back(pool(traces))


def share_of(jobs: Sequence[Job]) -> Sequence[Job]:
    """What this process works on: dealt out one by one."""
    return jobs[rank() :: num_ranks()]


def dealt_back(hands: Sequence[Sequence[Trace]]) -> list[Trace]:
    """The inverse of dealing out, over the hands of all."""
    return [trace for turn in zip_longest(*hands) for trace in turn if trace is not None]


def lay_out(policy: Policy, crew: Crew | Troupe) -> None:
    """Get the policy's weights ready for those who sample elsewhere, while they may still be at work."""
    if isinstance(crew, Troupe):
        crew.lay_out(policy)


async def publish(policy: Policy, crew: Crew | Troupe, version: int, *, is_laid_out: bool = False) -> None:
    """Give those who sample the policy's weights. Roles with a backbone of their own keep theirs."""
    if isinstance(crew, Troupe):
        if not is_laid_out:
            crew.lay_out(policy)
        await crew.follow(policy, version)
        return
    shared = crew.cast.shared
    if isinstance(shared, Follows):
        await _lead(shared, policy, version)
    elif isinstance(shared, Learns):
        await shared.update_weights(policy.sampler_weights(), version)


async def _lead(shared: Follows, policy: Policy, version: int) -> None:
    """One of several processes speaks to what all of them use; the others help it to put the weights together."""
    if is_first():
        await shared.follow(policy, version)
    else:
        for _ in policy.sampler_weights():  # going through them is the help: each is put together by all at once
            pass
    agree(None)

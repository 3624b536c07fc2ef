"""How the sampler comes to speak as the learner does: it copies the learner's weights after every update."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from torch import Tensor

from jade.learn.policy import Policy
from jade.team.crew import Crew


@runtime_checkable
class Learns(Protocol):
    """A backbone whose weights can be overwritten while it lives."""

    async def update_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None: ...


@runtime_checkable
class Follows(Protocol):
    """A backbone that fetches what it needs from the policy itself (its adapter alone, say)."""

    async def follow(self, policy: Policy, version: int) -> None: ...


async def publish(policy: Policy, crew: Crew, version: int) -> None:
    """Give the team's shared backbone the policy's weights. Roles with a backbone of their own keep theirs."""
    shared = crew.cast.shared
    if isinstance(shared, Follows):
        await shared.follow(policy, version)
    elif isinstance(shared, Learns):
        await shared.update_weights(policy.sampler_weights(), version)

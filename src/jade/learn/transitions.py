"""Flatten finished traces into transitions.

Every trainable step yields exactly one transition; tool steps yield none. The order of the trace is kept.
Token ids come from sampling and are never re-tokenised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jade.types import Reward, Trace, Transition


@dataclass(frozen=True, slots=True)
class Experience:
    """What one iteration learns from: the team's transitions, mixed over all roles, and the traces they come from."""

    transitions: tuple[Transition, ...]
    traces: Mapping[str, Trace]


def flatten(traces: Sequence[Trace], rewards: Sequence[Mapping[str, Reward]]) -> list[Transition]:
    """One transition for each trainable step (Algorithm 2, line 12)."""
    return [
        transition
        for trace, earned in zip(traces, rewards, strict=True)
        for transition in _transitions_of(trace, earned)
    ]


def of_roles(transitions: Sequence[Transition], roles: Sequence[str]) -> list[Transition]:
    """The transitions of the roles that train. The others are left out of the batch, not masked inside it."""
    return [transition for transition in transitions if transition.role in roles]


def group_of(trace: Trace) -> str:
    """Rollouts are each other's baseline where they were asked the same: the same question, at the same prices. With a
    dial a question that is drawn twice, from a file that is named twice say, has other prices each time."""
    return repr((*trace.question.key, trace.effort))


def _transitions_of(trace: Trace, earned: Mapping[str, Reward]) -> Iterator[Transition]:
    group = group_of(trace)
    for step in trace.steps:
        # A backbone without token ids (a frozen remote executor) and a call that failed leave nothing to train on.
        if step.generation is None or not step.generation.token_ids:
            continue
        yield Transition(
            trace=trace.id,
            step=step.id,
            role=step.role,
            prompt_ids=step.generation.prompt_ids,
            action_ids=step.generation.token_ids,
            logprobs=step.generation.logprobs,
            reward=earned[step.id],
            policy_version=step.generation.policy_version,
            group=group,
        )

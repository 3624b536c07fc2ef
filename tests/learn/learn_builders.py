"""Builders of traces and transitions for the tests of learning, and a removal that is cut off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jade.learn.transitions import Experience
from jade.types import Action, Generation, Malformed, Node, Observation, Question, Reward, Step, Trace, Transition


def make_step(
    number: int,
    role: str = "AG",
    *,
    ids: Sequence[int] = (7, 8),
    action: Action | Malformed | None = None,
    tool: bool = False,
    observation: Observation | None = None,
) -> Step:
    generation = Generation(
        "text", prompt_ids=(1, 2, 3), token_ids=tuple(ids), logprobs=(-0.5,) * len(ids), policy_version=4
    )
    return Step(
        id=f"s{number}",
        node="0",
        round=1,
        role=role,
        observation=observation or Observation("Who?"),
        generation=None if tool else generation,
        action=action,
        applied=None if isinstance(action, Malformed) else action,
    )


def make_trace(steps: Sequence[Step], *, id: str = "t", question: Question | None = None) -> Trace:
    asked = question or Question("q1", "Who?", ("Ada",))
    return Trace(id, asked, (Node("0", None, asked.text, asked.text),), tuple(steps), "Ada")


def make_transition(
    trace: str = "t",
    step: str = "s",
    role: str = "AG",
    *,
    num_tokens: int = 3,
    outcome: float = 0.0,
    cost: float = 0.0,
    penalty: float = 0.0,
    group: str = "q",
    first_id: int = 3,
) -> Transition:
    return Transition(
        trace=trace,
        step=step,
        role=role,
        prompt_ids=(1, 2),
        action_ids=tuple(range(first_id, first_id + num_tokens)),
        logprobs=(-1.0,) * num_tokens,
        reward=Reward(outcome, cost, penalty),
        group=group,
    )


def make_experience(transitions: Sequence[Transition], traces: Sequence[Trace] = ()) -> Experience:
    return Experience(tuple(transitions), {trace.id: trace for trace in traces})


class Killed(BaseException):
    """Ends a run where it stands, as a signal would."""


def lose_one_file(place: Path, ignore_errors: bool = False) -> None:
    """A removal that is cut off after its first file."""
    if place.exists():
        (place / "policy.safetensors").unlink()
        raise Killed

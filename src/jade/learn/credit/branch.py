"""A rule without a critic that compares like with like: rollouts of one question are a tree, and a call is judged
beside those that had come to the same point.

A call's baseline is the mean team reward of the other rollouts that gave the same prompt to the same role; where there
is none, of those that share the longest beginning with its own rollout, in the last resort all of them. So a
decomposition is compared with other decompositions of that question, not with the plan of not decomposing, and what
the planner gained is not counted to the answerer. The baseline depends on what came before the call and never on the
call itself, so the gradient stays unbiased; only its noise shrinks. A format penalty falls on the offending step alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from jade.config import CreditConfig
from jade.learn.credit.base import Credit, Floats, spread
from jade.learn.credit.group import mean_of, team_rewards
from jade.learn.transitions import Experience
from jade.types import Trace, Transition

Point: TypeAlias = int
"""Where a rollout stands: before a prompt, or behind a sequence of calls. By number: a tuple of all the tokens on the
way would be hashed anew whenever it is looked up."""
Points: TypeAlias = dict[tuple[object, ...], Point]
"""The numbers given so far."""
START: Point = 0


@dataclass(frozen=True)
class Crossings:
    """Which rollouts of each question came by a point, and how each call got to where it was made."""

    rollouts: Mapping[tuple[str, Point], Mapping[str, None]]
    """In the order of the traces: sums over a set would differ in the last digit from one process to the next."""
    ways: Mapping[tuple[str, str], tuple[Point, ...]]
    """By trace and step: the points that it stood at, the closest one first."""


def branch(experience: Experience, values: Sequence[Floats], cfg: CreditConfig) -> Credit:
    earned = team_rewards(experience)
    crossings = _crossings(experience)
    advantages, returns = [], []
    for transition in experience.transitions:
        mine = earned[transition.group][transition.trace]
        others = [earned[transition.group][other] for other in _company(transition, crossings)]
        gained = mine - mean_of(others) if others else 0.0
        advantages.append(gained + transition.reward.format)
        returns.append(transition.reward.total)
    return Credit(spread(advantages, values), spread(returns, values))


def _company(transition: Transition, crossings: Crossings) -> list[str]:
    """The other rollouts to compare with: those at the closest point where there are any."""
    for point in crossings.ways[transition.trace, transition.step]:
        others = [name for name in crossings.rollouts[transition.group, point] if name != transition.trace]
        if others:
            return others
    return []


def _crossings(experience: Experience) -> Crossings:
    rollouts: dict[tuple[str, Point], dict[str, None]] = defaultdict(dict)
    ways: dict[tuple[str, str], tuple[Point, ...]] = {}
    points_known: Points = {(): START}
    groups = {transition.trace: transition.group for transition in experience.transitions}
    for name, group in groups.items():
        for step, points in _walk(experience.traces[name], points_known):
            ways[name, step] = points
            for point in points:
                rollouts[group, point][name] = None
    return Crossings(rollouts, ways)


def _walk(trace: Trace, known: Points) -> Iterator[tuple[str, tuple[Point, ...]]]:
    """Each call's points: its prompt, then the calls before it, and ever fewer of them."""
    behind = [START]  # the point behind each call so far, numbered by the point before it and what was said
    for step in trace.steps:
        if step.generation is None:
            continue
        before = known.setdefault(("before", step.role, step.generation.prompt_ids), len(known))
        yield step.id, (before, *reversed(behind))
        behind.append(known.setdefault(("behind", behind[-1], step.role, step.generation.token_ids), len(known)))

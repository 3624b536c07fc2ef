"""A team whose members do not all want the same: a credit rule of one's own.

The planner is paid for the answer and pays for turns and searches; the selector is paid for keeping a passage that
holds a gold answer and for dropping the others; everyone else is paid for the answer alone. Each call is an episode
of its own, as in the shipped rule `shared`. Use it with

    [learn.credit]
    rule = "examples/mixed_motives.py:mixed_motives"
    normalise = "role"
"""

from __future__ import annotations

from collections.abc import Sequence

from jade.config import CreditConfig
from jade.learn.credit.base import Credit, Floats, each_alone
from jade.learn.transitions import Experience
from jade.reward.metrics import contains
from jade.types import Role, Selection, Step, Trace, Transition


def mixed_motives(experience: Experience, values: Sequence[Floats], cfg: CreditConfig) -> Credit:
    """Every role's own reward on the last token of its call."""
    calls = experience.transitions
    wanted = [motive(call, experience.traces[call.trace]) + call.reward.format for call in calls]
    return each_alone(wanted, values, cfg)


def motive(transition: Transition, trace: Trace) -> float:
    """What a role wants, before its format penalty."""
    if transition.role == Role.PLANNER:
        return transition.reward.outcome - transition.reward.cost
    if transition.role == Role.SELECTOR:
        (step,) = (step for step in trace.steps if step.id == transition.step)
        return selection_quality(step, trace.question.answers)
    return transition.reward.outcome


def selection_quality(step: Step, golds: Sequence[str]) -> float:
    """Share of the shown passages that were rightly kept or rightly dropped."""
    shown = step.observation.passages
    kept = step.applied.indices if isinstance(step.applied, Selection) else ()
    right = [(index in kept) == any(contains(p.text, gold) for gold in golds) for index, p in enumerate(shown)]
    return sum(right) / len(right) if right else 0.0

"""A role of one's own, and a reward of its own: a checker that says whether the passages answer the question.

It works after a search, what it says is a note that the answerer reads, and it is paid for being right about the
passages; everyone else is paid for the answer, as in the shipped rule `shared`. Use it with

    [team]
    extensions = ["examples/fact_checker.py"]
    workflows = ["R,FC,AG", "R,AG"]

    [learn]
    train_roles = ["P", "FC", "AG"]

    [learn.credit]
    rule = "examples/fact_checker.py:paid_for_being_right"
    normalise = "role"
"""

from __future__ import annotations

from collections.abc import Sequence

from jade.config import CreditConfig
from jade.learn.credit.base import Credit, Floats, each_alone
from jade.learn.transitions import Experience
from jade.reward.metrics import contains
from jade.team.roles import RoleSpec
from jade.team.team import TeamBuilder
from jade.types import Malformed, Note, Observation, Step, Trace, Transition

CODE = "FC"
PROMPT = "Do the documents answer the question? Say yes or no, and nothing else."


def parse(text: str, seen: Observation) -> Note | Malformed:
    """What the model wrote, as an action; what cannot be read costs the format penalty, and the fallback runs."""
    word = text.strip().lower().rstrip(".")
    return Note(word) if word in ("yes", "no") else Malformed("neither yes nor no")


def fallback(text: str, seen: Observation) -> Note:
    return Note("unchecked")


def register(team: TeamBuilder) -> None:
    """Called once when the team is built."""
    team.add(
        RoleSpec(
            CODE,
            "fact checker",
            "work",
            "fact_checker.md",
            parse,
            fallback,
            sees=frozenset({"passages"}),
            after=frozenset({"R"}),
            max_tokens=8,
        ),
        prompt_text=PROMPT,
    )


def paid_for_being_right(experience: Experience, values: Sequence[Floats], cfg: CreditConfig) -> Credit:
    """Every call is an episode of its own, with its role's reward on the last token."""
    calls = experience.transitions
    wanted = [motive(call, experience.traces[call.trace]) + call.reward.format for call in calls]
    return each_alone(wanted, values, cfg)


def motive(transition: Transition, trace: Trace) -> float:
    """What a role wants, before its format penalty."""
    if transition.role == CODE:
        (step,) = (step for step in trace.steps if step.id == transition.step)
        return float(is_right(step, trace.question.answers))
    return transition.reward.outcome - transition.reward.cost


def is_right(step: Step, golds: Sequence[str]) -> bool:
    """Whether the checker said yes to passages that hold a gold answer, or no to others."""
    holds = any(contains(passage.text, gold) for passage in step.observation.passages for gold in golds)
    return step.applied == Note("yes" if holds else "no")

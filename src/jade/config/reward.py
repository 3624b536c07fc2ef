"""What an answer earns and what it costs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from jade.config.section import Section

EFFORTS = {"low": 0.0, "medium": 0.5, "high": 1.0}
"""Places on the dial that have a name."""


def _effort(value: Any) -> Any:
    """A name's number; a number on the dial; nothing."""
    try:
        number = EFFORTS[value] if value in EFFORTS else None if value is None else float(value)
    except (TypeError, ValueError):
        number = -1.0
    if number is not None and not 0 <= number <= 1:
        names = ", ".join(EFFORTS)
        raise PydanticCustomError("effort", f"choose {names}, or a number from 0 (spare) to 1 (spend all)")
    return number


class RewardConfig(Section):
    outcome: str = "f1"
    """What training takes an answer to be worth: f1 (exact match where the answer is yes or no), exact_match, accuracy
    (whether it holds a gold answer), or a function of one's own as `package.module:function` or `file.py:function`,
    from traces to a number for each. `jade eval` reports the same scores whatever stands here."""
    alpha: float = Field(0.0, ge=0.0)
    """Price of turns: alpha * min(rounds, 3) / 3."""
    beta: float = Field(0.0, ge=0.0)
    """Price of retrievals: beta * min(retrievals, 3) / 3."""
    ramp: int = Field(0, ge=0)
    """Iterations of a training run over which both prices rise from 0: what costs more than it earns at first may be
    worth it once the team has learned to do it."""
    format_penalty: float = Field(-1.0, le=0.0)
    """Added to the reward of a step whose output was malformed, and to no other."""
    dial: float = Field(0.0, ge=0.0)
    """Above 0: alpha and beta are drawn per question from [0, dial] and told to the planner, so that one policy
    serves every budget."""
    mirror: bool = False
    """With a dial: every second rollout of a question is made at the prices across the dial (dial - alpha and dial -
    beta), so that what tells the two halves apart is the price and nothing else."""
    untold: bool = False
    """With a dial: a question for which no effort is named is told no prices, instead of being worked at medium."""
    effort: Annotated[float | None, BeforeValidator(_effort)] = None
    """What to spend on an answer, on that dial: low (0), medium (0.5), high (1) or a number between. Not set: medium
    where there is a dial, else the planner is told no prices."""

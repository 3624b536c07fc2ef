"""What an answer earns and what it costs."""

from __future__ import annotations

from pydantic import Field

from jade.config.section import Section


class RewardConfig(Section):
    alpha: float = Field(0.0, ge=0.0)
    """Price of turns: alpha * min(rounds, 3) / 3."""
    beta: float = Field(0.0, ge=0.0)
    """Price of retrievals: beta * min(retrievals, 3) / 3."""
    format_penalty: float = Field(-1.0, le=0.0)
    """Added to the reward of a step whose output was malformed, and to no other."""
    dial: float = Field(0.0, ge=0.0)
    """Above 0: alpha and beta are drawn per question from [0, dial] and told to the planner, so that one policy
    serves every budget."""

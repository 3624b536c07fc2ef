"""The rule of the method's public code: every call is an episode of its own.

Each call gets the team's reward and its own format penalty on its last token, and GAE runs inside the call.
"""

from __future__ import annotations

from collections.abc import Sequence

from jade.config import CreditConfig
from jade.learn.credit.base import Credit, Floats, each_alone
from jade.learn.transitions import Experience


def shared(experience: Experience, values: Sequence[Floats], cfg: CreditConfig) -> Credit:
    return each_alone([transition.reward.total for transition in experience.transitions], values, cfg)

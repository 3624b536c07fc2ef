"""The paper's rule: one trajectory for each question.

The action tokens of all steps of a trace, in order, are one sequence. Each step's format penalty arrives with its own
last token, the team's reward with the last token of the last step, and GAE carries both back over everything before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jade.config import CreditConfig
from jade.learn.credit.base import Credit, Floats, apart, credit_of, gae, on_last
from jade.learn.transitions import Experience


def trajectory(experience: Experience, values: Sequence[Floats], cfg: CreditConfig) -> Credit:
    advantages: dict[int, Floats] = {}
    for rows in _rows_by_trace(experience):
        rewards = np.concatenate([_rewards(experience, row, is_last=row == rows[-1]) for row in rows])
        flat = gae(rewards, np.concatenate([values[row] for row in rows]), cfg.gamma, cfg.lam)
        advantages.update(zip(rows, apart(flat, (len(values[row]) for row in rows)), strict=True))
    return credit_of((advantages[row] for row in range(len(values))), values)


def _rows_by_trace(experience: Experience) -> list[list[int]]:
    rows: dict[str, list[int]] = {}
    for row, transition in enumerate(experience.transitions):
        rows.setdefault(transition.trace, []).append(row)
    return list(rows.values())


def _rewards(experience: Experience, row: int, *, is_last: bool) -> Floats:
    reward = experience.transitions[row].reward
    return on_last(reward.format + (reward.team if is_last else 0.0), len(experience.transitions[row].action_ids))

"""The paper's credit rule in a learner that can be told to die. It is copied beside a run.

Where a file `kill-learner` stands there with a rank and an iteration, the learner of that rank kills itself (SIGKILL)
in the middle of that iteration. The file is gone then, so that it happens once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from jade.config import CreditConfig
from jade.learn.credit.base import Credit, Floats
from jade.learn.credit.trajectory import trajectory as rule
from jade.learn.ranks import rank
from jade.learn.transitions import Experience


def trajectory(experience: Experience, values: Sequence[Floats], cfg: CreditConfig) -> Credit:
    order = Path(__file__).with_name("kill-learner")
    iteration = experience.transitions[0].policy_version + 1
    if order.is_file() and order.read_text() == f"{rank()} {iteration}":
        order.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return rule(experience, values, cfg)

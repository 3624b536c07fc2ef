"""An extension of the team: everyone is cut off after a few tokens, since a model with random weights says nothing.

It is copied beside a run. Where a file `kill-sampler` stands there, the process in which roles have spoken as often as
its first number says kills itself with SIGKILL. The number is gone then, so that it happens as often as there are any.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

from jade.team.roles import RoleSpec
from jade.team.team import TeamBuilder
from jade.types import Action, Malformed, Observation

NUM_TOKENS = 6
ORDER = Path(__file__).with_name("kill-sampler")


def register(team: TeamBuilder) -> None:
    for code, member in team.members.items():
        if isinstance(member, RoleSpec):
            team.members[code] = replace(member, max_tokens=NUM_TOKENS, parse=Counting(member))


class Counting:
    """Parses as the role does, and counts the calls of this process since an order to die was given."""

    count = 0

    def __init__(self, role: RoleSpec) -> None:
        self._role = role

    def __call__(self, text: str, seen: Observation) -> Action | Malformed:
        orders = ORDER.read_text().split() if ORDER.is_file() else []
        Counting.count = Counting.count + 1 if orders else 0
        if orders and Counting.count >= int(orders[0]):
            ORDER.write_text(" ".join(orders[1:]))
            os.kill(os.getpid(), signal.SIGKILL)
        return self._role.parse(text, seen)

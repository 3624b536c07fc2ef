"""An extension of the team: everyone is cut off after a few tokens, since a model with random weights says nothing.

It is copied beside a run. Where a file `kill-sampler` stands there, the process in which roles have spoken as often as
the file says kills itself with SIGKILL. The file loses a line each time, so that it happens as often as it has lines.
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


def register(team: TeamBuilder) -> None:
    for code, member in team.members.items():
        if isinstance(member, RoleSpec):
            team.members[code] = replace(member, max_tokens=NUM_TOKENS, parse=Counting(member))


class Counting:
    """Parses as the role does, and counts in how many calls of this process."""

    count = 0

    def __init__(self, role: RoleSpec) -> None:
        self._role = role

    def __call__(self, text: str, seen: Observation) -> Action | Malformed:
        Counting.count += 1
        die_if_asked(Counting.count)
        return self._role.parse(text, seen)


def die_if_asked(count: int) -> None:
    order = Path(__file__).with_name("kill-sampler")
    lines = order.read_text().split() if order.is_file() else []
    if lines and count >= int(lines[0]):
        order.write_text("\n".join(lines[1:]))
        os.kill(os.getpid(), signal.SIGKILL)

"""Roles that have stopped trying: a selector that keeps all documents of every question, say.

Such a role earns the same in all rollouts of a question and learns nothing any more, whatever it could. No alarm, as a
role may have found what is right; but who watches a run should hear of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

WINDOW = 5
"""Iterations whose mean is compared, at the beginning of a run and at its end."""
SILENT = 0.125
"""Of the entropy that a role began with. Readers and decomposers that learn well keep a third and more."""


def newly_silent(rows: Sequence[Mapping[str, float]], since: int) -> dict[str, str]:
    """The roles that fell silent after an iteration, with what is to be said of each. By a run's rows alone, so that a
    resumed run says what the whole one would have said."""
    before = silent_roles([row for row in rows if row["iteration"] <= since])
    now = silent_roles(rows)
    return {role: _describe(role, *now[role]) for role in sorted(now.keys() - before.keys())}


def silent_roles(rows: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """The roles that are silent at the end of these iterations, with the entropy (nats a token) at first and now."""
    known: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            if name.startswith("entropy/"):
                known.setdefault(name.removeprefix("entropy/"), []).append(value)
    means = {
        role: (fmean(each[:WINDOW]), fmean(each[-WINDOW:])) for role, each in known.items() if len(each) >= 2 * WINDOW
    }
    return {role: (first, now) for role, (first, now) in means.items() if now < SILENT * first}


def _describe(role: str, first: float, now: float) -> str:
    return (
        f"{role} hardly tries anything any more: {now:.3f} nats a token, {first:.3f} at first. What is not tried is "
        f"not learned; learn.role_temperature.{role} and learn.ppo.role_entropy.{role} keep a role trying"
    )

"""Roles that have nearly stopped trying: a selector that keeps all documents of every question, say.

Such a role does the same in all rollouts of a question, and nothing tells it what else would earn. No alarm: it may
have found what is right, or come back by itself. But who watches a run should hear of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jade.config import LearnConfig

Rows = Sequence[Mapping[str, float]]

WINDOW = 5
"""Iterations that are compared, at the beginning of a run and at its end."""
SILENT = 0.2
"""Of the entropy that a role began with. In the runs of docs/results.md selectors fell below it, and planners that came
to plan all questions alike; decomposers and readers hardly ever."""
FEW_TOKENS = 2000
"""In a window: what so few say tells nothing. A role that is seldom asked swings."""


def newly_silent(rows: Rows, since: int, learn: LearnConfig) -> list[str]:
    """What is to be said of the roles that fell silent after an iteration. By a run's rows alone, each iteration once
    and in order, so that a resumed run says what the whole one would have said."""
    before = silent_roles([row for row in rows if row["iteration"] <= since])
    now = silent_roles(rows)
    return [_describe(role, *now[role], learn) for role in sorted(now.keys() - before.keys())]


def silent_roles(rows: Rows) -> dict[str, tuple[float, float]]:
    """The roles that are silent at the end of these iterations, with the entropy (nats a token) at first and now."""
    roles = {name.removeprefix("entropy/") for row in rows for name in row if name.startswith("entropy/")}
    found = {}
    for role in roles:
        spoken = [row for row in rows if f"entropy/{role}" in row]
        first, now = _entropy(role, spoken[:WINDOW]), _entropy(role, spoken[-WINDOW:])
        if len(spoken) >= 2 * WINDOW and first is not None and now is not None and now < SILENT * first:
            found[role] = first, now
    return found


def _entropy(role: str, rows: Rows) -> float | None:
    """Of all that a role said in these iterations; nothing where that is little."""
    counts = [row.get(f"tokens/{role}", 0.0) for row in rows]
    total = sum(counts)
    if total < FEW_TOKENS:
        return None
    return sum(row[f"entropy/{role}"] * count for row, count in zip(rows, counts, strict=True)) / total


def _describe(role: str, first: float, now: float, learn: LearnConfig) -> str:
    text = f"{role} tries little any more: {now:.3f} nats a token, {first:.3f} at first"
    remedies = []
    if learn.role_temperature.get(role, learn.temperature) < 1.0:
        remedies.append(f"learn.role_temperature.{role} = 1")
    if not learn.ppo.role_entropy.get(role, learn.ppo.entropy_weight):
        remedies.append(f"learn.ppo.role_entropy.{role}")
    advice = f"; what is not tried is not learned: {' and '.join(remedies)} may help" if remedies else ""
    return text + advice

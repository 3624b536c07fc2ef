"""Questions that a team knows already: it answers those of training far better than new ones of their kind.

A warm start has taught their answers, or an earlier run. Rewards look fine then, and they teach little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

Rows = Sequence[Mapping[str, float]]

FIRST = 5
"""Iterations that are looked at: what a team knew when it began."""
KNOWN = 0.12
"""F1 by which questions of training are answered better than those of dev. Six runs of docs/results.md that trained
on what their lesson had taught stand between 0.18 and 0.25, one on the other half of its questions at -0.01."""
MARK = "outcome/"


def newly_known(rows: Rows, dev: Rows, since: int) -> list[str]:
    """What is to be said of the questions, once, as soon as enough iterations are there. By a run's rows alone."""
    begun = [row for row in rows if row["iteration"] <= since]
    if len(begun) >= FIRST or len(rows) < FIRST:
        return []
    found = known_datasets(rows, dev)
    return [_describe(*found)] if found else []


def known_datasets(rows: Rows, dev: Rows) -> tuple[list[str], float, float] | None:
    """The datasets that stand in both, with the mean F1 of training and of dev, if the first is far above."""
    measured = next(iter(dev), {})
    names = sorted(name for name in measured if name.startswith(MARK) and any(name in row for row in rows[:FIRST]))
    if not names:
        return None
    trained = fmean(fmean(row[name] for row in rows[:FIRST] if name in row) for name in names)
    new = fmean(measured[name] for name in names)
    return ([name.removeprefix(MARK) for name in names], trained, new) if trained - new > KNOWN else None


def _describe(names: Sequence[str], trained: float, new: float) -> str:
    return (
        f"the questions seem to be known: {trained:.2f} F1 on those of training ({', '.join(names)}), {new:.2f} on "
        "those of dev; what is known teaches little: give learn.part another part than warmstart.part"
    )

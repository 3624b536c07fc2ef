"""Questions that a team knows already: it answers those of training far better than new ones of their kind.

A warm start has taught their answers, or an earlier run. Rewards look fine then, and they may teach little.
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
WHOLE, PART = "outcome", "outcome/"


def known_remark(rows: Rows, dev: Rows) -> str | None:
    """What is to be said of the questions after the first iterations, if anything is."""
    measured = next(iter(dev), {})
    names = _in_both(rows, measured)
    trained = [fmean(row[name] for name in names if name in row) for row in rows[:FIRST] if names & row.keys()]
    if len(trained) < FIRST:
        return None
    before, new = fmean(trained), fmean(measured[name] for name in names)
    # Who learns fast stands above dev soon; who knows, at once.
    if min(before, trained[0]) - new <= KNOWN:
        return None
    parts = ", ".join(sorted(name.removeprefix(PART) for name in names if name != WHOLE))
    where = f" ({parts})" if parts else ""
    return (
        f"the questions seem to be known: {before:.2f} F1 on those of training{where}, {new:.2f} on those of dev; what "
        "is known may teach little: give learn.part another part than warmstart.part"
    )


def _in_both(rows: Rows, measured: Mapping[str, float]) -> set[str]:
    """The datasets that training and dev have; all together where each has only one, which then has no name here."""
    asked = {name for row in rows[:FIRST] for name in row if name.startswith(PART)}
    parts = {name for name in measured if name.startswith(PART)}
    return asked & parts if asked or parts else {WHOLE} & measured.keys()

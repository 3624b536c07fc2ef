"""Which rows to show, in which order; and two runs set against each other, question by question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean
from typing import Any, Literal

from jade.serve.rows import Row
from jade.serve.shelf import Shelf

Sort = Literal["order", "score", "rounds", "retrievals", "tokens", "seconds"]
Change = Literal["all", "better", "worse", "same"]
SAME_WITHIN = 1e-9
NUM_PLAN_CHANGES = 3
MAX_FACETS = 1000
"""Values that a filter offers at most, the most frequent ones."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What a row must be to be shown; empty means anything."""

    text: str = ""
    dataset: str = ""
    part: str = ""
    verdict: str = ""
    workflow: str = ""
    flag: str = ""
    min_rounds: int = 0
    min_retrievals: int = 0
    min_tokens: int = 0

    def keeps(self, row: Row) -> bool:
        return (
            self.dataset in ("", row.dataset)
            and self.part in ("", row.part)
            and self.verdict in ("", row.verdict)
            and self.workflow in ("", row.workflow or "none")
            and (not self.flag or self.flag in row.flags)
            and row.rounds >= self.min_rounds
            and row.retrievals >= self.min_retrievals
            and row.tokens >= self.min_tokens
        )


def select(shelf: Shelf, wanted: Filter, sort: Sort = "order", *, descending: bool = False) -> list[Row]:
    """The rows that a filter keeps, sorted; what has no score comes last."""
    rows = shelf.look()
    found = shelf.find(wanted.text) if wanted.text.strip() else None
    kept = [row for place, row in enumerate(rows) if (found is None or place in found) and wanted.keeps(row)]
    if sort == "order":
        return kept[::-1] if descending else kept
    value = attrgetter(sort)
    known = sorted((row for row in kept if value(row) is not None), key=value, reverse=descending)
    return [*known, *(row for row in kept if value(row) is None)]


def facets(rows: Sequence[Row]) -> dict[str, list[list[Any]]]:
    """What there is to filter by, with counts."""
    counts: dict[str, Counter[str]] = {
        "dataset": Counter(row.dataset for row in rows if row.dataset),
        "part": Counter(row.part for row in rows if row.part),
        "verdict": Counter(row.verdict for row in rows),
        "workflow": Counter(row.workflow or "none" for row in rows),
        "flag": Counter(flag for row in rows for flag in row.flags),
    }
    shown: dict[str, list[list[Any]]] = {
        name: list(map(list, of.most_common(MAX_FACETS))) for name, of in counts.items()
    }
    shown["part"].sort(key=lambda pair: (len(pair[0]), pair[0]))
    return shown


def summary(rows: Sequence[Row]) -> dict[str, float | int | None]:
    """Means over rows, for the line above the list."""
    return {
        "num": len(rows),
        "score": _mean(row.score for row in rows if row.score is not None),
        "rounds": _mean(row.rounds for row in rows),
        "retrievals": _mean(row.retrievals for row in rows),
        "tokens": _mean(row.tokens for row in rows),
        "malformed": _mean(row.num_malformed > 0 for row in rows),
        "num_errors": sum(row.error is not None for row in rows),
    }


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return fmean(known) if known else None


@dataclass(frozen=True, slots=True)
class Pair:
    """The same question in two runs."""

    before: Row
    after: Row

    @property
    def name(self) -> str:
        """What links call it. The id alone is not enough: datasets number their questions alike."""
        return "/".join(filter(None, (self.before.dataset, self.before.question_id)))

    @property
    def gain(self) -> float | None:
        if self.before.score is None or self.after.score is None:
            return None
        return self.after.score - self.before.score

    @property
    def change(self) -> Change:
        gain = self.gain or 0.0
        return "same" if abs(gain) <= SAME_WITHIN else "better" if gain > 0 else "worse"

    def show(self) -> dict[str, Any]:
        sides = {"before": self.before.show(), "after": self.after.show()}
        return {"name": self.name, **sides, "gain": self.gain, "change": self.change}


def pair_up(before: Sequence[Row], after: Sequence[Row]) -> list[Pair]:
    """Every question that both runs answered, in the order of the first."""
    others: dict[tuple[str, str], Row] = {}
    for row in after:
        others.setdefault((row.question_id, row.question), row)
    seen: set[tuple[str, str]] = set()
    pairs: list[Pair] = []
    for row in before:
        identity = (row.question_id, row.question)
        if identity in others and identity not in seen and row.question_id:
            seen.add(identity)
            pairs.append(Pair(row, others[identity]))
    return pairs


def compare_summary(pairs: Sequence[Pair]) -> dict[str, Any]:
    """What changed, in figures."""
    changes = Counter(pair.change for pair in pairs)
    plans = Counter(
        (pair.before.workflow or "none", pair.after.workflow or "none")
        for pair in pairs
        if pair.before.workflow != pair.after.workflow
    )
    return {
        "num": len(pairs),
        "before": summary([pair.before for pair in pairs]),
        "after": summary([pair.after for pair in pairs]),
        "changes": {name: changes[name] for name in ("better", "worse", "same")},
        "plans": [[*plan, count] for plan, count in plans.most_common(NUM_PLAN_CHANGES)],
    }

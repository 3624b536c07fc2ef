"""What selectors kept, beside what as many passages from the top of the search hold.

A selector that keeps four of ten and has the answer among them no more often than the first four do has learned the
order of the search, and reads nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields

from jade.evaluate.evidence import holds_gold
from jade.reward.metrics import is_yes_no
from jade.types import Question, Selection, Step, Trace


@dataclass(frozen=True, slots=True)
class Kept:
    """The selections of some questions, added up."""

    selections: int = 0
    shown: int = 0
    """Passages that selectors were shown."""
    kept: int = 0
    held: int = 0
    """Selections that were shown a passage with a gold answer; none where yes or no is asked for."""
    kept_held: int = 0
    """Of these, how many kept one."""
    first_held: int = 0
    """Of these, how many would have, had they kept as many from the top."""


def kept_in(trace: Trace) -> dict[str, int] | None:
    """What was selected for a question; None where nobody selected."""
    each = [_of_step(step, trace.question) for step in trace.steps if isinstance(step.applied, Selection)]
    return asdict(added_up(map(asdict, each))) if each else None


def added_up(counts: Iterable[Mapping[str, int]]) -> Kept:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return Kept(**{field.name: total[field.name] for field in fields(Kept)})


def _of_step(step: Step, question: Question) -> Kept:
    assert isinstance(step.applied, Selection)
    shown, chosen = step.observation.passages, set(step.applied.indices)
    gold = set() if is_yes_no(question.answers) else {n for n, one in enumerate(shown) if holds_gold(one, question)}
    first = set(range(len(chosen)))
    held, kept_held, first_held = (int(bool(gold & places)) for places in (gold, chosen, first))
    return Kept(1, len(shown), len(chosen), held, kept_held, first_held)

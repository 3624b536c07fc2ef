"""What selectors kept, beside what as many passages from the top of the search hold.

A selector that keeps four of ten and has the answer among them no more often than the first four do has learned the
order of the search, and reads nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from functools import lru_cache

from jade.reward.metrics import contains, is_yes_no
from jade.types import Passage, Question, Selection, Step, Trace


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


def kept_in(trace: Trace) -> Kept | None:
    """What was selected for a question; None where nobody selected."""
    each = [_of_step(step, trace.question) for step in trace.steps if isinstance(step.applied, Selection)]
    return added_up(each) if each else None


def added_up(several: Iterable[Kept]) -> Kept:
    total: Counter[str] = Counter()
    for each in several:
        total.update(asdict(each))
    return Kept(**{field.name: total[field.name] for field in fields(Kept)})


def holds_gold(passage: Passage, question: Question) -> bool:
    return any(_holds(passage.title, passage.text, gold) for gold in question.answers)


@lru_cache(maxsize=16384)
def _holds(title: str, text: str, gold: str) -> bool:
    """Kept, since the rollouts of a question find the same passages."""
    return contains(f"{title} {text}", gold)


def _of_step(step: Step, question: Question) -> Kept:
    assert isinstance(step.applied, Selection)
    shown, chosen = step.observation.passages, set(step.applied.indices)
    gold = set() if is_yes_no(question.answers) else {n for n, one in enumerate(shown) if holds_gold(one, question)}
    held, kept_held, first_held = (int(bool(gold & places)) for places in (gold, chosen, set(range(len(chosen)))))
    return Kept(1, len(shown), len(chosen), held, kept_held, first_held)

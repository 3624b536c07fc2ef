"""No example may share anything with what is kept for measuring: not a question, not a hop, not its evidence.

Splitting by question is not enough: a hop of a test question that stands in train is learned by heart, and so is a
fact asked for in other words. So every question and every hop is reduced to what it rests on, and what shares any of
it with a held-out question is dropped. The report says how much went, and by which kind of overlap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from jade.engine.solve import fill_references
from jade.learn.warmstart.gold import Lesson, lesson_of
from jade.reward.metrics import is_yes_no, normalise
from jade.types import Question

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeakReport:
    """What was dropped, by the first kind of overlap that was found."""

    num_lessons: int
    dropped: Counter[str]

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} by {kind}" for kind, count in sorted(self.dropped.items()))
        return f"{sum(self.dropped.values())} of {self.num_lessons} training questions left out for overlap: {kinds}"


def drop_leaks(lessons: Sequence[Lesson], held_out: Iterable[Question]) -> tuple[list[Lesson], LeakReport]:
    """The lessons that share nothing with the held-out questions."""
    forbidden = {key for question in held_out for key in keys_of(lesson_of(question))}
    kept, dropped = [], Counter[str]()
    for lesson in lessons:
        shared = next((key for key in keys_of(lesson) if key in forbidden), None)
        if shared is None:
            kept.append(lesson)
        else:
            dropped[shared[0]] += 1
    return kept, LeakReport(len(lessons), dropped)


def keys_of(lesson: Lesson) -> Iterator[Key]:
    """What a question rests on."""
    question = lesson.question
    yield "question", normalise(question.text)
    yield from _hop_keys(lesson)
    yield from _fact_keys(question)
    yield from _page_keys(lesson.titles, question.answers)
    if len(lesson.titles) > 1:
        yield "pages", *sorted(map(normalise, lesson.titles))


def _hop_keys(lesson: Lesson) -> Iterator[Key]:
    """A hop is a question in its own right, with the earlier answers filled in; its pages hold its answer."""
    answers: list[str | None] = []
    for hop in lesson.hops:
        yield "question", normalise(fill_references(hop.question, answers))
        yield from _page_keys(hop.titles, (hop.answer,))
        answers.append(hop.answer)


def _fact_keys(question: Question) -> Iterator[Key]:
    for fact in (*(question.metadata.get("evidences") or ()), *(question.metadata.get("facts") or ())):
        yield "fact", normalise(str(fact[0])), normalise(str(fact[1]))


def _page_keys(titles: Sequence[str], answers: Sequence[str]) -> Iterator[Key]:
    """A page and what is looked up on it. Yes and no are looked up on every page and say nothing."""
    if is_yes_no(answers):
        return
    for title in titles:
        yield from (("evidence", normalise(title), normalise(answer)) for answer in answers)

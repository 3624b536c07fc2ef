"""What gold data says about how a question should be worked: a lesson.

The kind of a question (one round, serial hops, independent parts) comes from its hop count or type; its sub-questions
from a gold decomposition, or from evidence triples put into words. Where a benchmark knows the kind but not the
sub-questions, the lesson teaches the plan alone, and only where the whole question does not find its answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jade.corpus.questions import supporting_titles
from jade.learn.warmstart.phrases import ask
from jade.types import Question, Role

ONE_ROUND = "one-round"
ARROW = ">>"
KINDS = {
    "bridge": Role.SERIAL.value,
    "compositional": Role.SERIAL.value,
    "inference": Role.SERIAL.value,
    "bridge_comparison": Role.SERIAL.value,
    "comparison": Role.PARALLEL.value,
}
"""How HotpotQA's and 2WikiMultiHopQA's types are worked: of two films' directors, each has to be found first."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One gold sub-question (`#1` stands for the first one's answer), its answer, and the pages that may hold it."""

    question: str
    answer: str
    titles: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    """Other answers that are as good."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """How a question should be worked. Without hops only the plan is known."""

    question: Question
    kind: str
    """`one-round`, or the code of the decomposer."""
    hops: tuple[Hop, ...] = ()

    @property
    def titles(self) -> tuple[str, ...]:
        return supporting_titles(self.question)


def lesson_of(question: Question) -> Lesson:
    """The lesson of a question, by the first kind of gold data that it has."""
    data = question.metadata
    for applies, read in READERS:
        if applies(data):
            return read(question)
    return Lesson(question, ONE_ROUND)


def _from_world(question: Question) -> Lesson:
    """Hops with their evidence page each, and the workflow itself."""
    kind = str(question.metadata["workflow"])
    steps = question.metadata["decomposition"] if kind != ONE_ROUND else ()
    return Lesson(question, kind, tuple(Hop(s["question"], s["answer"], (s["support"],)) for s in steps))


def _from_triples(question: Question) -> Lesson:
    """Evidence triples in words; a subject that an earlier triple found is referred to by its number."""
    kind = KINDS[question.metadata["type"]]
    titles = supporting_titles(question)
    triples = [(str(s), str(r), str(o)) for s, r, o in question.metadata["evidences"]]
    hops = tuple(
        Hop(ask(_subject(question, triples, place), relation), found, titles)
        for place, (_, relation, found) in enumerate(triples)
    )
    return Lesson(question, kind, hops if 2 <= len(hops) <= 4 else ())


def _subject(question: Question, triples: Sequence[tuple[str, str, str]], place: int) -> str:
    name = triples[place][0]
    for number, (_, _, found) in enumerate(triples[:place], start=1):
        if _same(found, name):
            return f"#{number}"
    return as_written(name, question.text)


def _from_decomposition(question: Question) -> Lesson:
    titles = supporting_titles(question)
    steps = question.metadata["decomposition"]
    hops = tuple(Hop(in_words(step["question"]), str(step["answer"]), titles) for step in steps)
    serial = any("#" in hop.question for hop in hops)
    return Lesson(question, (Role.SERIAL if serial else Role.PARALLEL).value, hops)


def _plan_only(question: Question) -> Lesson:
    return Lesson(question, KINDS[question.metadata["type"]])


READERS: tuple[tuple[Callable[[Mapping[str, Any]], bool], Callable[[Question], Lesson]], ...] = (
    (lambda data: "workflow" in data and bool(data.get("decomposition")), _from_world),
    (lambda data: bool(data.get("evidences")) and data.get("type") in KINDS, _from_triples),
    (lambda data: len(data.get("decomposition") or ()) > 1, _from_decomposition),
    (lambda data: data.get("type") in KINDS, _plan_only),
)
"""The first row that applies reads the question."""


def in_words(written: str) -> str:
    """MuSiQue's `Emma >> author` as a question; everything else as it stands."""
    if ARROW not in written:
        return " ".join(written.split())
    subject, _, relation = written.rpartition(ARROW)
    return ask(" ".join(subject.split()), " ".join(relation.split()))


def as_written(name: str, text: str) -> str:
    """The name in the spelling of the text, where it occurs there: what a decomposer can copy."""
    found = re.search(re.escape(name), text, re.IGNORECASE)
    return found[0] if found else name


def _same(found: str, name: str) -> bool:
    """`George Marshall` is the subject `George Marshall (director)`."""
    return found.casefold() == re.sub(r"\s*\(.*?\)$", "", name).casefold() or found.casefold() == name.casefold()

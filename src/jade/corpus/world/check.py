"""Hold a finished world against its promises, by brute force over its facts and pages.

What is true of every world:
- a name is unique, and stands inside no other name; a subject has one value of a relation at most;
- a page states every fact about its subject in the words of the fact;
- a question has exactly one right answer, found by following the facts and trying all of them;
- the answer of every sub-question stands in its evidence page, and `#1` leads from one to the next;
- a question does not contain what has to be looked up;
- no words of a question occur twice, and no fact is used by questions of two splits: whatever was learned by
  heart from train answers nothing, not even one hop, of dev and test.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jade.corpus.world.model import Value, World
from jade.types import Question


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known, with duplicates kept, so that a second answer would be seen."""

    values: dict[tuple[str, str], list[Value]]
    subjects: dict[tuple[str, str], list[str]]
    texts: dict[str, str]


def check_world(world: World) -> list[str]:
    """What is wrong with the world, a line each; empty when all promises hold."""
    evidence = _gather(world)
    complaints = [*_check_names(world), *_check_facts(world, evidence), *_check_splits(world)]
    for question in world.questions:
        complaints += (f"{question.id}: {problem}" for problem in _check_question(question, evidence))
    return complaints


def _gather(world: World) -> Evidence:
    values: dict[tuple[str, str], list[Value]] = {}
    subjects: dict[tuple[str, str], list[str]] = {}
    for fact in world.facts:
        values.setdefault((fact.subject, fact.relation), []).append(fact.value)
        subjects.setdefault((fact.relation, fact.value.text), []).append(fact.subject)
    return Evidence(values, subjects, {page.title: page.text for page in world.pages})


def _check_names(world: World) -> Iterator[str]:
    names = [entity.name.lower() for entity in world.entities]
    known, lengths = set(names), sorted({len(name) for name in names})
    if len(known) < len(names):
        yield f"{len(names) - len(known)} names are used twice"
    if len({page.name for page in world.pages}) < len(world.pages):
        yield "two pages have the same file name"
    for name in names:
        for length in lengths:
            if length >= len(name):
                break
            for start in range(len(name) - length + 1):
                if name[start : start + length] in known:
                    yield f"the name {name[start : start + length]!r} stands inside {name!r}"


def _check_facts(world: World, evidence: Evidence) -> Iterator[str]:
    for entity in world.entities:
        if entity.name not in evidence.texts.get(entity.name, ""):
            yield f"no page about {entity.name}"
    for (subject, relation), values in evidence.values.items():
        if len(values) > 1:
            yield f"{subject} has {len(values)} values of {relation}"
        if values[0].text not in evidence.texts[subject]:
            yield f"the page about {subject} does not state {relation}: {values[0].text}"


def _check_splits(world: World) -> Iterator[str]:
    counts = Counter(question.text for question in world.questions)
    yield from (f"asked {count} times: {text}" for text, count in counts.items() if count > 1)
    used: dict[tuple[str, str], str] = {}
    for split, questions in world.splits.items():
        for subject, relation in (fact for question in questions for fact in question.metadata["facts"]):
            if used.setdefault((subject, relation), split) != split:
                yield f"{relation} of {subject} is asked in {split} and in {used[subject, relation]}"


def _check_question(question: Question, evidence: Evidence) -> Iterator[str]:
    hops = question.metadata["decomposition"]
    for hop in hops:
        if hop["answer"] not in evidence.texts[hop["support"]]:
            yield f"{hop['answer']!r} is not on the page about {hop['support']}"
        if hop["answer"] != question.metadata.get("value") and _holds(question.text, hop["answer"]):
            yield f"the question contains the answer {hop['answer']!r}"
    yield from _check_composition(question)
    form = question.metadata["form"]
    right = (
        _follow(question, evidence) if form == "chain" else [ANSWERS[form](question, _looked_up(question, evidence))]
    )
    if right != [question.answers[0]]:
        yield f"the facts give {right}, the gold answer is {question.answers[0]!r}"


def _holds(text: str, answer: str) -> bool:
    return re.search(rf"\b{re.escape(answer)}(?!\w)", text, re.IGNORECASE) is not None


def _check_composition(question: Question) -> Iterator[str]:
    """From its second hop on a chain asks about the answer before; elsewhere nothing refers to anything."""
    serial = question.metadata["workflow"] == "QDS"
    for number, hop in enumerate(question.metadata["decomposition"]):
        expected = [str(number)] if serial and number else []
        if re.findall(r"#(\d+)", hop["question"]) != expected:
            yield f"sub-question {number + 1} should refer to {expected}: {hop['question']}"


def _follow(question: Question, evidence: Evidence) -> list[str]:
    """Every answer that a chain can lead to, trying all values and all subjects at each hop."""
    metadata = question.metadata
    reached: list[str] = []
    for number, ((subject, relation), hop) in enumerate(zip(metadata["facts"], metadata["decomposition"], strict=True)):
        backward = hop["answer"] == subject
        if not number:
            reached = [evidence.values[subject, relation][0].text if backward else subject]
        if backward:
            reached = [found for text in reached for found in evidence.subjects.get((relation, text), [])]
        else:
            reached = [value.text for text in reached for value in evidence.values.get((text, relation), [])]
    return reached


def _looked_up(question: Question, evidence: Evidence) -> list[Value]:
    return [evidence.values[subject, relation][0] for subject, relation in question.metadata["facts"]]


def _extreme(best: Callable[[Sequence[int]], int]) -> Callable[[Question, list[Value]], str]:
    def answer(question: Question, values: list[Value]) -> str:
        ranks = _ranks(values)
        winners = [fact[0] for fact, rank in zip(question.metadata["facts"], ranks, strict=True) if rank == best(ranks)]
        return " and ".join(winners)

    return answer


def _yes(true: bool) -> str:
    return "yes" if true else "no"


def _ranks(values: list[Value]) -> list[int]:
    return [value.rank or 0 for value in values]


ANSWERS: dict[str, Callable[[Question, list[Value]], str]] = {
    "least": _extreme(min),
    "most": _extreme(max),
    "count": lambda question, values: str(sum(value.text == question.metadata["value"] for value in values)),
    "count_below": lambda question, values: str(sum(rank < question.metadata["limit"] for rank in _ranks(values))),
    "count_above": lambda question, values: str(sum(rank > question.metadata["limit"] for rank in _ranks(values))),
    "same": lambda _, values: _yes(values[0].text == values[1].text),
    "less_than": lambda _, values: _yes(_ranks(values)[0] < _ranks(values)[1]),
    "more_than": lambda _, values: _yes(_ranks(values)[0] > _ranks(values)[1]),
    "is": lambda question, values: _yes(values[0].text == question.metadata["value"]),
}
"""What the facts say to a question of each form."""

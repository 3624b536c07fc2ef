"""What every form of question is made of: sub-questions with evidence, and phrases that stand for an entity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jade.corpus.world.model import Entity, Fact, Value
from jade.corpus.world.wording import kinds, relations

LONGEST_INSERT = 8
"""Words of a description that may stand in the middle of a question."""


@dataclass(frozen=True, slots=True)
class SubQuestion:
    """One hop: what is asked, the answer, and the fact it rests on (whose subject's page is the evidence)."""

    question: str
    answer: str
    fact: Fact


@dataclass(frozen=True, slots=True)
class Draft:
    """A question before it has an id. `value` is what `{value}` stands for, `limit` its rank where it has one."""

    text: str
    answers: tuple[str, ...]
    kind: str
    form: str
    workflow: str
    hops: tuple[SubQuestion, ...]
    value: str = ""
    limit: int | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What is asked, whatever the words and the order of the items."""
        facts = [f"{hop.fact.subject}/{hop.fact.relation}" for hop in self.hops]
        return (self.form, self.value, *(facts if self.form == "chain" else sorted(facts)))


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words that stand for an entity inside a question: its name (depth 0) or a description of so many hops."""

    text: str
    depth: int
    ends_in_name: bool


def called(entity: Entity) -> Phrase:
    return Phrase(kinds()[entity.kind].address + entity.name, 0, True)


def referred(entity: Entity, number: int) -> Phrase:
    """An entity that an earlier sub-question asked for."""
    return Phrase(f"{kinds()[entity.kind].address}#{number}", 0, True)


def accepts(template: str, inner: Phrase) -> bool:
    """Whether the template reads well around the phrase.

    A template that ends in its subject takes any; one that goes on behind it takes only a name or a short
    description that ends in a name; a possessive takes only a name.
    """
    if inner.depth == 0 or ends_in_subject(template):
        return True
    short = inner.depth == 1 and inner.ends_in_name and inner.text.count(" ") < LONGEST_INSERT
    return short and "{s}'s" not in template


def ends_in_subject(template: str) -> bool:
    return template.rstrip("?").endswith("{s}")


def wrap(template: str, inner: Phrase) -> Phrase:
    ends = ends_in_subject(template) and inner.ends_in_name
    return Phrase(template.format(s=inner.text), inner.depth + 1, ends)


def in_text(relation_id: str, value: Value) -> str:
    """A fact's value as running text has it: `the` before a river."""
    target = relations()[relation_id].object
    return (kinds()[target].article if target else "") + value.text


def listed(entities: Sequence[Entity], joint: str) -> str:
    """A, B and C."""
    names = [kinds()[entity.kind].article + entity.name for entity in entities]
    return f"{', '.join(names[:-1])} {joint} {names[-1]}"

"""The nouns of the world: entities, what is true of them, and the whole.

An entity is named once: its name is unique, and never stands inside another entity's name.
A fact is one value of one relation of one subject; `kind.relation` names the relation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from jade.types import Question

Split: TypeAlias = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")


@dataclass(frozen=True, slots=True)
class Entity:
    """Something with a page. `part` is the split whose questions may ask about it."""

    name: str
    kind: str
    part: Split
    short: str
    """What it is called at second mention: a surname, or the name again."""
    aliases: tuple[str, ...] = ()
    pronouns: tuple[str, str, str] = ("it", "its", "it")


@dataclass(frozen=True, slots=True)
class Value:
    """The object of a fact: an entity's name or a literal. What can be compared has a rank."""

    text: str
    rank: int | None = None
    aliases: tuple[str, ...] = ()

    @property
    def answers(self) -> tuple[str, ...]:
        return (self.text, *self.aliases)


@dataclass(frozen=True, slots=True)
class Fact:
    subject: str
    relation: str
    value: Value


@dataclass(frozen=True, slots=True)
class Page:
    """A short encyclopaedia article. `name` is its file name without the ending."""

    name: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class World:
    """A fictional country: what is in it, what is true there, what is written and what is asked about it."""

    seed: int
    country: str
    entities: tuple[Entity, ...]
    facts: tuple[Fact, ...]
    pages: tuple[Page, ...]
    train: tuple[Question, ...]
    dev: tuple[Question, ...]
    test: tuple[Question, ...]

    @property
    def splits(self) -> dict[Split, tuple[Question, ...]]:
        return {"train": self.train, "dev": self.dev, "test": self.test}

    @property
    def questions(self) -> tuple[Question, ...]:
        return (*self.train, *self.dev, *self.test)


@dataclass(frozen=True, slots=True)
class Lore:
    """Entities and facts, indexed for those who ask: what is true of X, and of whom is it true."""

    entities: Mapping[str, Entity]
    of_kind: Mapping[str, tuple[Entity, ...]]
    about: Mapping[str, Mapping[str, Fact]]
    """Subject -> relation -> fact."""
    holders: Mapping[tuple[str, str], tuple[Fact, ...]]
    """(Relation, value) -> the facts that share it."""
    values: Mapping[str, tuple[str, ...]]
    """Relation -> the different values it takes, in order of first appearance."""


def index_lore(entities: Iterable[Entity], facts: Iterable[Fact]) -> Lore:
    named = {entity.name: entity for entity in entities}
    of_kind: dict[str, list[Entity]] = {}
    for entity in named.values():
        of_kind.setdefault(entity.kind, []).append(entity)
    about: dict[str, dict[str, Fact]] = {name: {} for name in named}
    holders: dict[tuple[str, str], list[Fact]] = {}
    values: dict[str, dict[str, None]] = {}
    for fact in facts:
        about[fact.subject][fact.relation] = fact
        holders.setdefault((fact.relation, fact.value.text), []).append(fact)
        values.setdefault(fact.relation, {})[fact.value.text] = None
    return Lore(
        named,
        {kind: tuple(members) for kind, members in of_kind.items()},
        about,
        {key: tuple(found) for key, found in holders.items()},
        {relation: tuple(texts) for relation, texts in values.items()},
    )

"""How each kind of thing is written and asked about: one TOML file per kind, read once.

Slots of a page's sentences: `{name}` the full name; `{they}`, `{their}`, `{them}` the subject by name, noun or pronoun,
`{subject}` never by a pronoun, `{he}`, `{his}`, `{him}` always by one; `{river}` the value of the relation `river`,
`{an_river}` the same with `a` or `an`. A sentence states the relations whose slots it holds.
Slots of questions: `{s}` the subject or a description of it, `{and}` and `{or}` a list of subjects, `{a}` and `{b}` two
of them, `{value}` what they are held against.
"""

from __future__ import annotations

import string
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

KINDS = (
    "person",
    "town",
    "company",
    "book",
    "university",
    "festival",
    "river",
    "bridge",
    "opera",
    "mountain",
    "province",
    "lake",
)


@dataclass(frozen=True, slots=True)
class Asking:
    """One direction of a relation: full questions, and descriptions of the answer for use inside other questions."""

    questions: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Relation:
    """What is true of a kind, and the ways to ask for it. `object` is a kind, or empty for a literal of `unit`."""

    id: str
    kind: str
    name: str
    object: str
    unit: str
    low: int
    high: int
    forward: Asking
    backward: Asking
    forms: dict[str, tuple[str, ...]]
    """Templates of questions that compare, count or doubt: `least`, `count`, `same`, `is`, …"""


@dataclass(frozen=True, slots=True)
class Sentence:
    text: str
    states: frozenset[str]
    """Names of the relations it states."""
    opens_with_subject: bool


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    noun: str
    article: str
    """Before the name in running text."""
    address: str
    """Before the name, or before `#1`, in a question."""
    leads: tuple[Sentence, ...]
    sentences: tuple[Sentence, ...]
    flavour: tuple[Sentence, ...]
    relations: dict[str, Relation]


@cache
def kinds() -> dict[str, Kind]:
    return {name: _read_kind(name) for name in KINDS}


@cache
def relations() -> dict[str, Relation]:
    """All relations by id (`town.river`)."""
    return {relation.id: relation for kind in kinds().values() for relation in kind.relations.values()}


def slots(template: str) -> list[str]:
    return [slot for _, slot, _, _ in string.Formatter().parse(template) if slot]


def _read_kind(name: str) -> Kind:
    text = (files(__package__) / "kinds" / f"{name}.toml").read_text(encoding="utf-8")
    data: dict[str, Any] = tomllib.loads(text)
    found = {key: _relation(name, key, row) for key, row in data["relations"].items()}
    return Kind(
        name=name,
        noun=data["noun"],
        article=data.get("article", ""),
        address=data.get("address", ""),
        leads=tuple(_sentence(text, found) for text in data["leads"]),
        sentences=tuple(_sentence(text, found) for text in data["sentences"]),
        flavour=tuple(_sentence(text, found) for text in data["flavour"]),
        relations=found,
    )


def _sentence(text: str, found: dict[str, Relation]) -> Sentence:
    named = frozenset(slot.removeprefix("an_") for slot in slots(text))
    return Sentence(text, named & found.keys(), text.startswith(("{name}", "{they}", "{their}")))


def _relation(kind: str, name: str, row: dict[str, Any]) -> Relation:
    asked = {key: tuple(value) for key, value in row.items() if isinstance(value, list)}
    forward = Asking(asked.pop("questions"), asked.pop("phrases", ()))
    backward = Asking(asked.pop("inverse_questions", ()), asked.pop("inverse_phrases", ()))
    plain = (row.get("object", ""), row.get("unit", ""), row.get("low", 0), row.get("high", 0))
    return Relation(f"{kind}.{name}", kind, name, *plain, forward, backward, asked)

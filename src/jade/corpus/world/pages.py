"""Write an entity's page: a lead, its remaining facts in any order, now and then a line of colour.

Every fact of the entity is stated exactly once, with its value as it stands in the fact. The subject is named, or
called by its noun or a pronoun; a pronoun is used only where the sentence before was about the subject too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from jade.corpus.world.dice import Dice
from jade.corpus.world.forms import in_text
from jade.corpus.world.literals import with_article
from jade.corpus.world.model import Entity, Fact, Lore, Page
from jade.corpus.world.wording import Kind, Sentence, kinds

FEWEST_LINES = 2
"""After the lead; colour makes up for facts that are few."""


def write_page(entity: Entity, lore: Lore, country: str, dice: Dice) -> Page:
    kind = kinds()[entity.kind]
    facts = {fact.relation.partition(".")[2]: fact for fact in lore.about[entity.name].values()}
    values = {**_values(facts), "country": country, "name": kind.article + entity.name}
    told: list[str] = []
    previous: Sentence | None = None
    for sentence in _choose(kind, facts, dice):
        pronoun = previous is not None and _pronoun_is_clear(entity, previous, lore, facts) and dice.chance(0.7)
        slots = values | _mentions(entity, kind, pronoun, dice)
        told.append(_capitalised(sentence.text.format_map(slots)))
        previous = sentence
    return Page(page_name(entity.name), entity.name, " ".join(told))


def page_name(name: str) -> str:
    """A file name that is safe everywhere."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _choose(kind: Kind, facts: Mapping[str, Fact], dice: Dice) -> list[Sentence]:
    """The sentences of the page, in order: together they state each fact once."""
    lead = dice.pick([lead for lead in kind.leads if lead.states <= facts.keys()])
    untold = [name for name in dice.shuffled(list(facts)) if name not in lead.states]
    body: list[Sentence] = []
    while untold:
        fitting = [line for line in kind.sentences if untold[0] in line.states and line.states <= set(untold)]
        line = dice.pick(fitting)
        body.append(line)
        untold = [name for name in untold if name not in line.states]
    for line in dice.sample(kind.flavour, max(dice.below(3), FEWEST_LINES - len(body))):
        body.insert(dice.below(len(body) + 1), line)
    return [lead, *body]


def _values(facts: Mapping[str, Fact]) -> dict[str, str]:
    plain = {name: in_text(fact.relation, fact.value) for name, fact in facts.items()}
    return plain | {f"an_{name}": with_article(fact.value.text) for name, fact in facts.items()}


def _pronoun_is_clear(entity: Entity, previous: Sentence, lore: Lore, facts: Mapping[str, Fact]) -> bool:
    """After a sentence about someone else, or one that names a second person on a person's page, a name is needed."""
    if not previous.opens_with_subject:
        return False
    named = [lore.entities.get(facts[name].value.text) for name in previous.states]
    return entity.kind != "person" or all(other is None or other.kind != "person" for other in named)


def _mentions(entity: Entity, kind: Kind, pronoun: bool, dice: Dice) -> dict[str, str]:
    he, his, him = entity.pronouns
    named = kind.article + entity.short
    called = named if entity.kind == "person" else dice.pick((named, f"the {kind.noun}"))
    always = {"he": he, "his": his, "him": him, "subject": called}
    if pronoun:
        return {"they": he, "their": his, "them": him, **always}
    return {"they": called, "their": possessive(called), "them": called, **always}


def possessive(name: str) -> str:
    return f"{name}'" if name.endswith("s") else f"{name}'s"


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]

"""Questions over several entities at once: which is first, how many are so. Each entity is asked about on its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from jade.corpus.world.dice import Dice
from jade.corpus.world.forms import Draft, SubQuestion, called, in_text, listed
from jade.corpus.world.literals import numeral, threshold, with_article
from jade.corpus.world.model import Entity, Fact, Lore
from jade.corpus.world.wording import Relation, relations


def draw_comparison(lore: Lore, dice: Dice) -> Draft | None:
    """Which of two to four is least or most."""
    end = dice.pick(("least", "most"))
    relation = pick_relation(dice, end, f"{end}_two")
    items = draw_items(lore, dice, relation, dice.pick((2, 2, 2, 3, 3, 4)))
    if not items or not all_differ(items):
        return None
    size = "two" if len(items) == 2 else "many"
    templates = [*relation.forms.get(end, ()), *relation.forms.get(f"{end}_{size}", ())]
    best = (min if end == "least" else max)(items, key=rank)
    winner = lore.entities[best.subject]
    text = _fill(dice.pick(templates), lore, items)
    return Draft(text, (winner.name, *winner.aliases), "parallel", end, "QDP", ask_each(lore, dice, items))


def draw_count_same(lore: Lore, dice: Dice) -> Draft | None:
    """How many of three or four have a given value."""
    relation = pick_relation(dice, "count")
    values = lore.values.get(relation.id, ())
    if not values:
        return None
    value, size = dice.pick(values), dice.pick((3, 3, 4))
    alike = lore.holders[relation.id, value]
    number = min(dice.between(0, size), len(alike))
    # Twice as many as can be needed: some of those drawn have the value too, and are left out.
    others = [fact for fact in draw_items(lore, dice, relation, size * 2) or [] if fact.value.text != value]
    if len(others) < size - number:
        return None
    items = dice.shuffled([*dice.sample(alike, number), *others[: size - number]])
    text = _fill(dice.pick(relation.forms["count"]), lore, items, in_text(relation.id, alike[0].value))
    return Draft(text, numeral(number), "parallel", "count", "QDP", ask_each(lore, dice, items), value)


def draw_count_beyond(lore: Lore, dice: Dice) -> Draft | None:
    """How many of three or four lie below or above a round number."""
    form = dice.pick(("count_below", "count_above"))
    relation = pick_relation(dice, form)
    items = draw_items(lore, dice, relation, dice.pick((3, 3, 4)))
    if not items:
        return None
    below = dice.between(0, len(items))
    bound = threshold(relation.unit, sorted(map(rank, items)), below)
    if bound is None:
        return None
    text = _fill(dice.pick(relation.forms[form]), lore, items, bound[0])
    number = below if form == "count_below" else len(items) - below
    return Draft(text, numeral(number), "parallel", form, "QDP", ask_each(lore, dice, items), *bound)


def pick_relation(dice: Dice, *forms: str) -> Relation:
    """A relation that has templates for one of the forms."""
    return dice.pick(_with_templates(forms))


@cache
def _with_templates(forms: tuple[str, ...]) -> list[Relation]:
    return [relation for relation in relations().values() if not relation.forms.keys().isdisjoint(forms)]


def draw_items(lore: Lore, dice: Dice, relation: Relation, size: int) -> list[Fact] | None:
    """Facts of the relation about so many different subjects; None where there are too few."""
    members = lore.of_kind.get(relation.kind, ())
    found = [lore.about[entity.name].get(relation.id) for entity in dice.sample(members, min(size, len(members)))]
    items = [fact for fact in found if fact is not None]
    return items if len(items) == size else None


def ask_each(lore: Lore, dice: Dice, items: Sequence[Fact]) -> tuple[SubQuestion, ...]:
    """The same question about every item."""
    template = dice.pick(relations()[items[0].relation].forward.questions)
    subjects = [called(lore.entities[fact.subject]).text for fact in items]
    return tuple(
        SubQuestion(template.format(s=subject), fact.value.text, fact)
        for subject, fact in zip(subjects, items, strict=True)
    )


def rank(fact: Fact) -> int:
    assert fact.value.rank is not None, f"{fact.relation} cannot be compared"
    return fact.value.rank


def all_differ(items: Sequence[Fact]) -> bool:
    return len({fact.value.text for fact in items}) == len(items)


def _fill(template: str, lore: Lore, items: Sequence[Fact], value: str = "") -> str:
    subjects: list[Entity] = [lore.entities[fact.subject] for fact in items]
    lists = {"and": listed(subjects, "and"), "or": listed(subjects, "or")}
    return template.format_map({**lists, "value": value, "an_value": with_article(value or "-")})

"""Questions whose answer is yes or no: the same?, before?, is it so? Both answers are equally likely."""

from __future__ import annotations

from collections.abc import Sequence

from jade.corpus.world.dice import Dice
from jade.corpus.world.forms import Draft, in_text, listed
from jade.corpus.world.literals import with_article
from jade.corpus.world.model import Fact, Lore
from jade.corpus.world.parallel import all_differ, ask_each, draw_items, pick_relation, rank
from jade.corpus.world.wording import kinds


def draw_same(lore: Lore, dice: Dice) -> Draft | None:
    """Do two entities share a value?"""
    relation = pick_relation(dice, "same")
    alike = dice.chance(0.5)
    items = _two_alike(lore, dice, relation.id) if alike else draw_items(lore, dice, relation, 2)
    if not items or all_differ(items) == alike:
        return None
    subjects = [lore.entities[fact.subject] for fact in items]
    text = dice.pick(relation.forms["same"]).format_map({"and": listed(subjects, "and")})
    return _doubt(lore, dice, text, alike, "same", items)


def draw_order(lore: Lore, dice: Dice) -> Draft | None:
    """Is one entity below or above another?"""
    form = dice.pick(("less_than", "more_than"))
    relation = pick_relation(dice, form)
    items = draw_items(lore, dice, relation, 2)
    if not items or not all_differ(items):
        return None
    text = dice.pick(relation.forms[form]).format(a=_name(lore, items[0]), b=_name(lore, items[1]))
    return _doubt(lore, dice, text, (rank(items[0]) < rank(items[1])) == (form == "less_than"), form, items)


def draw_claim(lore: Lore, dice: Dice) -> Draft | None:
    """Is a fact as stated?"""
    relation = pick_relation(dice, "is")
    items = draw_items(lore, dice, relation, 1)
    if not items:
        return None
    true = dice.chance(0.5)
    fact = items[0]
    claimed = fact.value.text if true else dice.pick(lore.values[relation.id])
    # A value that was drawn to be wrong may be the right one after all; and nothing is claimed of a thing itself.
    if (claimed == fact.value.text) != true or claimed == fact.subject:
        return None
    value = in_text(relation.id, lore.holders[relation.id, claimed][0].value)
    slots = {"a": _name(lore, fact), "value": value, "an_value": with_article(value)}
    return _doubt(lore, dice, dice.pick(relation.forms["is"]).format_map(slots), true, "is", items, claimed)


def _doubt(lore: Lore, dice: Dice, text: str, true: bool, form: str, items: Sequence[Fact], value: str = "") -> Draft:
    workflow = "QDP" if len(items) > 1 else "one-round"
    return Draft(text, ("yes" if true else "no",), "yesno", form, workflow, ask_each(lore, dice, items), value)


def _two_alike(lore: Lore, dice: Dice, relation: str) -> list[Fact] | None:
    values = lore.values.get(relation, ())
    holders = lore.holders[relation, dice.pick(values)] if values else ()
    return dice.sample(holders, 2) if len(holders) > 1 else None


def _name(lore: Lore, fact: Fact) -> str:
    entity = lore.entities[fact.subject]
    return kinds()[entity.kind].article + entity.name

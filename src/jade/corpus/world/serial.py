"""Questions that follow facts from one entity to the next: one hop, or a chain of two to four.

A hop goes from a fact's subject to its value, or back from the value to the subject where only one subject has it.
No entity occurs twice in a chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from jade.corpus.world.dice import Dice
from jade.corpus.world.forms import Draft, Phrase, SubQuestion, accepts, called, referred, wrap
from jade.corpus.world.model import Entity, Fact, Lore
from jade.corpus.world.wording import Asking, kinds, relations


@dataclass(frozen=True, slots=True)
class Move:
    fact: Fact
    asking: Asking
    target: str
    """Where it leads: an entity's name or a literal."""


def draw_chain(lore: Lore, dice: Dice, hops: int) -> Draft | None:
    """A question of so many hops, or None where the walk came to a dead end."""
    walk = _walk(lore, dice, hops)
    if walk is None:
        return None
    start, moves = walk
    text = _ask(start, moves, dice)
    subs = (
        _sub_questions(lore, start, moves, dice) if hops > 1 else (SubQuestion(text, moves[0].target, moves[0].fact),)
    )
    kind, workflow = ("serial", "QDS") if hops > 1 else ("single", "one-round")
    return Draft(text, _answers(lore, moves[-1]), kind, "chain", workflow, subs)


def _walk(lore: Lore, dice: Dice, hops: int) -> tuple[Entity, list[Move]] | None:
    kind = dice.pick([kind for kind in kinds() if lore.of_kind.get(kind)])
    start = current = dice.pick(lore.of_kind[kind])
    seen, moves = {start.name}, list[Move]()
    for left in range(hops, 0, -1):
        options = [move for move in _moves(lore, current) if move.target not in seen]
        if left > 1:
            options = [move for move in options if move.target in lore.entities]
        if not options:
            return None
        moves.append(dice.pick(options))
        seen.add(moves[-1].target)
        current = lore.entities.get(moves[-1].target, current)
    return start, moves


def _moves(lore: Lore, entity: Entity) -> list[Move]:
    known = relations()
    ahead = [Move(fact, known[fact.relation].forward, fact.value.text) for fact in lore.about[entity.name].values()]
    for relation in _pointing_at(entity.kind):
        holders = lore.holders.get((relation, entity.name), ())
        if len(holders) == 1:
            ahead.append(Move(holders[0], known[relation].backward, holders[0].subject))
    return ahead


@cache
def _pointing_at(kind: str) -> list[str]:
    return [relation.id for relation in relations().values() if relation.object == kind and relation.backward.questions]


def _ask(start: Entity, moves: list[Move], dice: Dice) -> str:
    """The whole chain as one question: descriptions inside descriptions."""
    phrase = called(start)
    for move in moves[:-1]:
        phrase = wrap(_fitting(move.asking.phrases, phrase, dice), phrase)
    return _fitting(moves[-1].asking.questions, phrase, dice).format(s=phrase.text)


def _fitting(templates: tuple[str, ...], phrase: Phrase, dice: Dice) -> str:
    return dice.pick([template for template in templates if accepts(template, phrase)])


def _sub_questions(lore: Lore, start: Entity, moves: list[Move], dice: Dice) -> tuple[SubQuestion, ...]:
    """Each hop on its own; from the second on, `#1` stands for the answer of the first, and so on."""
    phrase = called(start)
    hops = []
    for number, move in enumerate(moves, 1):
        hops.append(SubQuestion(dice.pick(move.asking.questions).format(s=phrase.text), move.target, move.fact))
        if move.target in lore.entities:
            phrase = referred(lore.entities[move.target], number)
    return tuple(hops)


def _answers(lore: Lore, last: Move) -> tuple[str, ...]:
    if last.target == last.fact.value.text:
        return last.fact.value.answers
    return (last.target, *lore.entities[last.target].aliases)

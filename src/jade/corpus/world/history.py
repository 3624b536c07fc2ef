"""What is in the country and what is true there.

The country is made in three parts, one for each split of the questions. Facts relate only things of the same part:
a question that stays within its part can share no fact with a question of another. Years agree with each other:
nobody founds, writes or teaches before growing up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from jade.corpus.world.dice import Dice
from jade.corpus.world.literals import date, quantity, word, year, year_of_date
from jade.corpus.world.model import SPLITS, Entity, Fact, Split, Value
from jade.corpus.world.names import Namer
from jade.corpus.world.wording import KINDS, Relation, kinds

SHARES = {
    "person": 34,
    "town": 14,
    "company": 10,
    "book": 9,
    "university": 5,
    "festival": 6,
    "river": 5,
    "bridge": 5,
    "opera": 5,
    "mountain": 3,
    "province": 2,
    "lake": 2,
}
LEAST = {"person": 4, "town": 2, "river": 2, "mountain": 1, "province": 1, "lake": 1}
"""What every part has, so that all its facts have something to point at."""
SMALLEST_PART = 16
FIRST_BIRTH, LAST_BIRTH = 1810, 1915
FULL_LIFE = 75


@dataclass(slots=True)
class Part:
    """One part of the country while it is being made."""

    members: dict[str, list[Entity]]
    dice: Dice
    facts: dict[tuple[str, str], Value]
    """(Subject, relation) -> value, in the order of making."""
    elders: list[tuple[int, Entity]]
    """People by year of birth."""
    free_towns: list[Entity]
    """Towns that are not yet a capital."""

    def set(self, subject: Entity, relation: str, value: Value) -> None:
        self.facts[subject.name, f"{subject.kind}.{relation}"] = value

    def point(self, subject: Entity, relation: str, target: Entity) -> None:
        self.set(subject, relation, Value(target.name, None, target.aliases))

    def any(self, kind: str) -> Entity:
        return self.dice.pick(self.members[kind])

    def person_but(self, name: str) -> Entity:
        while (person := self.any("person")).name == name:
            pass
        return person

    def birth(self, name: str) -> int:
        return year_of_date(self.facts[name, "person.born"])

    def deed(self, name: str, after: int = 0) -> Value:
        """A year in which someone could do something great, later than `after`."""
        grown, old = self.birth(name) + 24, self.birth(name) + FULL_LIFE
        return year(self.dice.between(max(grown, after + 1), old))


def make_history(pages: int, seed: int) -> tuple[str, list[Entity], list[Fact]]:
    """The country's name, its entities (exactly `pages`) and their facts."""
    namer = Namer(seed)
    country = namer.stem("country")
    entities: list[Entity] = []
    facts: list[Fact] = []
    for split, size in part_sizes(pages).items():
        part = _make_part(split, size, namer, Dice(seed, "history", split))
        entities += (entity for members in part.members.values() for entity in members)
        facts += (Fact(subject, relation, value) for (subject, relation), value in part.facts.items())
    return country, entities, facts


def part_sizes(pages: int) -> dict[Split, int]:
    """Pages for each split: a tenth each for dev and test, but never fewer than a part needs."""
    held_out = max(SMALLEST_PART, pages // 10)
    return dict(zip(SPLITS, (pages - 2 * held_out, held_out, held_out), strict=True))


def members_by_kind(size: int) -> dict[str, int]:
    """How many of each kind a part of `size` pages has: what it needs, then whatever is furthest below its share."""
    counts = {kind: max(LEAST.get(kind, 0), size * SHARES[kind] // 100) for kind in KINDS}
    for _ in range(size - sum(counts.values())):
        counts[max(KINDS, key=lambda kind: size * SHARES[kind] / 100 - counts[kind])] += 1
    return counts


def _make_part(split: Split, size: int, namer: Namer, dice: Dice) -> Part:
    members = {kind: [namer.entity(kind, split) for _ in range(count)] for kind, count in members_by_kind(size).items()}
    part = Part(members, dice, {}, [], list(members["town"]))
    for person in members["person"]:
        part.set(person, "born", date(dice.between(FIRST_BIRTH, LAST_BIRTH), dice))
    part.elders = sorted(((part.birth(person.name), person) for person in members["person"]), key=_by_birth)
    for kind, tell in STORIES.items():
        for entity in members[kind]:
            _tell_literals(part, entity)
            tell(part, entity)
    return part


def _by_birth(row: tuple[int, Entity]) -> tuple[int, str]:
    return row[0], row[1].name


def _tell_literals(part: Part, entity: Entity) -> None:
    """Quantities and words need nothing but a draw; years depend on people and are told by each kind's story."""
    for relation in kinds()[entity.kind].relations.values():
        if relation.high:
            part.set(entity, relation.name, _measured(relation, part.dice))
        elif relation.unit not in ("", "year", "date"):
            part.set(entity, relation.name, word(relation.unit, part.dice))


def _measured(relation: Relation, dice: Dice) -> Value:
    """Small numbers are commoner than large ones, as among real rivers and towns."""
    spread = relation.high / relation.low
    return quantity(round(relation.low * spread ** dice.random()), relation.unit)


def _province(part: Part, province: Entity) -> None:
    capital = part.free_towns.pop()
    part.point(province, "capital", capital)
    part.point(capital, "province", province)
    part.set(province, "established", year(part.dice.between(1320, 1790)))


def _town(part: Part, town: Entity) -> None:
    if (town.name, "town.province") not in part.facts:
        part.point(town, "province", part.any("province"))
    part.point(town, "river", part.any("river"))
    part.point(town, "mayor", part.any("person"))
    part.set(town, "founded", year(part.dice.between(880, 1690)))


def _mountain(part: Part, mountain: Entity) -> None:
    part.point(mountain, "climber", part.any("person"))
    part.point(mountain, "province", part.any("province"))


def _lake(part: Part, lake: Entity) -> None:
    part.point(lake, "province", part.any("province"))


def _river(part: Part, river: Entity) -> None:
    part.point(river, "source", part.any("mountain"))
    part.point(river, "mouth", part.any("lake"))


def _university(part: Part, university: Entity) -> None:
    _, rector = part.elders[part.dice.below(max(1, len(part.elders) // 3))]
    part.point(university, "rector", rector)
    part.point(university, "town", part.any("town"))
    part.set(university, "founded", year(part.birth(rector.name) + part.dice.between(28, 50)))


def _person(part: Part, person: Entity) -> None:
    birth = part.birth(person.name)
    part.point(person, "birthplace", part.any("town"))
    _study(part, person, birth)
    if part.dice.chance(0.6):
        _marry(part, person, birth)
    if part.dice.chance(0.55):
        _learn(part, person, birth)


def _study(part: Part, person: Entity, birth: int) -> None:
    """At a university that was there in time, and not the one the person leads."""
    # A few draws and not a search: some people did not study, those born early more often.
    for _ in range(6 if part.members["university"] else 0):
        university = part.any("university")
        founded = part.facts[university.name, "university.founded"].rank or 0
        rector = part.facts[university.name, "university.rector"].text
        if founded <= birth + 20 and rector != person.name:
            return part.point(person, "university", university)


def _marry(part: Part, person: Entity, birth: int) -> None:
    spouse = _born_within(part, birth - 9, birth + 9)
    single = (spouse.name, "person.spouse") not in part.facts and (person.name, "person.spouse") not in part.facts
    if spouse is not person and single:
        part.point(person, "spouse", spouse)
        part.point(spouse, "spouse", person)


def _learn(part: Part, person: Entity, birth: int) -> None:
    mentor = _born_within(part, birth - 45, birth - 15)
    spouse = part.facts.get((person.name, "person.spouse"))
    if birth - 45 <= part.birth(mentor.name) <= birth - 15 and (spouse is None or spouse.text != mentor.name):
        part.point(person, "mentor", mentor)


def _born_within(part: Part, first: int, last: int) -> Entity:
    """Someone born in those years, or the one born next where nobody was."""
    low = bisect_left(part.elders, first, key=lambda row: row[0])
    high = bisect_left(part.elders, last + 1, key=lambda row: row[0])
    position = part.dice.between(low, high - 1) if high > low else min(low, len(part.elders) - 1)
    return part.elders[position][1]


def _company(part: Part, company: Entity) -> None:
    founder = part.any("person")
    part.point(company, "founder", founder)
    part.point(company, "headquarters", part.any("town"))
    part.set(company, "founded", part.deed(founder.name))


def _book(part: Part, book: Entity) -> None:
    author = part.any("person")
    part.point(book, "author", author)
    part.point(book, "dedicatee", part.person_but(author.name))
    part.point(book, "setting", part.any("town"))
    part.set(book, "published", part.deed(author.name))


def _opera(part: Part, opera: Entity) -> None:
    composer = part.any("person")
    part.point(opera, "composer", composer)
    part.point(opera, "town", part.any("town"))
    after = _adapt(part, opera, composer)
    part.set(opera, "premiered", part.deed(composer.name, after))


def _adapt(part: Part, opera: Entity, composer: Entity) -> int:
    """A novel that the composer could read in time and did not write; the year it appeared, 0 where there is none."""
    for _ in range(6 if part.members["book"] else 0):
        book = part.any("book")
        published = part.facts[book.name, "book.published"].rank or 0
        author = part.facts[book.name, "book.author"].text
        if published < part.birth(composer.name) + FULL_LIFE and author != composer.name:
            part.point(opera, "novel", book)
            return published
    return 0


def _festival(part: Part, festival: Entity) -> None:
    founder = part.any("person")
    part.point(festival, "founder", founder)
    part.point(festival, "town", part.any("town"))
    part.set(festival, "first_held", part.deed(founder.name))


def _bridge(part: Part, bridge: Entity) -> None:
    designer = part.any("person")
    part.point(bridge, "designer", designer)
    part.point(bridge, "town", part.any("town"))
    part.set(bridge, "opened", part.deed(designer.name))


STORIES: dict[str, Callable[[Part, Entity], None]] = {
    "province": _province,
    "town": _town,
    "mountain": _mountain,
    "lake": _lake,
    "river": _river,
    "university": _university,
    "person": _person,
    "company": _company,
    "book": _book,
    "opera": _opera,
    "festival": _festival,
    "bridge": _bridge,
}
"""In this order: who is pointed at is told before who points, where years matter."""

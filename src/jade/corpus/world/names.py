"""Invented names: pronounceable, unique, and none inside another.

Every name but some titles holds one coined stem. A stem is never part of another stem, of a given name or of a
title word, so an answer that names one entity never names a second by accident.
"""

from __future__ import annotations

from jade.corpus.world.dice import Dice
from jade.corpus.world.lexicon import ENDINGS, PREFIXES, SOUNDS, SUFFIXES, WORDS
from jade.corpus.world.model import Entity, Split

SHORTEST_STEM = 5
FEMININE, MASCULINE = ("she", "her", "her"), ("he", "his", "him")


class Namer:
    """Names entities one after the other, remembering every name it has given."""

    def __init__(self, seed: int) -> None:
        self._dice = Dice(seed, "names")
        self._stems: set[str] = set()
        self._inside: set[str] = set()
        self._titles: set[str] = set()
        for name in ("feminine", "masculine", "adjectives", "nouns"):
            for word in WORDS[name]:
                self._inside.update(_pieces(word.lower()))

    def stem(self, kind: str) -> str:
        """A coined word in the sound of its kind, never used before."""
        while True:
            stem = self._coin(kind)
            sound = stem.lower()
            pieces = _pieces(sound)
            # Both ways round: this stem inside nothing older, and no older stem inside this one.
            if sound in self._inside or not self._stems.isdisjoint(pieces) or _unfit(sound):
                continue
            self._stems.add(sound)
            self._inside.update(pieces)
            return stem

    def _coin(self, kind: str) -> str:
        pick = self._dice.pick
        return pick(SOUNDS["onsets"]) + pick(SOUNDS["vowels"]) + pick(SOUNDS["medials"]) + pick(ENDINGS[kind])

    def entity(self, kind: str, part: Split) -> Entity:
        if kind == "person":
            return self._person(part)
        if kind in ("book", "opera"):
            title = self._title(kind)
            return Entity(title, kind, part, title)
        stem = self.stem(kind)
        if kind in PREFIXES:
            name = f"{self._dice.pick(PREFIXES[kind])} {stem}"
        elif kind in SUFFIXES:
            name = f"{stem} {self._dice.pick(SUFFIXES[kind])}"
        else:
            return Entity(stem, kind, part, stem, (f"River {stem}",) if kind == "river" else ())
        return Entity(name, kind, part, name, (stem,))

    def _person(self, part: Split) -> Entity:
        pronouns, given = self._dice.pick(((FEMININE, "feminine"), (MASCULINE, "masculine")))
        surname = self.stem("person")
        return Entity(f"{self._dice.pick(WORDS[given])} {surname}", "person", part, surname, (surname,), pronouns)

    def _title(self, kind: str) -> str:
        for _ in range(20):
            title = self._titled(kind)
            if title not in self._titles:
                self._titles.add(title)
                return title
        return f"The {self._dice.pick(WORDS['nouns'])} of {self.stem(kind)}"

    def _titled(self, kind: str) -> str:
        pick, nouns = self._dice.pick, WORDS["nouns"]
        pattern = self._dice.below(4)
        if pattern == 0:
            return f"The {pick(nouns)} of {self.stem(kind)}"
        if kind == "opera":
            return self.stem(kind) if pattern < 3 else "The {} by the {}".format(*self._dice.sample(nouns, 2))
        if pattern == 1:
            noun = pick(nouns)
            return f"{'An' if noun[0] in 'AEIOU' else 'A'} {noun} for {pick(WORDS['feminine'] + WORDS['masculine'])}"
        return f"The {pick(WORDS['adjectives'])} {pick(nouns)}"


def _pieces(sound: str) -> list[str]:
    """Every part of a word that is long enough to be a stem, the word itself included."""
    length = len(sound)
    return [
        sound[start:end]
        for start in range(length - SHORTEST_STEM + 1)
        for end in range(start + SHORTEST_STEM, length + 1)
    ]


def _unfit(sound: str) -> bool:
    """Real words, and sounds that would make a reader stop."""
    return sound in SOUNDS["words"] or any(part in sound for part in SOUNDS["avoid"])

"""Values that are not entities: years, dates, quantities and words of the lexicon, as written and as compared."""

from __future__ import annotations

from collections.abc import Sequence

from jade.corpus.world.dice import Dice
from jade.corpus.world.lexicon import WORDS
from jade.corpus.world.model import Value

DAYS_OF_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
DATES_OF_YEAR = 12 * 31
"""A date's rank counts as if every month had 31 days, so that a year begins at `year * DATES_OF_YEAR`."""

SHORT_UNITS = {"metres": "m", "kilometres": "km", "square kilometres": "km²"}
NUMERALS = ("zero", "one", "two", "three", "four", "five")


def year(number: int) -> Value:
    return Value(str(number), number)


def date(number: int, dice: Dice) -> Value:
    """Some day of the year `number`."""
    month = dice.below(12)
    day = dice.between(1, DAYS_OF_MONTH[month])
    name = WORDS["month"][month]
    rank = (number * 12 + month) * 31 + day - 1
    return Value(f"{day} {name} {number}", rank, (f"{name} {day}, {number}",))


def year_of_date(value: Value) -> int:
    assert value.rank is not None
    return value.rank // DATES_OF_YEAR


def quantity(number: int, unit: str) -> Value:
    """A measured number; people are counted without a unit."""
    if unit == "people":
        return Value(f"{number:,}", number, (str(number),) if number >= 1000 else ())
    written = dict.fromkeys((f"{number:,} {SHORT_UNITS[unit]}", f"{number:,}", f"{number} {unit}", f"{number}"))
    return Value(f"{number:,} {unit}", number, tuple(text for text in written if text != f"{number:,} {unit}"))


def word(unit: str, dice: Dice) -> Value:
    return Value(dice.pick(WORDS[unit]))


def threshold(unit: str, ranks: Sequence[int], below: int) -> tuple[str, int] | None:
    """A round number with exactly `below` of the sorted ranks under it, as written and as compared.

    None where no round number separates them. A date is compared with a year, and never falls into it.
    """
    scale = DATES_OF_YEAR if unit == "date" else 1
    step = _step(unit, ranks)
    # Where nothing lies below, or nothing above, any round number a little beyond the end will do.
    low = ranks[below - 1] // scale if below else ranks[0] // scale - 4 * step
    high = ranks[below] // scale if below < len(ranks) else ranks[-1] // scale + 4 * step
    middle = (low + high) // 2 // step * step
    if not low < middle < high:
        return None
    return threshold_text(unit, middle), middle * scale


def threshold_text(unit: str, number: int) -> str:
    return str(number) if unit in ("year", "date") else quantity(number, unit).text


def _step(unit: str, ranks: Sequence[int]) -> int:
    if unit in ("year", "date"):
        return 5
    return 1000 if ranks[-1] > 8000 else 100 if ranks[-1] > 800 else 10


def numeral(number: int) -> tuple[str, ...]:
    return (str(number), NUMERALS[number]) if number else ("0", "zero", "none")


def with_article(text: str) -> str:
    """`a` or `an` before a word of the lexicon, whose spelling and sound agree about vowels (but for `unicorn`)."""
    return f"an {text}" if text[0] in "aeiou" and not text.startswith("uni") else f"a {text}"

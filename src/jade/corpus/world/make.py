"""Make a world from three numbers."""

from __future__ import annotations

from jade.corpus.world.dice import Dice
from jade.corpus.world.history import SMALLEST_PART, make_history
from jade.corpus.world.model import SPLITS, World, index_lore
from jade.corpus.world.pages import write_page
from jade.corpus.world.questions import ask_questions
from jade.errors import ConfigError

FEWEST_PAGES, MOST_PAGES = 3 * SMALLEST_PART + 2, 100_000


def make_world(pages: int, questions: int, seed: int) -> World:
    """The world of a seed. Its pages depend on `pages` and `seed` alone, not on how many questions are asked.

    Raises ConfigError where the numbers are out of range, or the pages too few for so many questions.
    """
    if not FEWEST_PAGES <= pages <= MOST_PAGES:
        raise ConfigError(f"a world of {pages} pages cannot be made; give from {FEWEST_PAGES} to {MOST_PAGES} pages")
    if questions < 0:
        raise ConfigError(f"{questions} questions cannot be asked; give 0 or more")
    country, entities, facts = make_history(pages, seed)
    lore = index_lore(entities, facts)
    dice = Dice(seed, "pages")
    written = [write_page(entity, lore, country, dice) for entity in entities]
    part_of = {entity.name: entity.part for entity in entities}
    parts = {
        split: index_lore(
            [entity for entity in entities if entity.part == split],
            [fact for fact in facts if part_of[fact.subject] == split],
        )
        for split in SPLITS
    }
    asked = ask_questions(parts, questions, seed)
    return World(seed, country, tuple(entities), tuple(facts), tuple(dice.shuffled(written)), **asked)

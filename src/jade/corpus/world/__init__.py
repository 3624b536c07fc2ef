"""The built-in world: a fictional country, made from a seed, with pages to search and questions to answer.

No model can know its answers, so what is right was retrieved. A world is the same for the same three numbers in
every process and on every Python. Its questions are single (one hop), serial (two to four hops, each about the
answer before), parallel (comparisons and counts) and yes/no, each with gold answers, gold sub-questions and the
titles of the pages that hold the evidence.

Guaranteed, for every size: each split asks about its own part of the country, so no fact that a question of dev or
test rests on is asked for in train, and no question occurs twice. All pages belong to the one corpus. `check_world`
lists the promises and tests them.
"""

from jade.corpus.world.check import check_world
from jade.corpus.world.make import make_world
from jade.corpus.world.model import Entity, Fact, Page, Value, World
from jade.corpus.world.oracle import filled, oracle
from jade.corpus.world.write import check_place, is_world, question_row, world_corpus, write_world

__all__ = [
    "Entity",
    "Fact",
    "Page",
    "Value",
    "World",
    "check_place",
    "check_world",
    "filled",
    "is_world",
    "make_world",
    "oracle",
    "question_row",
    "world_corpus",
    "write_world",
]

"""What counts as evidence for a hop, and which words find it: what every role's lessons go by."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jade.learn.warmstart.gold import Hop
from jade.reward.metrics import contains, is_yes_no, normalise
from jade.team.crew import Crew
from jade.types import Passage

FILLER = frozenset(
    re.findall(
        r"\w+",
        "a an the is are was were be been do does did has have had what which who whom whose when where why how of in "
        "on at to for from by with and or that this it its many much",
    )
)


async def best_query(question: str, hop: Hop, crew: Crew) -> str | None:
    """Of the question and its bare keywords, the one that finds evidence first, the shorter where both do."""
    queries = list(dict.fromkeys([keywords(question), question]))
    found = await crew.retriever.search(queries, crew.k)
    ranks = [first_evidence(hop, passages) for passages in found]
    useful = [place for place, passages in enumerate(found) if ranks[place] < len(passages)]
    return queries[min(useful, key=lambda place: (ranks[place], place))] if useful else None


def keywords(question: str) -> str:
    """The question without its filling words; the question itself when nothing would be left."""
    words = [word for word in re.findall(r"[^\s?]+", question) if word.lower() not in FILLER]
    return " ".join(words) or question


def is_of_page(hop: Hop, passage: Passage) -> bool:
    """A passage of one of the pages that are named."""
    return normalise(passage.title) in {normalise(title) for title in hop.titles}


def is_evidence(hop: Hop, passage: Passage) -> bool:
    """A passage of an evidence page, where those are named, that holds the answer; yes and no stand on no page."""
    if hop.titles and not is_of_page(hop, passage):
        return False
    if is_yes_no([hop.answer]):
        return bool(hop.titles)
    return any(contains(f"{passage.title} {passage.text}", answer) for answer in (hop.answer, *hop.aliases))


def first_evidence(hop: Hop, passages: Sequence[Passage]) -> int:
    """The rank of the first passage that is evidence; as many as there are when none is."""
    return next((rank for rank, passage in enumerate(passages) if is_evidence(hop, passage)), len(passages))


def spelt_in(golds: Sequence[str], passages: Sequence[Passage]) -> str | None:
    """The first gold answer that a passage holds."""
    texts = [f"{passage.title} {passage.text}" for passage in passages]
    return next((gold for gold in golds if any(contains(text, gold) for text in texts)), None)

"""Lessons for the searcher, from the same gold data as the team's: hop after hop is searched for, then answered from.

What a search brings is what the retriever really finds. A turn is taught only while everything before it was found:
a search for what nothing in the context has told, or an answer that stands nowhere in it, would teach to guess.
"""

from __future__ import annotations

from collections.abc import Sequence

from jade.engine.solve import fill_references
from jade.learn.warmstart.evidence import best_query, is_evidence, spelt_in
from jade.learn.warmstart.gold import Hop, Lesson
from jade.team.crew import Crew
from jade.team.dialogue import LAST_TURN, SEARCHED
from jade.types import Observation, Passage


async def next_move(lesson: Lesson, seen: Observation, crew: Crew) -> str | None:
    """What the searcher should say here; None where the gold data does not settle it."""
    hops = lesson.hops or (_whole(lesson, seen.passages),)
    num_searched = sum(kind == SEARCHED for kind, _ in seen.notes)
    if not all(_is_found(hop, seen.passages) for hop in hops[:num_searched]):
        return None
    if num_searched == len(hops):
        return f"<answer>{lesson.question.answers[0] if lesson.hops else hops[0].answer}</answer>"
    if LAST_TURN in seen.notes:
        return None
    hop = hops[num_searched]
    query = await best_query(fill_references(hop.question, [done.answer for done in hops[:num_searched]]), hop, crew)
    return f"<search>{query}</search>" if query else None


def _whole(lesson: Lesson, passages: Sequence[Passage]) -> Hop:
    """A question without hops is one; the first spelling that a passage has is the answer to say."""
    golds = lesson.question.answers
    return Hop(lesson.question.text, spelt_in(golds, passages) or golds[0], lesson.titles, aliases=golds)


def _is_found(hop: Hop, passages: Sequence[Passage]) -> bool:
    return any(is_evidence(hop, passage) for passage in passages)

"""What retrieval brought for a question, and who got to read it, from a finished trace.

A passage is evidence when it holds a gold answer; yes and no stand in no text, so for
them the evidence is complete when every supporting page was there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jade.corpus.questions import supporting_titles
from jade.reward.metrics import is_yes_no, normalise
from jade.reward.selection import holds_gold
from jade.types import Answer, Passage, Question, Step, Trace


def has_evidence(passages: Sequence[Passage], question: Question) -> bool:
    """Whether the passages suffice to answer."""
    titles = supporting_titles(question)
    if is_yes_no(question.answers):
        return bool(passages) and title_recall(passages, titles) in (None, 1.0)
    return any(holds_gold(passage, question) for passage in passages)


def found_in(steps: Iterable[Step]) -> list[Passage]:
    """All that any search brought."""
    return [passage for step in steps for passage in step.found]


def read_in(steps: Iterable[Step]) -> list[Passage]:
    """All that was in front of somebody who answered."""
    return [passage for step in steps if isinstance(step.applied, Answer) for passage in step.observation.passages]


def answer_rank(trace: Trace) -> int | None:
    """The best rank, from 1, at which one of the trace's searches had a passage that holds a gold answer.

    A "no" somewhere in a passage is no evidence: where yes or no is asked for, there is no such rank.
    """
    if is_yes_no(trace.question.answers):
        return None
    ranks = [
        rank
        for step in trace.steps
        for rank, passage in enumerate(step.found, start=1)
        if holds_gold(passage, trace.question)
    ]
    return min(ranks, default=None)


def title_recall(passages: Iterable[Passage], titles: Sequence[str]) -> float | None:
    """Share of the supporting pages that were found; None where the benchmark names none."""
    wanted = {normalise(title) for title in titles}
    found = {normalise(passage.title) for passage in passages}
    return len(wanted & found) / len(wanted) if wanted else None

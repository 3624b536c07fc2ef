"""Is this the index of these questions' corpus? Asked before any work, by searching for pages that must be there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jade.corpus.questions import supporting_titles
from jade.retrieval.base import Retriever
from jade.reward.metrics import normalise
from jade.types import Question

NUM_PROBES = 20
PROBE_DEPTH = 10


@dataclass(frozen=True, slots=True)
class Probe:
    """Some of the titles that the corpus has to have, and how many of them were found."""

    titles: tuple[str, ...] = ()
    num_found: int = 0

    @property
    def share(self) -> float:
        """1 where nothing can be said."""
        return self.num_found / len(self.titles) if self.titles else 1.0


async def probe_index(questions: Sequence[Question], retriever: Retriever) -> Probe:
    """Search for evidence pages of these questions; for passages without any titles nothing can be said."""
    titles = probes(questions)
    if not titles:
        return Probe()
    results = await retriever.search(titles, PROBE_DEPTH)
    found = [{normalise(passage.title) for passage in passages} for passages in results]
    if any(found) and not any(names - {""} for names in found):
        return Probe()
    return Probe(tuple(titles), sum(normalise(title) in names for title, names in zip(titles, found, strict=True)))


def probes(questions: Sequence[Question]) -> list[str]:
    """Titles of evidence pages, where the questions name them, from all over the questions."""
    named = (title for question in questions for title in supporting_titles(question))
    titles = list(dict.fromkeys(named))
    return titles[:: max(1, len(titles) // NUM_PROBES)][:NUM_PROBES]

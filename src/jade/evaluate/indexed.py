"""Is this the index of this benchmark's corpus? Asked before any work, by searching for pages that must be there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jade.config import Config
from jade.errors import IndexUnusable
from jade.evaluate.benchmarks import supporting_titles
from jade.evaluate.methods import Method
from jade.retrieval.base import Retriever
from jade.reward.metrics import normalise
from jade.types import Question

NUM_PROBES = 20
PROBE_DEPTH = 10


async def check_index(
    questions: Mapping[str, Sequence[Question]], retriever: Retriever, methods: Sequence[Method], config: Config
) -> None:
    """Raise IndexUnusable when of a benchmark's evidence pages none is found. Without titles nothing can be said."""
    if not config.eval.check_index or not any(method.needs_index for method in methods):
        return
    for benchmark, asked in questions.items():
        titles = probes(asked)
        if titles and not await _any_found(titles, retriever):
            raise IndexUnusable(
                f"index {config.retrieval.index} does not fit {benchmark}: of {len(titles)} evidence pages "
                f"(the first is {titles[0]!r}) it has none; index the benchmark's corpus, "
                "or allow it with --set eval.check_index=false"
            )


def probes(questions: Sequence[Question]) -> list[str]:
    """Some of the titles that the corpus has to have, from all over the benchmark."""
    titles = list(dict.fromkeys(title for question in questions for title in supporting_titles(question)))
    return titles[:: max(1, len(titles) // NUM_PROBES)][:NUM_PROBES]


async def _any_found(titles: Sequence[str], retriever: Retriever) -> bool:
    """Whether a search for some title finds a page of that title; passages without any titles get the doubt."""
    results = await retriever.search(titles, PROBE_DEPTH)
    found = [{normalise(passage.title) for passage in passages} for passages in results]
    untitled = any(found) and not any(names - {""} for names in found)
    return untitled or any(normalise(title) in names for title, names in zip(titles, found, strict=True))

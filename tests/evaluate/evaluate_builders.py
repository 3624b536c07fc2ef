"""Builders for the tests of evaluation: a small library, a retriever over it, a team that follows a script."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from jade.backbone.scripted import ScriptedBackbone
from jade.config import Config, TeamConfig
from jade.evaluate.methods import Method
from jade.reward.metrics import normalise
from jade.team.crew import Cast, Crew
from jade.team.team import build_team
from jade.types import Passage, Prompt, Question

LIBRARY = (
    Passage("1", "Emma", "Emma is a novel by Jane Austen, published in 1815."),
    Passage("2", "Jane Austen", "Jane Austen was born in Steventon in Hampshire."),
    Passage("3", "Persuasion", "Persuasion is a novel by Jane Austen, published in 1817."),
    Passage("4", "Steventon", "Steventon is a village with few inhabitants."),
    Passage("5", "Hampshire", "Hampshire is a county on the south coast of England."),
    Passage("6", "Rain", "Rain is water that falls from clouds."),
)
ONE_HOP = Question("one", "Who wrote Emma?", ("Jane Austen",), "nq", {"supporting_titles": ["Emma"]})
TWO_HOPS = Question(
    "two",
    "Where was the author of Emma born?",
    ("Steventon",),
    "musique",
    {
        "supporting_titles": ["Emma", "Jane Austen"],
        "decomposition": [
            {"question": "Who wrote the novel Emma?", "answer": "Jane Austen"},
            {"question": "Where was #1 born?", "answer": "Steventon"},
        ],
    },
)
COMPARISON = Question(
    "compare",
    "Are Emma and Persuasion by one author?",
    ("yes",),
    "2wiki",
    {"supporting_titles": ["Emma", "Persuasion"]},
)


class Shelf:
    """Ranks the library by the number of words that query and passage share."""

    def __init__(self, passages: Sequence[Passage] = LIBRARY, fails: bool = False) -> None:
        self._passages = passages
        self._fails = fails

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        if self._fails:
            raise OSError("the shelf is locked")
        return [self._best(set(normalise(query).split()), k) for query in queries]

    def _best(self, words: set[str], k: int) -> list[Passage]:
        shared = [len(words & set(normalise(f"{p.title} {p.text}").split())) for p in self._passages]
        ranked = sorted(range(len(shared)), key=lambda place: -shared[place])
        return [self._passages[place] for place in ranked if shared[place]][:k]

    async def close(self) -> None:
        return None


def make_crew(script: Callable[[Prompt], str], *, k: int = 2, retriever: Shelf | None = None, **budget: Any) -> Crew:
    config = Config.model_validate({"budget": budget})
    backbone = ScriptedBackbone(script)
    return Crew(build_team(TeamConfig()), Cast(backbone), retriever or Shelf(), config.budget, config.sampling, k)


def means_of(script: Callable[[Prompt], str], **crew: Any) -> Callable[..., AbstractAsyncContextManager[Crew]]:
    """A stand-in for `open_means` that hands out a scripted crew."""

    @asynccontextmanager
    async def open_scripted(config: Config, methods: Sequence[Method]) -> AsyncIterator[Crew]:
        yield make_crew(script, **crew)

    return open_scripted


def write_questions(path: Path, questions: Sequence[Question]) -> Path:
    rows = [
        {"id": q.id, "question": q.text, "golden_answers": list(q.answers), "metadata": dict(q.metadata)}
        for q in questions
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path

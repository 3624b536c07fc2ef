"""Builders for teams at work: scripts by role, libraries of a few passages, and backbones that misbehave."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jade.backbone.base import Backbone
from jade.backbone.scripted import ScriptedBackbone
from jade.config import BudgetConfig, TeamConfig
from jade.engine.rollout import Job
from jade.engine.seeds import derive_seed
from jade.errors import BackboneFailed, RetrievalFailed
from jade.retrieval.base import Retriever
from jade.team.crew import Cast, Crew
from jade.team.team import Team, build_team
from jade.types import Generation, Passage, Prompt, Question, Sampling, Trace

Line = str | Callable[[Prompt], str]

ROOT_QUESTION = Question("q", "Where was the author of Emma born?", ("Hampshire",))
AMPLE: dict[str, Any] = {"rounds": 10_000, "calls": 10_000, "retrievals": 10_000, "tokens": 10**9}
"""Budgets that are never spent."""
EMMA = Passage("1", "Emma", "Emma is a novel by Jane Austen.", "emma.md:0")
AUSTEN = Passage("2", "Jane Austen", "Jane Austen was born in Hampshire.", "austen.md:0")
ROMANCE = Passage("3", "Romance", "A kind of story.", "romance.md:0")


def asked(prompt: Prompt) -> str:
    """The question a prompt ends in."""
    return prompt.user.rpartition("Question: ")[2]


def plan(codes: str) -> str:
    return f"<workflow>{codes}</workflow>"


def split(*questions: str) -> str:
    return "".join(f"<q{number}>{text}</q{number}>" for number, text in enumerate(questions, start=1))


def answer(text: str) -> str:
    return f"<answer>{text}</answer>"


def by_question(lines: Mapping[str, str], otherwise: str) -> Callable[[Prompt], str]:
    return lambda prompt: lines.get(asked(prompt), otherwise)


DEFAULT_LINES: Mapping[str, Line] = {
    "P": plan("R,AG"),
    "QDS": split("Who wrote Emma?", "Where was #1 born?"),
    "QDP": split("Who wrote Emma?", "Who was born in Hampshire?"),
    "QR": lambda prompt: f"<query>{asked(prompt)}</query>",
    "DS": "<id>Document0</id>",
    "AG": by_question({"Who wrote Emma?": answer("Jane Austen")}, answer("Hampshire")),
    "AS": answer("Hampshire"),
}


@dataclass
class Script:
    """What each role says, and every prompt that was put to it."""

    lines: Mapping[str, Line]
    prompts: list[Prompt] = field(default_factory=list)

    def __call__(self, prompt: Prompt) -> str:
        self.prompts.append(prompt)
        line = self.lines[prompt.role]
        return line if isinstance(line, str) else line(prompt)

    def put_to(self, role: str) -> list[str]:
        return [prompt.user for prompt in self.prompts if prompt.role == role]


def script(**lines: Line) -> Script:
    return Script({**DEFAULT_LINES, **lines})


class Meeting(ScriptedBackbone):
    """No answer is written before so many are being written at the same time."""

    def __init__(self, voice: Script, num_together: int) -> None:
        super().__init__(voice)
        self._everyone_is_here = asyncio.Barrier(num_together)

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        if prompt.role == "AG":
            await self._everyone_is_here.wait()
        return await super().generate(prompt, sampling)


@dataclass
class Library:
    """A few passages, found whatever is asked; it remembers the queries."""

    passages: Sequence[Passage] = (EMMA, AUSTEN, ROMANCE)
    delay_seconds: float = 0.0
    queries: list[str] = field(default_factory=list)

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        self.queries += queries
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        return [list(self.passages[:k]) for _ in queries]

    async def close(self) -> None:
        return None


class BurntLibrary:
    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        raise RetrievalFailed("the library has burnt down")

    async def close(self) -> None:
        return None


def crew(
    voice: Script | Backbone | None = None,
    *,
    team: TeamConfig | Team | None = None,
    library: Retriever | None = None,
    k: int = 3,
    **budget: Any,
) -> Crew:
    backbone = ScriptedBackbone(voice or script()) if voice is None or isinstance(voice, Script) else voice
    built = team if isinstance(team, Team) else build_team(team or TeamConfig())
    return Crew(built, Cast(backbone), library or Library(), BudgetConfig(**budget), k=k)


def roles(trace: Trace, node: str | None = None) -> list[str]:
    """The codes of a trace's steps, in order; of one node, if it is named."""
    return [str(step.role) for step in trace.steps if node in (None, step.node)]


def timeless(trace: Trace) -> Trace:
    """The trace without what the clock wrote into it."""
    steps = tuple(replace(step, seconds=0.0) for step in trace.steps)
    return replace(trace, steps=steps, usage=replace(trace.usage, seconds=0.0))


class Erratic:
    """A backbone whose output follows from its seed: mostly usable, now and then broken, failing or cancelled."""

    def __init__(self, salt: int, broken_share: float = 0.25) -> None:
        self._salt = salt
        self._broken_share = broken_share

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        draw = random.Random(f"{self._salt}/{sampling.seed}")
        await asyncio.sleep(0)
        if draw.random() < self._broken_share:
            return self._misbehave(draw, prompt)
        text = draw.choice(_usable_lines(prompt))
        ids = tuple(text.encode())
        logprobs = tuple(-draw.random() for _ in ids)
        return Generation(text, (1, 2, 3), ids, logprobs, prompt_tokens=3, completion_tokens=len(ids))

    def _misbehave(self, draw: random.Random, prompt: Prompt) -> Generation:
        errors = (BackboneFailed("no server"), ValueError("odd: value"), TimeoutError(), asyncio.CancelledError())
        kind = draw.randrange(8)
        if kind < len(errors):
            raise errors[kind]
        return Generation(draw.choice(["", "junk", "<think>", plan("QDS,AG"), split("one"), answer(""), "\ud800<id>"]))

    async def close(self) -> None:
        return None


class Paced(Erratic):
    """The same output at another pace: how long each call takes follows from a seed of its own."""

    def __init__(self, salt: int, broken_share: float, pace: int) -> None:
        super().__init__(salt, broken_share)
        self._pace = random.Random(pace)

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        for _ in range(self._pace.randrange(12)):
            await asyncio.sleep(0)
        return await super().generate(prompt, sampling)


def _usable_lines(prompt: Prompt) -> Sequence[str]:
    plans = ("QDS", "QDP", "AG", "R,AG", "R,DS,AG", "QR,R,AG", "QR,R,DS,AG")
    lines: Mapping[str, Sequence[str]] = {
        "P": [plan(codes) for codes in plans],
        "QDS": [split("Who?", "Where was #1?"), split("a", "b", "c", "d #3", "e", "f")],
        "QDP": [split("Who?", "When?"), split("x", "y", "z")],
        "QR": ["<query>emma</query>", "<query>burn</query>"],
        "DS": ["<id></id>", "<id>Document0</id>", "<id>Document1,Document0</id>"],
        "AG": [answer("Jane Austen"), answer("yes"), answer("#1")],
        "AS": [answer("Hampshire"), answer("no")],
    }
    return lines[prompt.role]


class ErraticLibrary(Library):
    """Searches that fail by what is asked for."""

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        if "burn" in queries[0] or queries[0].startswith("Where"):
            raise OSError(f"no shelf: {queries[0]}")
        return await super().search(queries, k)


def jobs_for(questions: Sequence[Question], seed: int, num_samples: int = 1) -> list[Job]:
    """`num_samples` jobs a question, the samples of one question next to each other."""
    return [
        Job(question, seed if num_samples == 1 else derive_seed(seed, sample))
        for question in questions
        for sample in range(num_samples)
    ]

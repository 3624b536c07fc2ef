"""Who they are: one row for each role and each tool.

A role is a row: its prompt file, what it sees, how its output is read, and what happens when it cannot be read.
Adding a role adds a row; nothing branches on a role's name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from jade.retrieval.base import Retriever
from jade.team.dialogue import SEARCHER, describe_dialogue, parse_move, salvage_move
from jade.team.parse import (
    parse_answer,
    parse_plan,
    parse_query,
    parse_selection,
    parse_subquestions,
    salvage_answer,
)
from jade.team.render import Describe, describe
from jade.types import (
    Action,
    Answer,
    Effort,
    Known,
    Malformed,
    Note,
    Observation,
    Passage,
    Query,
    Role,
    Selection,
)

RoleKind = Literal["plan", "split", "work", "answer", "summarise", "alone"]
"""Where a role stands: `alone` is one that works whole questions by itself and is part of no workflow."""
Parse = Callable[[str, Observation], Action | Malformed]
Fallback = Callable[[str, Observation], Action | None]

OBSERVABLE = frozenset({"known", "passages", "context", "notes", "legal", "effort"})
"""What of the working memory a role may be shown."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The working memory of one round: what has been produced for the node so far."""

    question: str
    known: tuple[Known, ...] = ()
    context: tuple[str, ...] = ()
    query: str | None = None
    passages: tuple[Passage, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    answer: str | None = None
    legal: tuple[str, ...] = ()
    effort: Effort | None = None

    def after(self, code: str, action: Action | None) -> Memory:
        """The memory once a role's action has been taken in."""
        match action:
            case Query(text):
                return replace(self, query=text)
            case Selection(indices):
                shown = self.passages
                return replace(self, passages=tuple(shown[index] for index in indices if 0 <= index < len(shown)))
            case Answer(text):
                return replace(self, answer=text or None)
            case Note(text):
                return replace(self, notes=(*self.notes, (code, text)))
            case _:
                return self


@dataclass(frozen=True)
class RoleSpec:
    """A role with weights: a prompt, a view, a parser, a fallback."""

    code: str
    title: str
    kind: RoleKind
    prompt: str
    parse: Parse
    fallback: Fallback
    sees: frozenset[str] = frozenset()
    """Fields of the working memory it is shown, beside the question."""
    after: frozenset[str] = frozenset()
    """Codes that must stand before it in a workflow."""
    max_tokens: int = 64
    parallel: bool = False
    """For a splitting role: whether its sub-questions are independent of each other."""
    describe: Describe = describe
    """How what it sees is written down."""

    def view(self, memory: Memory) -> Observation:
        return Observation(memory.question, **{name: getattr(memory, name) for name in self.sees})


@dataclass(frozen=True)
class ToolSpec:
    """A tool: no weights, never trained. It brings passages or a note."""

    code: str
    title: str
    run: Callable[[Memory, Retriever, int], Awaitable[Sequence[Passage] | Note]]
    after: frozenset[str] = frozenset()
    searches: bool = False
    """Whether a use counts as a retrieval, in the budget and in the reward."""


Member = RoleSpec | ToolSpec


async def retrieve(memory: Memory, retriever: Retriever, k: int) -> Sequence[Passage]:
    """Search for the rewritten query, or for the question as it stands."""
    (passages,) = await retriever.search([memory.query or memory.question], k)
    return passages


def plain_plan(text: str, seen: Observation) -> None:
    """A plan or a decomposition that cannot be read: the engine runs the team's plain workflow instead."""
    return None


def ask_as_is(text: str, seen: Observation) -> Query:
    return Query(seen.question)


def keep_all(text: str, seen: Observation) -> Selection:
    return Selection(tuple(range(len(seen.passages))))


def answer_anyway(text: str, seen: Observation) -> Answer:
    return Answer(salvage_answer(text))


def _sees(*fields: str) -> frozenset[str]:
    return frozenset(fields)


MEMBERS: tuple[Member, ...] = (
    RoleSpec(
        Role.PLANNER,
        "planner",
        "plan",
        "planner.md",
        parse_plan,
        plain_plan,
        sees=_sees("known", "legal", "effort"),
        max_tokens=32,
    ),
    RoleSpec(Role.SERIAL, "serial decomposer", "split", "serial.md", parse_subquestions, plain_plan, max_tokens=160),
    RoleSpec(
        Role.PARALLEL,
        "parallel decomposer",
        "split",
        "parallel.md",
        parse_subquestions,
        plain_plan,
        max_tokens=160,
        parallel=True,
    ),
    RoleSpec(
        Role.REWRITER, "query rewriter", "work", "rewriter.md", parse_query, ask_as_is, sees=_sees("known", "context")
    ),
    ToolSpec(Role.RETRIEVAL, "retrieval", retrieve, searches=True),
    RoleSpec(
        Role.SELECTOR,
        "document selector",
        "work",
        "selector.md",
        parse_selection,
        keep_all,
        sees=_sees("passages"),
        after=frozenset({Role.RETRIEVAL.value}),
        max_tokens=48,
    ),
    RoleSpec(
        Role.ANSWERER,
        "answer generator",
        "answer",
        "answerer.md",
        parse_answer,
        answer_anyway,
        sees=_sees("passages", "notes"),
        max_tokens=80,
    ),
    RoleSpec(
        Role.SUMMARISER,
        "answer summariser",
        "summarise",
        "summariser.md",
        parse_answer,
        answer_anyway,
        sees=_sees("known"),
        max_tokens=80,
    ),
    RoleSpec(
        SEARCHER,
        "searcher",
        "alone",
        "searcher.md",
        parse_move,
        salvage_move,
        sees=_sees("context", "passages", "notes", "effort"),
        max_tokens=160,
        describe=describe_dialogue,
    ),
)

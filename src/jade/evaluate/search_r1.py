"""Search-R1: one policy that searches and answers within one context, over the same backbone and retriever.

Each turn is one step of role S1. The policy may think aloud; its first `<search>` or `<answer>` counts and what
follows it is cut off. What a search brings is appended as `<information>`; the last turn has to answer. The result
is an ordinary trace, so that scoring, reports and learning treat this baseline like any team.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from jade.engine.cite import cite, is_supported
from jade.engine.events import silent
from jade.engine.solve import ROOT, trace_id
from jade.engine.stage import Stage, describe_error
from jade.team.crew import Crew
from jade.team.parse import MAX_ANSWER_WORDS, salvage_answer, visible
from jade.team.render import MAX_PASSAGE_WORDS, quote
from jade.team.roles import Memory, RoleSpec, ToolSpec
from jade.team.team import Team
from jade.types import Answer, Malformed, Node, Observation, Passage, Prompt, Query, Question, Role, Step, Trace

SEARCHER = "S1"
PROMPT_FILE = "searcher.md"
LAST_TURN = ("remark", "no further search is possible: write the answer")
UNREADABLE = ("remark", "that was neither a search nor an answer: write one of them")
_MOVE = re.compile(r"<(search|answer)>(.*?)</\1>", re.DOTALL)
_OUR_TAG = re.compile(r"<(?=/?(?:search|information|answer)>)")


async def solve_in_one_context(question: Question, crew: Crew, *, system: str, turns: int, seed: int = 0) -> Trace:
    """Work a question with at most `turns` searches. Always returns a trace; only cancellation escapes."""
    dialogue = _Dialogue(question, crew, system, turns, seed)
    try:
        answer, error = await dialogue.run(), None
    except Exception as failure:
        answer, error = "", describe_error(failure)
    return dialogue.trace(answer, error)


def read_searcher_prompt(folder: Path | None = None) -> str:
    """The searcher's system text: the user's own where their folder has one."""
    own = folder / PROMPT_FILE if folder else None
    if own and own.is_file():
        return own.read_text(encoding="utf-8").strip()
    return files("jade.evaluate").joinpath("prompts", PROMPT_FILE).read_text(encoding="utf-8").strip()


def parse_move(text: str, seen: Observation) -> Query | Answer | Malformed:
    """The first search or answer in an output."""
    found = _MOVE.search(visible(text))
    if not found:
        return Malformed("neither <search>…</search> nor <answer>…</answer>")
    kind, body = found[1], " ".join(found[2].split())
    if not body:
        return Malformed(f"nothing inside <{kind}>")
    if kind == "search":
        return Malformed("a search where none is left") if LAST_TURN in seen.notes else Query(body)
    num_words = len(body.split())
    return Answer(body) if num_words <= MAX_ANSWER_WORDS else Malformed(f"an answer of {num_words} words")


def salvage_move(text: str, seen: Observation) -> Answer | None:
    """On the last turn anything said is better than nothing; before it the policy gets another turn."""
    said = salvage_answer(text) if LAST_TURN in seen.notes else ""
    return Answer(said) if said else None


SPEC = RoleSpec(
    SEARCHER,
    "searcher",
    "work",
    PROMPT_FILE,
    parse_move,
    salvage_move,
    sees=frozenset({"passages", "notes"}),
    max_tokens=160,
)


class OneContext(Team):
    """A team of one, whose prompt is everything that happened so far."""

    def render(self, code: str, seen: Observation) -> Prompt:
        return Prompt(code, self.prompts[code], describe_context(seen))


def describe_context(seen: Observation) -> str:
    """The context so far: the question, then every search with what it brought, in order."""
    return "\n".join(_context_lines(seen))


def _context_lines(seen: Observation) -> Iterator[str]:
    yield f"Question: {quote(seen.question)}"
    passages = iter(seen.passages)
    for kind, text in seen.notes:
        if kind == "search":
            yield f"<search>{quote(text)}</search>"
        elif kind == "found":
            shown = [_shown(next(passages)) for _ in range(int(text))]
            yield "\n".join(["<information>", *(shown or ["nothing"]), "</information>"])
        else:
            yield f"({text})"


def _shown(passage: Passage) -> str:
    """A passage on one line, in which none of our own tags can begin."""
    title = f"{quote(passage.title)}: " if passage.title else ""
    return _OUR_TAG.sub("< ", f"{title}{quote(passage.text, MAX_PASSAGE_WORDS)}")


class _Dialogue:
    """One question in hand."""

    def __init__(self, question: Question, crew: Crew, system: str, turns: int, seed: int) -> None:
        team = OneContext({**crew.team.members, SEARCHER: SPEC}, {**crew.team.prompts, SEARCHER: system})
        self.question = question
        self.budget = crew.budget
        self.searches = min(turns, crew.budget.retrievals)
        self.turns = turns
        self.seed = seed
        self.stage = Stage(question, replace(crew, team=team), seed, silent)
        self.node = Node(ROOT, None, question.text, question.text, workflow=SEARCHER)
        self.memory = Memory(question.text)
        tool = crew.team.members[Role.RETRIEVAL]
        assert isinstance(tool, ToolSpec), "retrieval is a tool"
        self.tool = tool

    async def run(self) -> str:
        while (number := await self.stage.ledger.open_round()) is not None:
            last = self._is_last(number)
            if last:
                self._note(LAST_TURN)
            step = await self.stage.act(SPEC, self.node, number, self.memory)
            if isinstance(step.applied, Answer):
                return step.applied.text
            if last:
                break
            if isinstance(step.applied, Query):
                await self._search(step.applied.text, number)
            elif isinstance(step.action, Malformed):
                self._note(UNREADABLE)
        return ""

    def _is_last(self, number: int) -> bool:
        return (
            number > self.turns or number >= self.budget.rounds or self.stage.ledger.account.retrievals >= self.searches
        )

    async def _search(self, query: str, number: int) -> None:
        step = await self.stage.use(self.tool, self.node, number, replace(self.memory, query=query))
        self._note(("search", query))
        self._note(("found", str(len(step.found))))
        self.memory = replace(self.memory, passages=(*self.memory.passages, *step.found))

    def _note(self, note: tuple[str, str]) -> None:
        self.memory = replace(self.memory, notes=(*self.memory.notes, note))

    def trace(self, answer: str, error: str | None) -> Trace:
        steps, account = tuple(self.stage.taken), self.stage.ledger.account
        nodes = (replace(self.node, answer=answer or None),)
        citations = cite(nodes, [(ROOT, self.memory.passages)] if answer else [])
        return Trace(
            id=trace_id(self.question, self.seed),
            question=self.question,
            nodes=nodes,
            steps=steps,
            answer=answer,
            citations=citations,
            usage=account.usage(),
            stopped=account.stopped,
            error=error or (None if answer else _last_error(steps)),
            seed=self.seed,
            supported=is_supported(answer, citations),
        )


def _last_error(steps: tuple[Step, ...]) -> str | None:
    return next((step.error for step in reversed(steps) if step.error), None)

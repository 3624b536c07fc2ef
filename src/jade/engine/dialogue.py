"""Search-R1: one policy works a question alone, by searching and answering within one context.

Each turn is a round and one step of the role that works alone; each search is a step of retrieval, and what it brings
goes into the context of the turns after it. The last turn has to answer. Malformed turns are penalised like everyone's,
and the policy is told. The result is an ordinary trace: rewards, transitions and reports see a team of one.
"""

from __future__ import annotations

from dataclasses import replace

from jade.engine.case import Case
from jade.engine.events import Listener, NodeOpened, NodeSolved
from jade.engine.stage import Stage
from jade.team.crew import Crew
from jade.team.dialogue import FOUND, LAST_TURN, SEARCHED, UNREADABLE
from jade.team.roles import Memory, RoleSpec, ToolSpec
from jade.types import Answer, Malformed, Node, Query, Role, Trace


class Dialogue:
    """One question in hand."""

    def __init__(self, case: Case, crew: Crew, policy: RoleSpec, listen: Listener) -> None:
        tool = crew.team.members[Role.RETRIEVAL]
        assert isinstance(tool, ToolSpec), "retrieval is a tool"
        self.case = case
        self.policy = policy
        self.tool = tool
        self.budget = crew.budget
        self.stage = Stage(case.question, crew, case.seed, listen)
        self.listen = listen
        self.node = replace(case.root, workflow=policy.code)
        self.memory = Memory(case.question.text, context=case.question.context, effort=case.effort)

    async def run(self) -> Trace:
        self.listen(NodeOpened(self.node))
        answer = await self._work()
        node = replace(self.node, answer=answer or None)
        self.listen(NodeSolved(node))
        return self._trace(node, answer)

    def abandoned(self, error: str) -> Trace:
        """The record of a question that could not be worked to its end: what was done, and why no more."""
        return self._trace(self.node, "", error)

    async def _work(self) -> str:
        while (number := await self.stage.ledger.open_round()) is not None:
            last = self._is_last(number)
            if last:
                self._note(LAST_TURN)
            step = await self.stage.act(self.policy, self.node, number, self.memory)
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
        """Whether this turn is the last that any budget allows, so that the policy is told to answer in time."""
        turns, ledger = self.budget.search_turns, self.stage.ledger
        searches = min(turns, self.budget.retrievals)
        only_call_left = ledger.left["calls"] == 1
        return number > turns or number >= self.budget.rounds or ledger.account.retrievals >= searches or only_call_left

    async def _search(self, query: str, number: int) -> None:
        step = await self.stage.use(self.tool, self.node, number, replace(self.memory, query=query))
        self._note((SEARCHED, query))
        self._note((FOUND, str(len(step.found))))
        self.memory = replace(self.memory, passages=(*self.memory.passages, *step.found))

    def _note(self, note: tuple[str, str]) -> None:
        self.memory = replace(self.memory, notes=(*self.memory.notes, note))

    def _trace(self, node: Node, answer: str, error: str | None = None) -> Trace:
        evidence = ((node.id, self.memory.passages),) if answer and self.memory.passages else ()
        return self.case.close(self.stage.ledger.account, (node,), tuple(self.stage.taken), answer, evidence, error)

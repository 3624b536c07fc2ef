"""Algorithm 1: work one question into a trace.

A round takes one unsolved node: the planner writes its workflow, and what it wrote is what runs. A decomposition
opens children, serial ones in order and each with the answers before it, parallel ones at the same time; a solving
workflow runs its modules and fills the node's answer. When all is solved, or a budget is spent, the summariser
reads the trace and writes the answer; a question solved in one round needs no summary. A team that leaves its
questions to one policy works them by `dialogue` instead.

A bad step is data, not a crash (see `stage`), so every question ends as a trace.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jade.engine.budget import Ledger
from jade.engine.case import Case
from jade.engine.cite import Evidence
from jade.engine.dialogue import Dialogue
from jade.engine.events import Listener, NodeOpened, NodeSolved, silent
from jade.engine.stage import Stage, describe_error
from jade.team.crew import Crew
from jade.team.roles import Memory, ToolSpec
from jade.team.team import Choices
from jade.types import Effort, Known, Node, Passage, Question, Step, SubQuestions, Trace, Workflow

_REFERENCE = re.compile(r"#([0-9]{1,2})")


async def solve(
    question: Question, crew: Crew, *, seed: int = 0, effort: Effort | None = None, listen: Listener = silent
) -> Trace:
    """Work a question. Always returns a trace; only cancellation escapes."""
    case, alone = Case(question, seed, effort), crew.team.alone
    work = Dialogue(case, crew, alone, listen) if alone else _Work(case, crew, listen)
    try:
        return await work.run()
    except Exception as error:
        return work.abandoned(describe_error(error))


@dataclass(frozen=True, slots=True)
class _Solved:
    """A subtree, finished: its nodes (the subtree's root first), its steps, and what its root's answer rests on."""

    nodes: tuple[Node, ...]
    steps: tuple[Step, ...]
    evidence: tuple[Evidence, ...] = ()

    @property
    def root(self) -> Node:
        return self.nodes[0]

    def known(self) -> tuple[Known, ...]:
        return (Known(self.root.question, self.root.answer),) if self.root.answer else ()


class _Work:
    """One question in hand."""

    def __init__(self, case: Case, crew: Crew, listen: Listener) -> None:
        self.case = case
        self.question = case.question
        self.budget = crew.budget
        self.team = crew.team
        self.listen = listen
        self.stage = Stage(case.question, crew, case.seed, listen)
        self.account = self.stage.ledger.account
        self.nodes = {case.root.id: case.root}

    async def run(self) -> Trace:
        solved = await self._work_node(self.case.root, (), 0, self.stage.ledger)
        answer, steps = solved.root.answer or "", _in_order(solved.steps)
        if solved.root.children or not answer:
            answer, summary = await self._summarise(solved)
            steps = (*steps, *summary)
        nodes = (replace(solved.root, answer=answer or None), *solved.nodes[1:])
        return self.case.close(self.account, nodes, steps, answer, solved.evidence)

    def abandoned(self, error: str) -> Trace:
        """The record of a question that could not be worked to its end: what was done, and why no more."""
        return self.case.close(self.account, tuple(self.nodes.values()), tuple(self.stage.taken), "", error=error)

    async def _work_node(self, node: Node, known: tuple[Known, ...], depth: int, ledger: Ledger) -> _Solved:
        """One round for one node, and the rounds of the children it opens."""
        self.nodes[node.id] = node
        self.stage.ledgers[node.id] = ledger
        self.listen(NodeOpened(node))
        number = await ledger.open_round()
        if number is None:
            return self._close(node, ())
        legal = self.team.legal(child=depth > 0)
        memory = Memory(node.question, known, self.question.context, legal=legal.codes, effort=self.case.effort)
        plan, steps = await self._plan(node, number, memory, legal)
        if self.team.grammar.splits(plan):
            children, split_step = await self._split(plan.modules[0], node, number, memory, depth)
            steps = (*steps, *split_step)
            if children:
                return await self._work_children(node, plan, children, steps, known, depth)
            plan = self.team.plain_plan(legal.plans)
        return await self._run_workflow(plan, node, number, memory, steps)

    async def _plan(self, node: Node, number: int, memory: Memory, legal: Choices) -> tuple[Workflow, tuple[Step, ...]]:
        """What the planner wrote; without a choice there is nothing to ask."""
        if len(legal.plans) == 1:
            return legal.plans[0], ()
        step = await self.stage.act(self.team.planner, node, number, memory)
        if isinstance(step.applied, Workflow) and str(step.applied) in legal.codes:
            return step.applied, (step,)
        return self.team.plain_plan(legal.plans), (step,)

    async def _split(
        self, code: str, node: Node, number: int, memory: Memory, depth: int
    ) -> tuple[tuple[str, ...], tuple[Step, ...]]:
        """What the decomposer asks. The planner was not told how deep it stands, so a budget refuses, not a parser."""
        if depth >= self.budget.depth:
            self.stage.ledger.refuse("depth")
            return (), ()
        if not await self.stage.ledger_of(node).may_call():
            return (), ()
        step = await self.stage.act(self.team.role(code), node, number, memory)
        if not isinstance(step.applied, SubQuestions):
            return (), (step,)
        if len(step.applied.questions) > self.budget.children:
            self.stage.ledger.refuse("children")
        return step.applied.questions[: self.budget.children], (step,)

    async def _work_children(
        self,
        parent: Node,
        plan: Workflow,
        written: Sequence[str],
        steps: tuple[Step, ...],
        known: tuple[Known, ...],
        depth: int,
    ) -> _Solved:
        ids = tuple(f"{parent.id}.{number}" for number in range(1, len(written) + 1))
        opened = [Node(id_, parent.id, text, text) for id_, text in zip(ids, written, strict=True)]
        parallel = self.team.role(plan.modules[0]).parallel
        work = self._work_at_once if parallel else self._work_in_order
        solved = await work(opened, known, depth + 1, self.stage.ledger_of(parent))
        answer = _answer_of(solved, joined=parallel)
        return self._close(replace(parent, children=ids, workflow=str(plan), answer=answer), steps, solved)

    async def _work_at_once(
        self, opened: Sequence[Node], known: tuple[Known, ...], depth: int, ledger: Ledger
    ) -> list[_Solved]:
        async def work_branch(node: Node, share: Ledger) -> _Solved:
            try:
                return await self._work_node(node, known, depth, share)
            finally:  # also of a branch that raised: the others may be waiting for its share
                share.end()

        shares = ledger.share(len(opened))
        async with asyncio.TaskGroup() as group:
            branches = zip(opened, shares, strict=True)
            tasks = [group.create_task(work_branch(node, share)) for node, share in branches]
        return [task.result() for task in tasks]

    async def _work_in_order(
        self, opened: Sequence[Node], known: tuple[Known, ...], depth: int, ledger: Ledger
    ) -> list[_Solved]:
        solved: list[_Solved] = []
        for node in opened:
            resolved = replace(node, question=fill_references(node.written, [s.root.answer for s in solved]))
            solved.append(await self._work_node(resolved, known, depth, ledger))
            # The rewriter may need an answer that the question does not refer to by its number.
            known = (*known, *solved[-1].known())
        return solved

    async def _run_workflow(
        self, plan: Workflow, node: Node, number: int, memory: Memory, steps: tuple[Step, ...]
    ) -> _Solved:
        taken = list(steps)
        for code in plan.modules:
            # Without a call left nobody could read what a tool would bring, so tools stop here too.
            if not await self.stage.ledger_of(node).may_call():
                break
            member = self.team.members[code]
            if isinstance(member, ToolSpec):
                step = await self.stage.use(member, node, number, memory)
                memory = _with_results(memory, member, step)
            else:
                step = await self.stage.act(member, node, number, memory)
                memory = memory.after(code, step.applied)
            taken.append(step)
        done = replace(node, answer=memory.answer, workflow=str(plan))
        return self._close(done, tuple(taken), evidence=memory.passages)

    def _close(
        self,
        node: Node,
        steps: tuple[Step, ...],
        children: Sequence[_Solved] = (),
        evidence: tuple[Passage, ...] = (),
    ) -> _Solved:
        """The end of a node's rounds, solved or not; every node that was opened is closed."""
        self.nodes[node.id] = node
        self.listen(NodeSolved(node))
        own = ((node.id, evidence),) if node.answer and evidence else ()
        return _Solved(
            nodes=(node, *(each for child in children for each in child.nodes)),
            steps=(*steps, *(step for child in children for step in child.steps)),
            evidence=(*own, *(pair for child in children for pair in child.evidence)),
        )

    async def _summarise(self, solved: _Solved) -> tuple[str, tuple[Step, ...]]:
        """The closing call. It is granted whatever has been spent, except when time itself is up."""
        known = tuple(Known(n.question, n.answer) for n in solved.nodes[1:] if n.answer)
        last_answer = known[-1].answer if known else ""
        if not self.stage.ledger.has_time():
            return last_answer, ()
        memory = Memory(self.question.text, known, self.question.context)
        step = await self.stage.act(self.team.summariser, solved.root, self.account.rounds, memory)
        return memory.after(step.role, step.applied).answer or last_answer, (step,)


def fill_references(written: str, answers: Sequence[str | None]) -> str:
    """`#1` becomes the first sibling's answer. A reference to what has no answer stays as it is."""

    def answer_for(match: re.Match[str]) -> str:
        index = int(match[1]) - 1
        answer = answers[index] if 0 <= index < len(answers) else None
        return answer or match[0]

    return _REFERENCE.sub(answer_for, written)


def _in_order(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Rounds numbered in the order of the tree; parallel ones were opened in the order of the clock."""
    numbers = {node: number for number, node in enumerate(dict.fromkeys(step.node for step in steps), start=1)}
    return tuple(
        step if step.round == numbers[step.node] else replace(step, round=numbers[step.node]) for step in steps
    )


def _with_results(memory: Memory, tool: ToolSpec, step: Step) -> Memory:
    if step.applied is not None:
        return memory.after(tool.code, step.applied)
    return replace(memory, passages=(*memory.passages, *step.found))


def _answer_of(solved: Sequence[_Solved], *, joined: bool) -> str | None:
    """A decomposed node's own answer: all its parts' when they are independent, else the last one's."""
    if not joined:
        return solved[-1].root.answer
    return "; ".join(child.root.answer for child in solved if child.root.answer) or None

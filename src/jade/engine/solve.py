"""Algorithm 1: work one question into a trace.

A round takes one unsolved node: the planner writes its workflow, and what it wrote is what runs. A decomposition
opens children, serial ones in order and each with the answers before it, parallel ones at the same time; a solving
workflow runs its modules and fills the node's answer. When all is solved, or a budget is spent, the summariser
reads the trace and writes the answer; a question solved in one round needs no summary.

A bad step is data, not a crash: output that cannot be read and exceptions alike are recorded on the step, the
stated fallback runs, and the question still ends as a trace.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jade.engine.budget import Ledger
from jade.engine.cite import cite, is_supported
from jade.engine.events import Listener, NodeOpened, NodeSolved, StepBegan, StepEnded, silent
from jade.engine.seeds import derive_seed
from jade.team.crew import Crew
from jade.team.roles import Memory, RoleSpec, ToolSpec
from jade.team.workflow import print_workflow, read_workflow
from jade.types import (
    Effort,
    Generation,
    Known,
    Malformed,
    Node,
    Note,
    Observation,
    Passage,
    Question,
    Sampling,
    Step,
    SubQuestions,
    Trace,
    Workflow,
)

ROOT = "0"
_REFERENCE = re.compile(r"#([0-9]{1,2})")


async def solve(
    question: Question, crew: Crew, *, seed: int = 0, effort: Effort | None = None, listen: Listener = silent
) -> Trace:
    """Work a question. Always returns a trace; only cancellation escapes."""
    work = _Work(question, crew, seed, effort, listen)
    try:
        return await work.run()
    except Exception as error:
        return Trace(
            id=trace_id(question, seed),
            question=question,
            nodes=(Node(ROOT, None, question.text, question.text),),
            steps=tuple(work.taken),
            answer="",
            usage=work.ledger.usage(),
            error=f"{type(error).__name__}: {error}",
            seed=seed,
            effort=effort,
        )


def trace_id(question: Question, seed: int) -> str:
    return f"{question.id}@{seed}"


@dataclass(frozen=True, slots=True)
class _Solved:
    """A subtree, finished: its nodes (the subtree's root first), its steps, and what its root's answer rests on."""

    nodes: tuple[Node, ...]
    steps: tuple[Step, ...]
    evidence: tuple[tuple[str, tuple[Passage, ...]], ...] = ()

    @property
    def root(self) -> Node:
        return self.nodes[0]

    def known(self) -> tuple[Known, ...]:
        return (Known(self.root.question, self.root.answer),) if self.root.answer else ()


class _Work:
    """One question in hand."""

    def __init__(self, question: Question, crew: Crew, seed: int, effort: Effort | None, listen: Listener) -> None:
        self.question = question
        self.crew = crew
        self.team = crew.team
        self.seed = seed
        self.effort = effort
        self.listen = listen
        self.ledger = Ledger(crew.budget)
        self.taken: list[Step] = []
        self._num_steps: dict[str, int] = {}

    async def run(self) -> Trace:
        root = Node(ROOT, None, self.question.text, self.question.text)
        solved = await self._work_node(root, (), depth=0)
        answer, steps = solved.root.answer or "", solved.steps
        if solved.root.children or not answer:
            answer, summary = await self._summarise(solved)
            steps = (*steps, *summary)
        nodes = (replace(solved.root, answer=answer or None), *solved.nodes[1:])
        citations = cite(nodes, solved.evidence)
        return Trace(
            id=trace_id(self.question, self.seed),
            question=self.question,
            nodes=nodes,
            steps=steps,
            answer=answer,
            citations=citations,
            usage=self.ledger.usage(),
            stopped=self.ledger.stopped,
            error=None if answer else _last_error(steps),
            seed=self.seed,
            effort=self.effort,
            supported=is_supported(answer, citations),
        )

    async def _work_node(self, node: Node, known: tuple[Known, ...], depth: int) -> _Solved:
        """One round for one node, and the rounds of the children it opens."""
        self.listen(NodeOpened(node))
        number = self.ledger.open_round()
        if number is None:
            return _Solved((node,), ())
        legal = self.team.legal(child=depth > 0, may_split=depth < self.crew.budget.depth)
        memory = Memory(node.question, known, self.question.context, legal=tuple(map(str, legal)), effort=self.effort)
        plan, steps = await self._plan(node, number, memory, legal)
        if self.team.grammar.splits(plan):
            children, split_step = await self._split(plan.modules[0], node, number, memory)
            steps = (*steps, *split_step)
            if children:
                spec = self.team.role(plan.modules[0])
                return await self._work_children(replace(node, workflow=str(plan)), children, steps, known, depth, spec)
            plan = self.team.plain_plan(legal)
        return await self._run_workflow(plan, node, number, memory, steps)

    async def _plan(
        self, node: Node, number: int, memory: Memory, legal: Sequence[Workflow]
    ) -> tuple[Workflow, tuple[Step, ...]]:
        """What the planner wrote; without a choice there is nothing to ask."""
        if len(legal) == 1:
            return legal[0], ()
        step = await self._act(self.team.planner, node, number, memory)
        plan = step.applied if isinstance(step.applied, Workflow) else self.team.plain_plan(legal)
        return plan, (step,)

    async def _split(
        self, code: str, node: Node, number: int, memory: Memory
    ) -> tuple[tuple[str, ...], tuple[Step, ...]]:
        if not self.ledger.may_call():
            return (), ()
        step = await self._act(self.team.role(code), node, number, memory)
        if not isinstance(step.applied, SubQuestions):
            return (), (step,)
        if len(step.applied.questions) > self.crew.budget.children:
            self.ledger.refuse("children")
        return step.applied.questions[: self.crew.budget.children], (step,)

    async def _work_children(
        self,
        parent: Node,
        written: Sequence[str],
        steps: tuple[Step, ...],
        known: tuple[Known, ...],
        depth: int,
        spec: RoleSpec,
    ) -> _Solved:
        ids = tuple(f"{parent.id}.{number}" for number in range(1, len(written) + 1))
        opened = [Node(id_, parent.id, text, text) for id_, text in zip(ids, written, strict=True)]
        if spec.parallel:
            solved = list(await asyncio.gather(*(self._work_node(node, known, depth + 1) for node in opened)))
        else:
            solved = await self._work_in_order(opened, known, depth + 1)
        answer = _answer_of(solved, joined=spec.parallel)
        node = replace(parent, children=ids, answer=answer)
        self.listen(NodeSolved(node))
        return _Solved(
            nodes=(node, *(each for child in solved for each in child.nodes)),
            steps=(*steps, *(step for child in solved for step in child.steps)),
            evidence=tuple(pair for child in solved for pair in child.evidence),
        )

    async def _work_in_order(self, opened: Sequence[Node], known: tuple[Known, ...], depth: int) -> list[_Solved]:
        solved: list[_Solved] = []
        for node in opened:
            resolved = replace(node, question=fill_references(node.written, [s.root.answer for s in solved]))
            solved.append(await self._work_node(resolved, known, depth))
            known = (*known, *solved[-1].known())
        return solved

    async def _run_workflow(
        self, plan: Workflow, node: Node, number: int, memory: Memory, steps: tuple[Step, ...]
    ) -> _Solved:
        taken = list(steps)
        for code in plan.modules:
            member = self.team.members[code]
            if isinstance(member, ToolSpec):
                step = await self._use(member, node, number, memory)
                memory = _with_results(memory, member, step)
            elif self.ledger.may_call():
                step = await self._act(member, node, number, memory)
                memory = memory.after(code, step.applied)
            else:
                break
            taken.append(step)
        done = replace(node, answer=memory.answer, workflow=str(plan))
        self.listen(NodeSolved(done))
        evidence = ((node.id, memory.passages),) if memory.answer else ()
        return _Solved((done,), tuple(taken), evidence)

    async def _summarise(self, solved: _Solved) -> tuple[str, tuple[Step, ...]]:
        """The closing call. It is granted whatever has been spent, except when time itself is up."""
        known = tuple(Known(n.question, n.answer) for n in solved.nodes[1:] if n.answer)
        if self.ledger.seconds_left <= 0:
            return known[-1].answer if known else "", ()
        memory = Memory(self.question.text, known, self.question.context)
        step = await self._act(self.team.summariser, solved.root, self.ledger.rounds, memory)
        answer = memory.after(step.role, step.applied).answer
        return answer or (known[-1].answer if known else ""), (step,)

    async def _act(self, spec: RoleSpec, node: Node, number: int, memory: Memory) -> Step:
        """One call of one role."""
        seen = spec.view(memory)
        step = self._begin(spec.code, node, number, seen)
        started = time.perf_counter()
        text = ""
        try:
            generation = await self._generate(spec, step)
            text, step = generation.text, replace(step, generation=generation)
            step = replace(step, action=spec.parse(text, seen))
        except Exception as error:
            step = replace(step, error=self._explain(error))
        readable = None if isinstance(step.action, Malformed) else step.action
        applied = readable or self.team.fallback(spec.code, text, seen)
        return self._end(replace(step, applied=applied, seconds=time.perf_counter() - started))

    async def _generate(self, spec: RoleSpec, step: Step) -> Generation:
        sampling = Sampling(
            temperature=self.crew.sampling.temperature,
            top_p=self.crew.sampling.top_p,
            max_tokens=spec.max_tokens,
            seed=derive_seed(self.seed, self.question.id, step.id),
            choices=self._choices(spec, step.observation),
        )
        prompt = self.team.render(spec.code, step.observation)
        self.ledger.calls += 1
        async with asyncio.timeout(max(self.ledger.seconds_left, 0.0)):
            generation = await self.crew.cast.of(spec.code).generate(prompt, sampling)
        self.ledger.charge(generation)
        return generation

    def _choices(self, spec: RoleSpec, seen: Observation) -> tuple[str, ...]:
        """What constrained decoding allows: for a plan the legal ones, for everything else any text."""
        if not (spec.kind == "plan" and self.team.constrain_plans):
            return ()
        return tuple(print_workflow(read_workflow(codes)) for codes in seen.legal)

    async def _use(self, tool: ToolSpec, node: Node, number: int, memory: Memory) -> Step:
        """One use of one tool. A failing tool brings nothing, and the step says why."""
        step = self._begin(tool.code, node, number, Observation(memory.query or memory.question))
        if tool.searches and not self.ledger.may_search():
            return self._end(replace(step, error="the retrieval budget is spent"))
        self.ledger.retrievals += tool.searches
        started = time.perf_counter()
        try:
            async with asyncio.timeout(max(self.ledger.seconds_left, 0.0)):
                result = await tool.run(memory, self.crew.retriever, self.crew.k)
        except Exception as error:
            return self._end(replace(step, error=self._explain(error)))
        seconds = time.perf_counter() - started
        if isinstance(result, Note):
            return self._end(replace(step, applied=result, seconds=seconds))
        return self._end(replace(step, found=tuple(result), seconds=seconds))

    def _begin(self, code: str, node: Node, number: int, seen: Observation) -> Step:
        count = self._num_steps.get(node.id, 0)
        self._num_steps[node.id] = count + 1
        step = Step(f"{node.id}:{count}", node.id, number, code, seen)
        self.listen(StepBegan(step.id, node.id, code))
        return step

    def _end(self, step: Step) -> Step:
        self.taken.append(step)
        self.listen(StepEnded(step))
        return step

    def _explain(self, error: Exception) -> str:
        """The one place where an exception becomes part of the trace."""
        if isinstance(error, TimeoutError) and self.ledger.seconds_left <= 0:
            self.ledger.refuse("seconds")
            return "the time budget is spent"
        return f"{type(error).__name__}: {error}"


def fill_references(written: str, answers: Sequence[str | None]) -> str:
    """`#1` becomes the first sibling's answer. A reference to what has no answer stays as it is."""

    def answer_for(match: re.Match[str]) -> str:
        index = int(match[1]) - 1
        answer = answers[index] if 0 <= index < len(answers) else None
        return answer or match[0]

    return _REFERENCE.sub(answer_for, written)


def _with_results(memory: Memory, tool: ToolSpec, step: Step) -> Memory:
    if step.applied is not None:
        return memory.after(tool.code, step.applied)
    return replace(memory, passages=(*memory.passages, *step.found))


def _answer_of(solved: Sequence[_Solved], *, joined: bool) -> str | None:
    """A decomposed node's own answer: all its parts' when they are independent, else the last one's."""
    if not joined:
        return solved[-1].root.answer
    return "; ".join(child.root.answer for child in solved if child.root.answer) or None


def _last_error(steps: Sequence[Step]) -> str | None:
    return next((step.error for step in reversed(steps) if step.error), None)

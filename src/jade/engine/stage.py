"""Where things happen to a question: one act of one role, one use of one tool.

A bad step is data, not a crash: output that cannot be read and exceptions alike end up on the step, and the stated
fallback runs. Only our own cancellation passes through.
"""

from __future__ import annotations

import asyncio
import time

from jade.engine.budget import BUDGET_SPENT, Ledger
from jade.engine.events import Listener, StepBegan, StepEnded
from jade.engine.seeds import derive_seed
from jade.team.crew import Crew
from jade.team.roles import Memory, RoleSpec, ToolSpec
from jade.team.workflow import print_workflow
from jade.types import Action, Generation, Malformed, Node, Note, Observation, Passage, Question, Sampling, Step

FAILURES = (Exception, asyncio.CancelledError, SystemExit)
"""What ends a step and not the run: a tool of somebody's own may even call `sys.exit`, as parsers of arguments do."""


class Stage:
    """The steps of one question, as they are taken."""

    def __init__(self, question: Question, crew: Crew, seed: int, listen: Listener) -> None:
        self.taken: list[Step] = []
        self.ledger = Ledger(crew.budget)
        self.ledgers: dict[str, Ledger] = {}
        """Of the nodes that have one of their own; the others spend from `ledger`."""
        self._question_id = question.id
        self._crew = crew
        self._team = crew.team
        self._seed = seed
        self._listen = listen
        self._num_steps: dict[str, int] = {}

    async def act(self, spec: RoleSpec, node: Node, number: int, memory: Memory) -> Step:
        """One call of one role, in round `number`."""
        id_ = self._begin(spec.code, node)
        started = time.perf_counter()
        seen = spec.view(memory)
        generation: Generation | None = None
        action: Action | Malformed | None = None
        error = None
        try:
            generation = await self._generate(spec, id_, seen, self.ledger_of(node))
            action = _checked(spec.code, spec.parse(generation.text, seen))
        # A backbone may cancel work of its own; `_explain` tells that from somebody who cancels us.
        except FAILURES as raised:
            error = self._explain(raised)
        applied, complaint = self._settle(spec, action, generation, seen)
        error, seconds = error or complaint, time.perf_counter() - started
        return self._end(
            Step(id_, node.id, number, spec.code, seen, generation, action, applied, error=error, seconds=seconds)
        )

    async def use(self, tool: ToolSpec, node: Node, number: int, memory: Memory) -> Step:
        """One use of one tool. A failing tool brings nothing, and the step says why."""
        id_ = self._begin(tool.code, node)
        started = time.perf_counter()
        note: Note | None = None
        found: tuple[Passage, ...] = ()
        error = None
        if tool.searches and not await self.ledger_of(node).may_search():
            error = f"the retrieval {BUDGET_SPENT}"
        else:
            if tool.searches:
                self.ledger_of(node).count_search()
            try:
                note, found = await self._bring(tool, memory)
            except FAILURES as raised:
                error = self._explain(raised)
        seen = Observation(memory.query or memory.question)
        seconds = time.perf_counter() - started
        return self._end(
            Step(id_, node.id, number, tool.code, seen, applied=note, found=found, error=error, seconds=seconds)
        )

    def ledger_of(self, node: Node) -> Ledger:
        return self.ledgers.get(node.id, self.ledger)

    async def _generate(self, spec: RoleSpec, step_id: str, seen: Observation, ledger: Ledger) -> Generation:
        prompt = self._team.render(spec.code, seen)
        sampling = Sampling(
            temperature=self._crew.sampling.temperature_of(spec.code),
            top_p=self._crew.sampling.top_p,
            max_tokens=spec.max_tokens,
            seed=derive_seed(self._seed, self._question_id, step_id),
            choices=self._choices(spec, seen),
        )
        # Before it is made: a call that fails has cost one too.
        ledger.count_call()
        async with asyncio.timeout(ledger.seconds_left):
            speaker = self._crew.cast.of(spec.code, priced=seen.effort is not None)
            generation = await speaker.generate(prompt, sampling)
        ledger.charge(generation)
        return generation

    def _settle(
        self, spec: RoleSpec, action: Action | Malformed | None, generation: Generation | None, seen: Observation
    ) -> tuple[Action | None, str | None]:
        """What runs in the end: the action, or the stated fallback; and what went wrong with the fallback."""
        if action is not None and not isinstance(action, Malformed):
            return action, None
        try:
            return self._team.fallback(spec.code, generation.text if generation else "", seen), None
        except Exception as raised:
            return None, self._explain(raised)

    def _choices(self, spec: RoleSpec, seen: Observation) -> tuple[str, ...]:
        """What constrained decoding allows: for a plan the legal ones, for everything else any text."""
        if not (spec.kind == "plan" and self._team.constrain_plans):
            return ()
        return tuple(map(print_workflow, seen.legal))

    async def _bring(self, tool: ToolSpec, memory: Memory) -> tuple[Note | None, tuple[Passage, ...]]:
        async with asyncio.timeout(self.ledger.seconds_left):
            result = await tool.run(memory, self._crew.retriever, self._crew.k)
        if isinstance(result, Note):
            return result, ()
        found = tuple(result)
        if not all(isinstance(each, Passage) for each in found):
            raise TypeError(f"tool {tool.code} brought something else than passages or a Note")
        return None, found

    def _begin(self, code: str, node: Node) -> str:
        count = self._num_steps.get(node.id, 0)
        self._num_steps[node.id] = count + 1
        id_ = f"{node.id}:{count}"
        self._listen(StepBegan(id_, node.id, code))
        return id_

    def _end(self, step: Step) -> Step:
        self.taken.append(step)
        self._listen(StepEnded(step))
        return step

    def _explain(self, error: BaseException) -> str:
        """The one place where an exception becomes part of the trace."""
        if isinstance(error, asyncio.CancelledError) and _being_cancelled():
            raise error
        if isinstance(error, TimeoutError) and not self.ledger.has_time():
            return f"the time {BUDGET_SPENT}"
        return describe_error(error)


def describe_error(error: BaseException) -> str:
    """An exception in one line; of a group, the first one in it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _checked(code: str, action: object) -> Action | Malformed:
    """A parser from outside may return anything; what is no action must not travel on."""
    if isinstance(action, Action | Malformed):
        return action
    raise TypeError(f"the parser of {code} returned {type(action).__name__}, neither an action nor Malformed")


def _being_cancelled() -> bool:
    """Whether someone cancelled us, as opposed to a backbone that gave up on its own work."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0

"""Failing parts: whatever raises is recorded on its step, and the question still ends as a record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from engine_builders import (
    AUSTEN,
    EMMA,
    ROMANCE,
    ROOT_QUESTION,
    BurntLibrary,
    Library,
    answer,
    by_question,
    crew,
    plan,
    roles,
    script,
    split,
)

from jade.backbone.scripted import ScriptedBackbone
from jade.config import TeamConfig
from jade.engine.events import Event, NodeSolved, StepEnded
from jade.engine.record import trace_from_json, trace_to_json
from jade.engine.solve import solve
from jade.errors import BackboneFailed
from jade.retrieval.base import Retriever
from jade.team.roles import Memory, RoleSpec, ToolSpec
from jade.team.team import Team, TeamBuilder, build_team
from jade.types import Action, Generation, Malformed, Note, Observation, Passage, Prompt, Sampling, Selection, Workflow
from patience import PATIENCE_SECONDS

ROOT = ROOT_QUESTION.text
OURS = build_team(TeamConfig())
SPLIT_ROOT = by_question({ROOT: plan("QDP")}, plan("R,AG"))


def team_with(*members: RoleSpec | ToolSpec) -> Team:
    builder = TeamBuilder(dict(OURS.members))
    for member in members:
        builder.add(member)
    prompts = {code: "Work." for code, member in builder.members.items() if isinstance(member, RoleSpec)}
    return Team(builder.members, prompts)


def raising(error: BaseException) -> Callable[..., Action]:
    def fail(*_: object) -> Action:
        raise error

    return fail


class Failing(ScriptedBackbone):
    """A scripted team of which some roles fail."""

    def __init__(self, *failing: str, error: BaseException | None = None) -> None:
        super().__init__(script())
        self.failing = failing
        self.error = error or BackboneFailed("no server at 127.0.0.1")

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        if prompt.role in self.failing:
            raise self.error
        return await super().generate(prompt, sampling)


async def test_a_failing_call_is_recorded_and_its_fallback_runs() -> None:
    trace = await solve(ROOT_QUESTION, crew(Failing("P")))
    assert trace.steps[0].error == "BackboneFailed: no server at 127.0.0.1"
    assert (trace.steps[0].generation, trace.steps[0].action) == (None, None)
    assert trace.steps[0].applied == Workflow(("R", "AG"))
    assert (trace.answer, trace.error) == ("Hampshire", None)


async def test_a_question_for_which_every_call_fails_says_why() -> None:
    trace = await solve(ROOT_QUESTION, crew(Failing("P", "AG", "AS")))
    assert (trace.answer, trace.error) == ("", "BackboneFailed: no server at 127.0.0.1")
    assert (roles(trace), trace.usage.calls) == (["P", "R", "AG", "AS"], 3)


async def test_a_failing_search_is_recorded_and_the_answerer_works_without() -> None:
    trace = await solve(ROOT_QUESTION, crew(library=BurntLibrary()))
    search = trace.steps[1]
    assert (search.error, search.found) == ("RetrievalFailed: the library has burnt down", ())
    assert (trace.answer, trace.error, trace.supported, trace.citations) == ("Hampshire", None, False, ())


async def test_a_retriever_that_returns_too_little_is_recorded() -> None:
    class Forgetful(Library):
        async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
            return []

    trace = await solve(ROOT_QUESTION, crew(library=Forgetful()))
    assert trace.steps[1].error is not None
    assert trace.steps[1].error.startswith("ValueError")


@pytest.mark.parametrize("code", ["P", "QDP", "QR", "DS", "AG", "AS"])
async def test_a_raising_parser_is_recorded_and_its_fallback_runs(code: str) -> None:
    broken = replace(OURS.role(code), parse=raising(KeyError("odd")))
    voice = script(P=by_question({ROOT: plan("QDP")}, plan("QR,R,DS,AG")))
    trace = await solve(ROOT_QUESTION, crew(voice, team=team_with(broken)))
    failed = [step for step in trace.steps if step.role == code]
    assert {step.error for step in failed} == {"KeyError: 'odd'"}
    assert all(step.generation and step.action is None for step in failed)
    assert trace.answer
    assert trace.error is None


async def test_a_parser_that_ends_the_program_ends_its_step_alone() -> None:
    """As argparse does with what it cannot read; the run ended there, without a word and with success."""
    broken = replace(OURS.role("AG"), parse=raising(SystemExit(0)))
    trace = await solve(ROOT_QUESTION, crew(team=team_with(broken)))
    assert {step.error for step in trace.steps} == {None, "SystemExit: 0"}
    assert trace.answer


@pytest.mark.parametrize("code", ["P", "QDP", "QR", "DS", "AG", "AS"])
async def test_a_raising_fallback_is_recorded_too(code: str) -> None:
    broken = replace(OURS.role(code), parse=lambda text, seen: Malformed("no"), fallback=raising(OSError("odd")))
    voice = script(P=by_question({ROOT: plan("QDP")}, plan("QR,R,DS,AG")))
    trace = await solve(ROOT_QUESTION, crew(voice, team=team_with(broken)))
    # The planner's fallback is the team's own, so its is never asked.
    assert {step.error for step in trace.steps if step.role == code} == ({None} if code == "P" else {"OSError: odd"})
    assert trace.error is None or code == "AG"


@pytest.mark.parametrize("returned", [None, "Paris", 7, ("a",)])
async def test_a_parser_that_returns_no_action_is_recorded(returned: Any) -> None:
    broken = replace(OURS.role("AG"), parse=lambda text, seen: returned)
    trace = await solve(ROOT_QUESTION, crew(team=team_with(broken)))
    assert trace.steps[2].error == (
        f"TypeError: the parser of AG returned {type(returned).__name__}, neither an action nor Malformed"
    )
    assert trace.answer == "Hampshire"
    assert trace_from_json(trace_to_json(trace)) == trace


async def test_a_selection_of_what_was_not_shown_is_ignored() -> None:
    broken = replace(OURS.role("DS"), parse=lambda text, seen: Selection((2, 9, -1)))
    trace = await solve(ROOT_QUESTION, crew(script(P=plan("R,DS,AG")), team=team_with(broken)))
    assert trace.steps[3].observation.passages == (ROMANCE,)


@pytest.mark.parametrize("codes", ["QDS,AG", "ZZ", "", "QDS"])
async def test_a_planner_of_ones_own_cannot_run_what_is_not_legal(codes: str) -> None:
    own = replace(OURS.role("P"), parse=lambda text, seen: Workflow(tuple(codes.split(","))))
    trace = await solve(ROOT_QUESTION, crew(team=team_with(own), depth=0))
    assert (trace.nodes[0].workflow, trace.answer, trace.error) == ("R,AG", "Hampshire", None)


def tool(code: str, run: Callable[..., Any]) -> ToolSpec:
    return ToolSpec(code, "a tool", run)


async def bring_two(memory: Memory, retriever: Retriever, k: int) -> Sequence[Passage]:
    return [ROMANCE, AUSTEN]


async def bring_note(memory: Memory, retriever: Retriever, k: int) -> Note:
    return Note(f"{len(memory.passages)} passages, {memory.question}")


async def test_a_tool_of_ones_own_adds_passages_and_notes() -> None:
    team = team_with(tool("T1", bring_two), tool("T2", bring_note))
    voice = script(P=plan("R,T1,T2,AG"))
    trace = await solve(ROOT_QUESTION, crew(voice, team=team, k=1))
    answerer = trace.steps[-1].observation
    assert answerer.passages == (EMMA, ROMANCE, AUSTEN)
    assert answerer.notes == (("T2", f"3 passages, {ROOT}"),)
    assert f"T2: 3 passages, {ROOT}" in voice.put_to("AG")[0]
    assert trace.usage.retrievals == 1


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (None, "TypeError: 'NoneType' object is not iterable"),
        (["text"], "TypeError: tool T1 brought something else than passages or a Note"),
        (ZeroDivisionError("odd"), "ZeroDivisionError: odd"),
    ],
)
async def test_a_tool_of_ones_own_that_fails_brings_nothing_and_says_why(result: object, error: str) -> None:
    async def run(memory: Memory, retriever: Retriever, k: int) -> object:
        if isinstance(result, Exception):
            raise result
        return result

    trace = await solve(ROOT_QUESTION, crew(script(P=plan("T1,AG")), team=team_with(tool("T1", run))))
    assert (trace.steps[1].error, trace.steps[1].found, trace.steps[1].applied) == (error, (), None)
    assert (trace.answer, trace.error) == ("Hampshire", None)


async def test_a_role_of_ones_own_leaves_a_note_for_the_answerer() -> None:
    def parse(text: str, seen: Observation) -> Note:
        return Note(text.upper())

    own = RoleSpec("FC", "checker", "work", "checker.md", parse, lambda text, seen: None, frozenset({"passages"}))
    voice = script(P=plan("R,FC,AG"), FC="agreed")
    trace = await solve(ROOT_QUESTION, crew(voice, team=team_with(own)))
    assert trace.steps[-1].observation.notes == (("FC", "AGREED"),)
    assert "FC: AGREED" in voice.put_to("AG")[0]


async def test_a_backbone_that_cancels_its_own_work_has_failed() -> None:
    trace = await solve(ROOT_QUESTION, crew(Failing("AG", error=asyncio.CancelledError())))
    assert trace.steps[2].error == "CancelledError: "
    assert trace.answer == "Hampshire"


async def test_a_backbone_that_cancels_its_own_work_inside_a_parallel_child_has_failed() -> None:
    voice = Failing("AG", error=asyncio.CancelledError())
    voice._script = script(P=SPLIT_ROOT)
    trace = await solve(ROOT_QUESTION, crew(voice))
    assert [step.error for step in trace.steps if step.role == "AG"] == ["CancelledError: "] * 2
    assert (trace.answer, trace.error) == ("Hampshire", None)


@pytest.mark.parametrize("codes", ["QDS", "QDP"])
async def test_a_raising_listener_ends_the_question_but_not_its_record(codes: str) -> None:
    def listen(event: Event) -> None:
        if isinstance(event, NodeSolved) and event.node.id == "0.2":
            raise RuntimeError("the screen is gone")

    voice = script(P=by_question({ROOT: plan(codes)}, plan("R,AG")))
    trace = await solve(ROOT_QUESTION, crew(voice), listen=listen)
    assert (trace.answer, trace.error) == ("", "RuntimeError: the screen is gone")
    assert {step.node for step in trace.steps} == {node.id for node in trace.nodes} == {"0", "0.1", "0.2"}
    assert {"0.2:1", "0.2:2"} <= {step.id for step in trace.steps}
    assert trace.nodes[1].answer == "Jane Austen"
    assert asyncio.all_tasks() == {asyncio.current_task()}


class Endless:
    """A backbone whose answerer never answers; it counts who waits and who was let go."""

    def __init__(self, num_expected: int) -> None:
        self.num_expected = num_expected
        self.waiting = self.cancelled = 0
        self.all_waiting = asyncio.Event()

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        if prompt.role != "AG":
            return Generation(script(P=SPLIT_ROOT, QDP=split("a?", "b?", "c?"))(prompt))
        self.waiting += 1
        if self.waiting == self.num_expected:
            self.all_waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Generation(answer("never"))

    async def close(self) -> None:
        return None


async def test_cancelling_a_question_ends_all_its_work_at_once() -> None:
    voice = Endless(3)
    ended: list[Event] = []
    task = asyncio.create_task(solve(ROOT_QUESTION, crew(voice), listen=ended.append))
    await asyncio.wait_for(voice.all_waiting.wait(), timeout=PATIENCE_SECONDS)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, timeout=PATIENCE_SECONDS)
    assert (voice.waiting, voice.cancelled) == (3, 3)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not [event for event in ended if isinstance(event, StepEnded) and event.step.role == "AG"]


async def test_cancelling_a_question_whose_children_wait_for_each_others_budget_is_not_swallowed() -> None:
    """The rounds suffice for one child; the two others wait for what it leaves."""
    voice = Endless(1)
    task = asyncio.create_task(solve(ROOT_QUESTION, crew(voice, rounds=2)))
    await asyncio.wait_for(voice.all_waiting.wait(), timeout=PATIENCE_SECONDS)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, timeout=PATIENCE_SECONDS)
    assert (voice.waiting, voice.cancelled) == (1, 1)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_interrupt_from_the_keyboard_is_not_swallowed() -> None:
    with pytest.raises(KeyboardInterrupt):
        await solve(ROOT_QUESTION, crew(Failing("P", error=KeyboardInterrupt())))

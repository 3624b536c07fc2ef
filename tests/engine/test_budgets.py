"""Budgets: when one is spent the team answers from what it has, and the trace says which."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from engine_builders import (
    ROOT_QUESTION,
    Library,
    Line,
    Meeting,
    Script,
    answer,
    by_question,
    crew,
    plan,
    roles,
    script,
    split,
)

from jade.backbone.scripted import ScriptedBackbone
from jade.config import BudgetConfig, TeamConfig
from jade.engine.budget import Ledger
from jade.engine.solve import solve
from jade.types import Generation, Malformed, Prompt, Sampling
from patience import PATIENCE_SECONDS

ROOT = ROOT_QUESTION.text


def splitting(code: str = "QDS", **lines: Line) -> Script:
    """A team that splits the root and solves its children by `R,AG`."""
    return script(P=by_question({ROOT: plan(code)}, plan("R,AG")), **lines)


async def test_without_a_spent_budget_nothing_is_said() -> None:
    trace = await solve(ROOT_QUESTION, crew(splitting()))
    assert (trace.stopped, trace.answer) == ("", "Hampshire")


async def test_rounds_spent_leave_later_children_open() -> None:
    trace = await solve(ROOT_QUESTION, crew(splitting(AS=answer("from the first alone")), rounds=2))
    assert trace.stopped == "rounds"
    assert [node.answer for node in trace.nodes] == ["from the first alone", "Jane Austen", None]
    assert roles(trace) == ["P", "QDS", "P", "R", "AG", "AS"]
    assert trace.usage.rounds == 2


async def test_depth_spent_refuses_a_decomposition_and_the_plain_plan_runs() -> None:
    voice = script(P=plan("QDS"), QDS=by_question({ROOT: split("a?", "b?"), "a?": split("c?", "d?")}, split("e", "f")))
    trace = await solve(ROOT_QUESTION, crew(voice, depth=1))
    assert [node.id for node in trace.nodes] == ["0", "0.1", "0.2"]
    assert (trace.nodes[1].workflow, trace.stopped) == ("R,AG", "depth")
    assert roles(trace, "0.1") == ["P", "R", "AG"]


@pytest.mark.parametrize("budget", [{"depth": 0}, {"depth": 1}, {"rounds": 2}, {"retrievals": 0}, {"calls": 5}])
async def test_no_budget_is_seen_in_the_planners_prompts_nor_makes_its_plans_malformed(budget: dict[str, Any]) -> None:
    """What a team learned under one budget holds under another."""
    ample, tight = script(P=plan("QDS")), script(P=plan("QDS"))
    await solve(ROOT_QUESTION, crew(ample))
    trace = await solve(ROOT_QUESTION, crew(tight, **budget))
    assert set(tight.put_to("P")) <= set(ample.put_to("P"))
    assert not any(isinstance(step.action, Malformed) for step in trace.steps if step.role == "P")


async def test_depth_nought_forbids_decomposition() -> None:
    trace = await solve(ROOT_QUESTION, crew(splitting(), depth=0))
    assert (len(trace.nodes), trace.nodes[0].workflow, trace.stopped) == (1, "R,AG", "depth")


async def test_deep_nesting_follows_the_budget() -> None:
    def deeper(prompt: Prompt) -> str:
        return split(f"{prompt.user}+", f"{prompt.user}-").replace("Question: ", "")

    trace = await solve(
        ROOT_QUESTION,
        crew(script(P=plan("QDS"), QDS=deeper), depth=6, rounds=500, calls=1000, retrievals=500, tokens=10**9),
    )
    assert len(trace.nodes) == 2**7 - 1
    assert max(node.id.count(".") for node in trace.nodes) == 6
    assert (trace.stopped, trace.error) == ("depth", None)


async def test_retrievals_spent_let_the_answerer_work_without() -> None:
    library = Library()
    trace = await solve(ROOT_QUESTION, crew(splitting(), retrievals=1, library=library))
    assert (trace.stopped, trace.usage.retrievals, len(library.queries)) == ("retrievals", 1, 1)
    refused = next(step for step in trace.steps if step.node == "0.2" and step.role == "R")
    assert (refused.error, refused.found) == ("the retrieval budget is spent", ())
    assert (trace.nodes[2].answer, trace.error) == ("Hampshire", None)


async def test_calls_spent_still_leave_the_closing_one() -> None:
    trace = await solve(ROOT_QUESTION, crew(splitting(AS=answer("as far as I know")), calls=4))
    assert (trace.stopped, trace.answer) == ("calls", "as far as I know")
    assert roles(trace) == ["P", "QDS", "P", "R", "AG", "AS"]
    assert trace.usage.calls == 4 + 1


async def test_calls_spent_before_a_decomposition_end_the_node() -> None:
    trace = await solve(ROOT_QUESTION, crew(splitting(), calls=1))
    assert (roles(trace), trace.stopped) == (["P", "AS"], "calls")


async def test_no_tool_is_used_when_nobody_could_read_what_it_brings() -> None:
    library = Library()
    trace = await solve(ROOT_QUESTION, crew(script(), calls=1, library=library))
    assert (roles(trace), library.queries) == (["P", "AS"], [])


async def test_tokens_spent_still_leave_the_closing_call() -> None:
    trace = await solve(ROOT_QUESTION, crew(splitting(), tokens=1))
    assert (trace.stopped, roles(trace), trace.answer) == ("tokens", ["P", "AS"], "Hampshire")


async def test_children_beyond_the_budget_are_dropped() -> None:
    voice = splitting("QDP", QDP=split("a?", "b?", "c?", "d?"))
    trace = await solve(ROOT_QUESTION, crew(voice, children=3))
    assert (trace.stopped, trace.nodes[0].children) == ("children", ("0.1", "0.2", "0.3"))
    assert len(trace.nodes) == 4


async def test_seconds_spent_interrupt_a_call_and_what_is_known_is_the_answer() -> None:
    class Stalling(ScriptedBackbone):
        async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
            if "Jane Austen born" in prompt.user:
                await asyncio.Event().wait()
            return await super().generate(prompt, sampling)

    working = solve(ROOT_QUESTION, crew(Stalling(splitting()), seconds=2))
    trace = await asyncio.wait_for(working, timeout=PATIENCE_SECONDS)
    assert (trace.stopped, trace.answer) == ("seconds", "Jane Austen")
    assert trace.steps[-1].error == "the time budget is spent"
    assert "AS" not in roles(trace)


async def test_unless_told_otherwise_a_question_takes_the_time_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many in flight on a slow machine most of it is others' time: the answer would be the machine's."""
    a_day_later = SimpleNamespace(monotonic=lambda: time.monotonic() + 86_400)
    monkeypatch.setattr("jade.engine.budget.time", a_day_later)
    trace = await solve(ROOT_QUESTION, crew(splitting()))
    assert (trace.stopped, trace.answer, trace.usage.seconds > 86_000) == ("", "Hampshire", True)
    hurried = await solve(ROOT_QUESTION, crew(splitting(), seconds=600))
    assert (hurried.stopped, hurried.answer) == ("seconds", "")


async def test_seconds_spent_interrupt_a_search() -> None:
    trace = await solve(ROOT_QUESTION, crew(library=Library(delay_seconds=PATIENCE_SECONDS), seconds=2))
    assert (trace.stopped, trace.answer, trace.steps[-1].role) == ("seconds", "", "R")
    assert trace.error == trace.steps[-1].error == "the time budget is spent"
    assert 0 < trace.steps[-1].seconds < PATIENCE_SECONDS / 2


async def test_a_summary_for_which_no_time_is_left_is_a_spent_budget() -> None:
    def late(prompt: Prompt) -> str:
        time.sleep(2.1 if "Jane" in prompt.user else 0)
        return answer("Hampshire" if "Jane" in prompt.user else "Jane Austen")

    config = TeamConfig(workflows=("QDS",), child_workflows=("AG",))
    trace = await solve(ROOT_QUESTION, crew(script(AG=late), team=config, seconds=2))
    assert (trace.stopped, trace.answer, roles(trace)) == ("seconds", "Hampshire", ["QDS", "AG", "AG"])


async def test_a_timeout_of_the_backbones_own_is_not_the_budgets() -> None:
    class Impatient(ScriptedBackbone):
        async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
            raise TimeoutError("gave up")

    trace = await solve(ROOT_QUESTION, crew(Impatient(script())))
    assert (trace.error, trace.stopped) == ("TimeoutError: gave up", "")


async def test_parallel_children_share_one_budget_of_calls() -> None:
    class Slow(ScriptedBackbone):
        async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
            await asyncio.sleep(0)
            return await super().generate(prompt, sampling)

    voice = splitting("QDP", QDP=split("a?", "b?", "c?", "d?"))
    trace = await solve(ROOT_QUESTION, crew(Slow(voice), calls=7))
    assert (trace.stopped, trace.usage.calls) == ("calls", 7 + 1)


class AtAPace(ScriptedBackbone):
    """Slow for one question, quick for all others."""

    def __init__(self, voice: Script, slow: str) -> None:
        super().__init__(voice)
        self._slow = slow

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        await asyncio.sleep(0.02 if prompt.user.endswith(self._slow) else 0)
        return await super().generate(prompt, sampling)


@pytest.mark.parametrize("slow", ["a?", "b?", "c?"])
@pytest.mark.parametrize(
    ("budget", "asked_for"),
    [({"retrievals": 2}, ["a?", "b?"]), ({"retrievals": 1}, ["a?"]), ({"rounds": 3}, ["a?", "b?"])],
)
async def test_the_last_of_a_budget_goes_to_the_first_children_however_slow_they_are(
    slow: str, budget: dict[str, Any], asked_for: list[str]
) -> None:
    library = Library()
    voice = AtAPace(splitting("QDP", QDP=split("a?", "b?", "c?")), slow)
    trace = await solve(ROOT_QUESTION, crew(voice, library=library, **budget))
    assert trace.stopped == next(iter(budget))
    assert sorted(library.queries) == asked_for


async def test_a_child_may_use_what_its_siblings_leave() -> None:
    """Seven rounds after the root's: two for each of the first three children, one for the last, which needs three."""
    plans = {ROOT: plan("QDP"), "d?": plan("QDS")}
    voice = script(
        P=by_question(plans, plan("R,AG")),
        QDP=split("a?", "b?", "c?", "d?"),
        QDS=split("e?", "f?"),
    )
    trace = await solve(ROOT_QUESTION, crew(AtAPace(voice, "a?"), rounds=8, retrievals=5))
    assert (trace.stopped, trace.usage.rounds, trace.usage.retrievals) == ("", 7, 5)
    assert [node.id for node in trace.nodes if node.answer is None] == []


async def test_children_within_their_shares_do_not_wait_for_each_other() -> None:
    voice = splitting("QDP", QDP=split("a?", "b?", "c?", "d?"))
    working = solve(ROOT_QUESTION, crew(Meeting(voice, 4), retrievals=4, rounds=5, calls=10))
    trace = await asyncio.wait_for(working, timeout=PATIENCE_SECONDS)
    assert (trace.stopped, trace.usage.calls) == ("", 10 + 1)


@pytest.mark.parametrize("spent", ["rounds", "calls", "tokens", "seconds"])
async def test_a_ledger_names_the_first_budget_that_refused(spent: str) -> None:
    ledger = Ledger(BudgetConfig(**{spent: 1}))
    assert await ledger.open_round() == 1
    ledger.count_call()
    ledger.charge(Generation("", prompt_tokens=1))
    ledger.account.started -= 1
    assert await ledger.open_round() is None
    ledger.refuse("another")
    assert ledger.account.stopped == spent

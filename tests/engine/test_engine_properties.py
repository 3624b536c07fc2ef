"""What holds for every question, whatever the models, the library and the parsers do."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from typing import Any

from engine_builders import (
    AMPLE,
    Erratic,
    ErraticLibrary,
    Paced,
    asked,
    crew,
    jobs_for,
    plan,
    roles,
    script,
    split,
    timeless,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from jade.config import TeamConfig
from jade.engine.record import dump_trace, trace_from_json
from jade.engine.replay import replay_crew
from jade.engine.rollout import rollout
from jade.engine.solve import solve
from jade.team.roles import RoleSpec
from jade.team.team import Team, build_team
from jade.types import Action, Malformed, Observation, Prompt, Question, SubQuestions, Trace, Workflow

OURS = build_team(TeamConfig())
SALTS = st.integers(0, 2**32)
SHARES = st.sampled_from([0.0, 0.2, 0.6, 1.0])
BUDGETS = st.fixed_dictionaries(
    {},
    optional={
        "rounds": st.integers(1, 6),
        "depth": st.integers(0, 3),
        "children": st.integers(1, 4),
        "retrievals": st.integers(0, 3),
        "calls": st.integers(1, 12),
        "tokens": st.integers(1, 400),
    },
)


def team_with_a_broken_parser(code: str) -> Team:
    """Ours, except that one role's parser raises on every other text."""
    spec = OURS.role(code)

    def parse(text: str, seen: Observation) -> Action | Malformed:
        if len(text) % 2:
            raise LookupError(f"the parser of {spec.code} broke")
        return spec.parse(text, seen)

    broken: RoleSpec = replace(spec, parse=parse)
    return replace(OURS, members={**OURS.members, code: broken})


TEAMS = st.sampled_from([OURS, *map(team_with_a_broken_parser, ("P", "QDS", "QDP", "QR", "DS", "AG", "AS"))])


def questions(number: int) -> list[Question]:
    return [Question(f"q{place}", f"Question {place}?") for place in range(number)]


@given(SALTS, SHARES, TEAMS, BUDGETS, st.integers(0, 12), st.integers(1, 5))
@settings(max_examples=80)
def test_every_question_in_is_a_record_out(
    salt: int, share: float, team: Team, budget: dict[str, int], number: int, concurrency: int
) -> None:
    jobs = jobs_for(questions(number), seed=salt)
    erratic = crew(Erratic(salt, share), team=team, library=ErraticLibrary(), **budget)
    traces = asyncio.run(rollout(jobs, erratic, concurrency=concurrency))
    assert [trace.question for trace in traces] == [job.question for job in jobs]
    for trace in traces:
        check_tree(trace)
        check_usage(trace, budget)
        assert trace_from_json(json.loads(dump_trace(trace))) == trace
        if not trace.answer:
            assert trace.error or trace.stopped or any(isinstance(step.action, Malformed) for step in trace.steps)


def check_tree(trace: Trace) -> None:
    """Nodes form one tree, steps are named once each and belong to a node of it."""
    nodes = {node.id: node for node in trace.nodes}
    assert len(nodes) == len(trace.nodes)
    assert trace.nodes[0].parent is None
    for node in trace.nodes:
        assert all(nodes[child].parent == node.id for child in node.children)
        assert node.parent is None or node.id in nodes[node.parent].children
    assert max(Counter(step.id for step in trace.steps).values()) == 1
    assert {step.node for step in trace.steps} <= set(nodes)


def check_usage(trace: Trace, budget: dict[str, int]) -> None:
    """What was used is what the steps show, and no more than allowed but for the closing call."""
    tools = [step for step in trace.steps if step.role == "R"]
    used = [step for step in tools if step.error != "the retrieval budget is spent"]
    assert trace.usage.retrievals == len(used) <= budget.get("retrievals", 8)
    assert trace.usage.calls == len(trace.steps) - len(tools) <= budget.get("calls", 64) + 1
    assert trace.usage.rounds <= min(budget.get("rounds", 8), len(trace.nodes))
    assert all(len(node.children) <= budget.get("children", 4) for node in trace.nodes)
    assert all(node.id.count(".") <= budget.get("depth", 2) for node in trace.nodes)


@given(SALTS, SHARES, BUDGETS)
@settings(max_examples=40)
def test_what_the_planner_sampled_is_what_ran(salt: int, share: float, budget: dict[str, Any]) -> None:
    trace = asyncio.run(solve(questions(1)[0], crew(Erratic(salt, share), library=ErraticLibrary(), **budget)))
    for node in trace.nodes:
        planned = next((step for step in trace.steps if step.node == node.id and step.role == "P"), None)
        if planned is None or not isinstance(planned.applied, Workflow):
            continue
        ran = [code for code in roles(trace, node.id) if code not in ("P", "AS")]
        wanted = list(planned.applied.modules)
        if OURS.grammar.splits(planned.applied) and not node.children:
            wanted = [*wanted, "R", "AG"]
        assert ran == wanted[: len(ran)]
        assert ran == wanted or trace.stopped


LEGAL = st.sampled_from(OURS.grammar.workflows)


@given(LEGAL, LEGAL, LEGAL)
def test_changing_the_sampled_plan_changes_the_steps_that_follow(
    root: Workflow, first: Workflow, second: Workflow
) -> None:
    def run(**plans: Workflow) -> Trace:
        def planner(prompt: Prompt) -> str:
            return plan(str(plans.get(asked(prompt), Workflow(("AG",)))))

        voice = script(P=planner, QDS=split("first", "second"), QDP=split("first", "second"))
        return asyncio.run(solve(Question("q", "root"), crew(voice, **AMPLE)))

    trace = run(root=root, first=first, second=second)
    nodes = dict(zip((node.question for node in trace.nodes), trace.nodes, strict=False))
    for text, workflow in (("root", root), ("first", first), ("second", second)):
        if text in nodes and not OURS.grammar.splits(workflow):
            assert roles(trace, nodes[text].id)[: len(workflow.modules) + 1] == ["P", *workflow.modules]
    other = run(root=second, first=first, second=second)
    assert (roles(other) == roles(trace)) == (root == second)


@given(SALTS, SHARES, TEAMS)
@settings(max_examples=40)
def test_a_trace_replays_to_the_same_answer_with_the_same_generations(salt: int, share: float, team: Team) -> None:
    erratic = crew(Erratic(salt, share), team=team, library=ErraticLibrary(), **AMPLE)
    (question,) = questions(1)
    trace = asyncio.run(solve(question, erratic, seed=salt))
    again = asyncio.run(solve(question, replay_crew([trace], erratic), seed=salt))
    assert again.answer == trace.answer
    assert [step.generation for step in again.steps] == [step.generation for step in trace.steps]
    assert timeless(again) == timeless(trace)


@given(SALTS, st.sampled_from([0.0, 0.2]), BUDGETS, st.integers(0, 9), st.integers(10, 19))
@settings(max_examples=120)
def test_who_gets_the_last_of_a_budget_is_no_matter_of_pace(
    salt: int, share: float, budget: dict[str, Any], pace: int, other: int
) -> None:
    (question,) = questions(1)
    first, second = (
        asyncio.run(solve(question, crew(Paced(salt, share, each), library=ErraticLibrary(), **budget), seed=salt))
        for each in (pace, other)
    )
    assert timeless(first) == timeless(second)
    again = replay_crew([first], crew(library=ErraticLibrary(), **budget))
    assert timeless(asyncio.run(solve(question, again, seed=salt))) == timeless(first)


@given(SALTS)
@settings(max_examples=40)
def test_children_answer_what_the_decomposer_asked(salt: int) -> None:
    trace = asyncio.run(solve(questions(1)[0], crew(Erratic(salt, 0.0), library=ErraticLibrary(), **AMPLE)))
    written = {node.id: node.written for node in trace.nodes}
    for step in trace.steps:
        if isinstance(step.applied, SubQuestions):
            children = next(node.children for node in trace.nodes if node.id == step.node)
            assert tuple(written[child] for child in children) == step.applied.questions[:4]

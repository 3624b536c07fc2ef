"""Replaying a trace: the same record again, without model or index."""

from __future__ import annotations

import json

import pytest
from engine_builders import (
    AMPLE,
    ROOT_QUESTION,
    Erratic,
    ErraticLibrary,
    Library,
    by_question,
    crew,
    jobs_for,
    plan,
    script,
    timeless,
)

from jade.config import TeamConfig
from jade.engine.record import dump_trace, trace_from_json
from jade.engine.replay import ReplayBackbone, ReplayRetriever, replay_crew
from jade.engine.rollout import rollout
from jade.engine.solve import solve
from jade.errors import BackboneFailed, RetrievalFailed
from jade.types import Prompt, Question, Sampling, Trace


@pytest.fixture
async def trace() -> Trace:
    voice = script(P=by_question({ROOT_QUESTION.text: plan("QDS")}, plan("QR,R,DS,AG")))
    return await solve(ROOT_QUESTION, crew(voice), seed=11)


async def test_a_trace_read_from_disk_replays_to_itself(trace: Trace) -> None:
    again = trace_from_json(json.loads(dump_trace(trace)))
    replayed = await solve(again.question, replay_crew([again], crew()), seed=again.seed)
    assert timeless(replayed) == timeless(trace)
    assert [step.generation for step in replayed.steps] == [step.generation for step in trace.steps]


async def test_many_traces_replay_together_failures_included() -> None:
    jobs = jobs_for([Question(f"q{place}", f"Question {place}?") for place in range(60)], seed=1, num_samples=2)
    erratic = crew(Erratic(7), library=ErraticLibrary(), **AMPLE)
    traces = await rollout(jobs, erratic, concurrency=16)
    replayed = await rollout(jobs, replay_crew(traces, erratic), concurrency=5)
    assert [timeless(trace) for trace in replayed] == [timeless(trace) for trace in traces]
    assert any(step.error and step.error.startswith("OSError: no shelf") for trace in traces for step in trace.steps)
    assert any(step.error == "ValueError: odd: value" for trace in traces for step in trace.steps)


async def test_another_seed_finds_nothing_and_says_so(trace: Trace) -> None:
    replayed = await solve(trace.question, replay_crew([trace], crew()), seed=trace.seed + 1)
    assert replayed.error == ("BackboneFailed: no call of AS with this seed is recorded: the trace is of another team")


async def test_another_team_finds_nothing_and_says_so(trace: Trace) -> None:
    other = crew(team=TeamConfig(workflows=("R,AG",)))
    replayed = await solve(trace.question, replay_crew([trace], other), seed=trace.seed)
    assert (
        replayed.steps[0].error
        == f"RetrievalFailed: no search for {ROOT_QUESTION.text!r} is recorded: the trace is of another team or index"
    )
    assert replayed.steps[1].error is not None
    assert "no call of AG" in replayed.steps[1].error


async def test_a_replayed_search_gives_at_most_what_is_asked_for(trace: Trace) -> None:
    library = ReplayRetriever([trace])
    assert [len(found) for found in await library.search(["Who wrote Emma?"] * 2, k=2)] == [2, 2]


async def test_a_search_that_came_back_once_comes_back(trace: Trace) -> None:
    failing = await solve(ROOT_QUESTION, crew(library=ErraticLibrary()))
    found = await solve(ROOT_QUESTION, crew(library=Library()))
    library = ReplayRetriever([found, failing])
    assert await library.search([ROOT_QUESTION.text], k=1) == [list(found.steps[1].found[:1])]
    with pytest.raises(RetrievalFailed, match="no shelf"):
        await ReplayRetriever([failing]).search([ROOT_QUESTION.text], k=1)
    await library.close()


async def test_replayed_failures_are_errors_of_ours() -> None:
    (failed,) = await rollout(jobs_for([ROOT_QUESTION], seed=0), crew(Erratic(0, broken_share=1.0)))
    voice = ReplayBackbone([failed])
    with pytest.raises(BackboneFailed):
        await voice.generate(Prompt("AG", "", ""), Sampling(seed=1))
    await voice.close()

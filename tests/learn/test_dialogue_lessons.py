"""Search-R1 as a fair baseline: taught from the same gold data as the team, and trained by the same loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from learn_runs import make_config, make_crew, make_run, small_world, world_passages

from jade.backbone.scripted import ScriptedBackbone
from jade.config import Config, RetrievalConfig
from jade.engine.solve import solve
from jade.errors import ConfigError
from jade.learn.check import check_training
from jade.learn.monitor.journal import read_journal
from jade.learn.transitions import flatten
from jade.learn.warmstart.collect import Course, collect
from jade.learn.warmstart.examples import Example
from jade.learn.warmstart.gold import ONE_ROUND, lesson_of
from jade.learn.warmstart.leaks import LeakReport
from jade.learn.warmstart.oracle import teach
from jade.retrieval.build import build_index
from jade.retrieval.open import open_retriever
from jade.reward.outcome import assign_rewards, outcome
from jade.team.crew import Crew
from jade.team.dialogue import LAST_TURN
from jade.types import Malformed, Prompt, Question

ALONE: dict[str, Any] = {"team": {"workflows": ["S1"]}}
SEARCH, ANSWER = "<search>", "<answer>"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bm25") / "index"
    pages = world_passages(small_world())
    build_index(folder, {"world": "1"}, lambda name: [[page] for page in pages], settings={}, fresh=True)
    return folder


@asynccontextmanager
async def searching(index: Path, **settings: Any) -> AsyncIterator[Crew]:
    """A team that leaves its questions to the searcher, over a real index."""
    config = Config.model_validate(ALONE | settings)
    retriever = open_retriever(RetrievalConfig(index=str(index), inline=True, threads=1))
    crew = make_crew(config, ScriptedBackbone(str))
    yield replace(crew, retriever=retriever, k=3)
    await retriever.close()


def of_kind(kind: str) -> list[Question]:
    return [question for question in small_world().questions if question.metadata["workflow"] == kind]


def moves(examples: list[Example]) -> list[str]:
    return [example.reply.partition(">")[0] + ">" for example in examples]


async def test_hops_are_searched_for_in_order_with_the_passages_really_found_and_then_the_question_is_answered(
    index: Path,
) -> None:
    async with searching(index) as crew:
        taught = [(q, await teach(lesson_of(q), crew, seed=0)) for q in of_kind("QDS")]
        complete = [(q, examples) for q, examples in taught if ANSWER in moves(examples)]
        assert len(complete) > len(taught) / 3
        for question, examples in complete:
            hops = question.metadata["decomposition"]
            assert moves(examples) == [SEARCH] * len(hops) + [ANSWER]
            assert examples[-1].reply == f"<answer>{question.answers[0]}</answer>"
            searches = [example.reply.removeprefix(SEARCH).removesuffix("</search>") for example in examples[:-1]]
            for number, found in enumerate(await crew.retriever.search(searches, crew.k)):
                context = examples[number + 1].prompt.user
                assert context.startswith(examples[number].prompt.user)
                assert all(passage.title in context for passage in found)
            assert all(hop["support"] in examples[-1].prompt.user for hop in hops)


async def test_a_later_search_names_what_the_earlier_one_found(index: Path) -> None:
    async with searching(index) as crew:
        taught = [(q, await teach(lesson_of(q), crew, seed=0)) for q in of_kind("QDS")]
    second = [(q.metadata["decomposition"], examples[1].reply) for q, examples in taught if len(examples) > 2]
    referring = [(hops, reply) for hops, reply in second if "#1" in hops[1]["question"]]
    assert referring
    assert all("#" not in reply for _, reply in referring)
    assert all(hops[0]["answer"].split()[-1] in reply for hops, reply in referring)


async def test_a_question_of_one_round_is_one_search_and_the_answer_it_found(index: Path) -> None:
    async with searching(index) as crew:
        taught = [await teach(lesson_of(q), crew, seed=0) for q in of_kind(ONE_ROUND)]
    assert {tuple(moves(examples)) for examples in taught} <= {(SEARCH, ANSWER), (SEARCH,), ()}
    assert sum(len(examples) == 2 for examples in taught) > len(taught) / 2


async def test_any_gold_answer_will_do_and_the_one_that_was_found_is_said(index: Path) -> None:
    async with searching(index) as crew:
        taught = [(q, await teach(lesson_of(q), crew, seed=0)) for q in of_kind(ONE_ROUND)]
        question, examples = next((q, examples) for q, examples in taught if len(examples) == 2)
        aliased = replace(question, answers=("Nobody at all", *question.answers))
        assert await teach(lesson_of(aliased), crew, seed=0) == examples


async def test_what_was_not_found_is_neither_answered_nor_searched_on_from(index: Path) -> None:
    question = of_kind("QDS")[0]
    hops = [{**hop, "support": "No Such Page"} for hop in question.metadata["decomposition"]]
    lost = replace(question, metadata={**question.metadata, "decomposition": hops})
    async with searching(index) as crew:
        assert await teach(lesson_of(lost), crew, seed=0) == []


async def test_nothing_is_taught_that_the_budget_forbids(index: Path) -> None:
    async with searching(index, budget={"search_turns": 1}) as crew:
        taught = [await teach(lesson_of(q), crew, seed=0) for q in (*of_kind("QDS"), *of_kind(ONE_ROUND))]
    examples = [example for each in taught for example in each]
    assert {example.reply.startswith(ANSWER) for example in examples if LAST_TURN[1] in example.prompt.user} == {True}


def saying(replies: dict[Prompt, str]) -> ScriptedBackbone:
    return ScriptedBackbone(lambda prompt: replies.get(prompt, "<answer>unknown</answer>"))


async def test_who_says_what_was_taught_answers_well_and_in_form(index: Path) -> None:
    async with searching(index) as crew:
        for question in small_world().questions[:20]:
            replies = {example.prompt: example.reply for example in await teach(lesson_of(question), crew, seed=0)}
            trace = await solve(question, replace(crew, cast=make_crew(Config(), saying(replies)).cast))
            assert not any(isinstance(step.action, Malformed) for step in trace.steps)
            if any(reply.startswith(ANSWER) for reply in replies.values()):
                assert outcome(trace) == 1.0


async def test_one_course_teaches_the_team_and_the_searcher_from_the_same_lessons(tiny_model: Path) -> None:
    lessons = [lesson_of(question) for question in small_world().splits["train"][:10]]
    crew = make_crew(Config(), ScriptedBackbone(str))
    course = Course(crew.team, lessons, [], LeakReport(10, {}))  # type: ignore[arg-type]
    roles = list(make_config(tiny_model).warmstart.roles)
    without, both, alone = [
        await collect(make_config(tiny_model, {"warmstart": {"roles": chosen}}), course, crew.retriever)
        for chosen in (roles, [*roles, "S1"], ["S1"])
    ]
    assert both[: len(without)] == without
    assert both[len(without) :] == alone
    assert {example.prompt.role for example in alone} == {"S1"}


def script(prompt: Prompt) -> str:
    return "<answer>Ada</answer>" if "<information>" in prompt.user else "<search>Ada</search>"


async def test_its_calls_become_transitions_like_every_roles(tiny_model: Path) -> None:
    config = make_config(tiny_model, ALONE)
    question = replace(small_world().questions[0], answers=("Ada",))
    trace = await solve(question, make_crew(config, ScriptedBackbone(script)))
    transitions = flatten([trace], [assign_rewards(trace, config.reward)])
    assert [transition.role for transition in transitions] == ["S1", "S1"]
    assert [transition.step for transition in transitions] == ["0:0", "0:2"]
    assert all(transition.reward.outcome == 1.0 for transition in transitions)


async def test_the_same_loop_trains_it(tiny_model: Path, tmp_path: Path) -> None:
    settings = ALONE | {"learn": {"train_roles": ["S1"], "iterations": 2}}
    run = make_run(make_config(tiny_model, settings), tmp_path)
    start = {name: weight.clone() for name, weight in run.learner.policy.policy_parameters()}
    await run.train()
    rows = list(read_journal(tmp_path, "iteration"))
    assert [row["iteration"] for row in rows] == [1, 2]
    assert all(row["logp_gap_max"] < 1e-3 for row in rows)
    assert any(not start[name].equal(weight) for name, weight in run.learner.policy.policy_parameters())


@pytest.mark.parametrize(("workflows", "roles"), [(["S1"], ["P", "AG"]), ([], ["S1"])])
def test_roles_that_have_no_work_are_refused(
    tiny_model: Path, index: Path, workflows: list[str], roles: list[str]
) -> None:
    settings = {
        "team": {"workflows": workflows},
        "learn": {"train_roles": roles},
        "retrieval": {"index": str(index)},
    }
    with pytest.raises(ConfigError, match=r"learn\.train_roles: .* have nothing to do"):
        check_training(make_config(tiny_model, settings))

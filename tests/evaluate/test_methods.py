"""Methods: every row is a legal team, and its plans are what runs."""

from __future__ import annotations

import pytest
from evaluate_builders import ONE_HOP, TWO_HOPS, make_crew

from jade.config import ROLE_CODES, Config
from jade.errors import ConfigError
from jade.evaluate.methods import METHODS, configure, find_method
from jade.team.crew import Crew
from jade.team.team import build_team
from jade.types import Prompt

PAPER = (
    "no-retrieval",
    "vanilla-rag",
    "rrr",
    "bgm",
    "mmoa-rag",
    "adaptive-rag",
    "search-r1",
    "mao-arag",
    "executors-only",
    "jade",
)
SAYS = {
    "P": "<workflow>QDS</workflow>",
    "QDS": "<q1>Who wrote Emma?</q1><q2>Where was #1 born?</q2>",
    "QR": "<query>Emma novel</query>",
    "DS": "<id>Document0</id>",
    "AG": "<answer>Jane Austen</answer>",
    "AS": "<answer>Steventon</answer>",
    "S1": "<answer>Jane Austen</answer>",
}


def say(prompt: Prompt) -> str:
    if prompt.role == "P" and "QDS" not in prompt.user and "Choose" in prompt.user:
        return "<workflow>R,AG</workflow>"
    return SAYS[prompt.role]


def crew_for(name: str) -> Crew:
    crew = make_crew(say)
    team = build_team(configure(find_method(name), Config()).team)
    return Crew(team, crew.cast, crew.retriever, crew.budget, crew.sampling, crew.k)


def test_the_table_has_every_row_of_the_paper() -> None:
    assert tuple(name for name in METHODS if name != "oracle") == PAPER


@pytest.mark.parametrize("name", METHODS)
def test_every_row_is_a_legal_team_of_known_roles(name: str) -> None:
    method = METHODS[name]
    build_team(configure(method, Config()).team)
    assert set(method.train_roles) <= {*ROLE_CODES, "S1"}
    assert method.name == name
    assert method.note


@pytest.mark.parametrize(
    ("name", "roles"),
    [
        ("no-retrieval", ["AG"]),
        ("vanilla-rag", ["R", "AG"]),
        ("rrr", ["QR", "R", "AG"]),
        ("bgm", ["R", "DS", "AG"]),
        ("mmoa-rag", ["QR", "R", "DS", "AG"]),
        ("adaptive-rag", ["P", "QDS", "R", "AG", "R", "AG", "AS"]),
        ("search-r1", ["S1"]),
        ("oracle", ["P", "R", "DS", "AG"]),
    ],
)
async def test_a_method_runs_the_roles_of_its_row(name: str, roles: list[str]) -> None:
    question = TWO_HOPS if name == "adaptive-rag" else ONE_HOP
    solve = find_method(name).open_solver(Config())
    trace = await solve(question, crew_for(name), 0)
    assert [step.role for step in trace.steps] == roles
    assert trace.error is None


@pytest.mark.parametrize("name", ["jade", "mao-arag", "executors-only"])
def test_the_teams_differ_in_what_learns_and_not_in_what_runs(name: str) -> None:
    assert crew_for(name).team == crew_for("jade").team
    assert ("P" in METHODS[name].train_roles) is (name != "executors-only")


def test_only_the_method_that_answers_from_memory_needs_no_index() -> None:
    assert [name for name, method in METHODS.items() if not method.needs_index] == ["no-retrieval"]


def test_a_method_keeps_every_other_setting() -> None:
    config = Config.model_validate({"seed": 3, "team": {"constrain_plans": True}, "retrieval": {"k": 9}})
    chosen = configure(find_method("rrr"), config)
    assert chosen.team.workflows == ("QR,R,AG",)
    assert (chosen.seed, chosen.team.constrain_plans, chosen.retrieval.k) == (3, True, 9)


def test_an_unknown_method_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="unknown method 'react': choose from no-retrieval, vanilla-rag"):
        find_method("react")

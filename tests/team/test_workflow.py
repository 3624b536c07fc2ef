"""The grammar of plans."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from jade.config import TeamConfig
from jade.errors import ConfigError
from jade.team.team import build_team, grammar_of
from jade.team.workflow import Grammar, Module, parse_workflow, print_workflow, read_workflow
from jade.types import Malformed, Workflow

TEAM = build_team(TeamConfig())
LEGAL = TEAM.grammar.workflows
CODES = tuple(map(str, LEGAL))
ALL_CODES = ("QDS", "QDP", "QR", "R", "DS", "AG", "AS", "P", "X")


def plan(*codes: str) -> Workflow:
    return Workflow(codes)


def method_says_legal(codes: tuple[str, ...]) -> bool:
    """The rule as the method states it, written independently of the grammar."""
    if codes in (("QDS",), ("QDP",)):
        return True
    if not codes or codes[-1] != "AG" or len(set(codes)) != len(codes) or set(codes) - {"QR", "R", "DS", "AG"}:
        return False
    return "DS" not in codes or ("R" in codes and codes.index("R") < codes.index("DS"))


def test_the_grammar_allows_exactly_what_the_method_says() -> None:
    every = [codes for size in range(5) for codes in permutations(ALL_CODES, size)]
    assert {codes for codes in every if method_says_legal(codes)} == {workflow.modules for workflow in LEGAL}


@given(st.lists(st.sampled_from(ALL_CODES), max_size=6).map(tuple))
def test_a_workflow_has_a_complaint_exactly_when_it_is_not_legal(codes: tuple[str, ...]) -> None:
    assert (TEAM.grammar.complaint(Workflow(codes)) is None) == method_says_legal(codes)


@pytest.mark.parametrize("workflow", LEGAL, ids=str)
def test_every_legal_workflow_is_read_as_it_was_printed(workflow: Workflow) -> None:
    assert parse_workflow(print_workflow(workflow), CODES) == workflow
    assert read_workflow(str(workflow)) == workflow


@given(st.text() | st.lists(st.sampled_from([*ALL_CODES, ",", "<workflow>", "</workflow>", " ", "\n"])).map("".join))
@example("<workflow></workflow>")
@example("<workflow>QDS,</workflow>")
@example("<workflow>QDS</workflow> and so on")
@example("<workflow>qds</workflow>")
@example("<workflow>QDS</workflow><workflow>QDS</workflow>")
@example("<workflow>R,,AG</workflow>")
def test_what_parses_is_the_printed_form_of_a_legal_workflow_and_nothing_else(text: str) -> None:
    read = parse_workflow(text, CODES)
    if isinstance(read, Workflow):
        assert read in LEGAL
        assert "".join(text.split()) == print_workflow(read)
    else:
        assert read.reason


@given(st.sampled_from(LEGAL), st.data())
def test_one_changed_character_never_reads_as_the_same_workflow(workflow: Workflow, data: st.DataObject) -> None:
    text = print_workflow(workflow)
    place = data.draw(st.integers(0, len(text) - 1))
    changed = text[:place] + data.draw(st.characters()) + text[place + 1 :]
    assume("".join(changed.split()) != text)
    assert parse_workflow(changed, CODES) != workflow


def test_a_legal_workflow_that_is_not_open_here_is_malformed() -> None:
    assert parse_workflow("<workflow>QDS</workflow>", ("R,AG", "AG")) == Malformed("'QDS' is not a legal workflow here")


@pytest.mark.parametrize(
    ("workflow", "why"),
    [
        (plan(), "no module named"),
        (plan("XX", "AG"), "unknown module 'XX'"),
        (plan("R", "R", "AG"), "a module is repeated"),
        (plan("QDS", "AG"), "a decomposition stands alone"),
        (plan("QR", "R"), "ends in R, not in an answer"),
        (plan("DS", "R", "AG"), "DS needs R before it"),
    ],
)
def test_a_complaint_says_what_is_wrong(workflow: Workflow, why: str) -> None:
    assert TEAM.grammar.complaint(workflow) == why


def test_an_answering_module_ends_its_workflow() -> None:
    grammar = Grammar({code: Module(code, "answer") for code in ("AG", "AX")})
    assert grammar.complaint(plan("AG", "AX")) == "AG is not last"
    assert grammar.workflows == (plan("AG"), plan("AX"))


def test_planner_summariser_and_searcher_stand_in_no_workflow() -> None:
    assert set(grammar_of(TEAM.members.values()).modules) == {"QDS", "QDP", "QR", "R", "DS", "AG"}


def test_plans_open_to_a_node_follow_the_config() -> None:
    team = build_team(TeamConfig(workflows=("QDS", "R, AG"), child_workflows=("AG", "QDP")))
    assert team.legal(child=False).codes == ("QDS", "R,AG")
    assert team.legal(child=True).codes == ("AG", "QDP")


def test_children_choose_as_the_root_when_nothing_else_is_said() -> None:
    team = build_team(TeamConfig(workflows=("QDS", "AG")))
    assert team.legal(child=True) == team.legal(child=False)


def test_a_role_that_works_alone_stands_in_the_place_of_all_workflows() -> None:
    assert TEAM.alone is None
    team = build_team(TeamConfig(workflows=("S1",)))
    assert team == TEAM.leave_to("S1")
    assert team.alone is TEAM.members["S1"]


@pytest.mark.parametrize("setting", [{"workflows": ("S1", "R,AG")}, {"child_workflows": ("S1",)}])
def test_a_role_that_works_alone_is_part_of_no_workflow(setting: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(ConfigError, match="S1 is not a legal workflow: unknown module 'S1'"):
        build_team(TeamConfig.model_validate(setting))


def test_the_plain_plan_is_the_shortest_solving_one_where_retrieve_and_answer_is_not_allowed() -> None:
    assert TEAM.plain_plan([plan("QDS"), plan("QR", "R", "AG"), plan("QR", "AG")]) == plan("QR", "AG")


@pytest.mark.parametrize("setting", ["workflows", "child_workflows"])
def test_an_illegal_workflow_in_the_config_is_named(setting: str) -> None:
    with pytest.raises(ConfigError, match=rf"team\.{setting}: DS,AG is not a legal workflow: DS needs R before it"):
        build_team(TeamConfig.model_validate({setting: ("R,AG", "DS,AG")}))

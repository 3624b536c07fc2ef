"""Parsers: they read what the format allows, say why they read nothing else, and never raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jade.team.parse import (
    MAX_ANSWER_WORDS,
    parse_answer,
    parse_plan,
    parse_query,
    parse_selection,
    parse_subquestions,
    salvage_answer,
    visible,
)
from jade.types import Answer, Malformed, Observation, Passage, Query, Selection, SubQuestions, Workflow

SEEN = Observation(
    "Where was the author of Emma born?",
    passages=tuple(Passage(str(number), "", "text") for number in range(3)),
    legal=("QDS", "R,AG"),
)
PARSERS = {
    parse_plan: Workflow,
    parse_subquestions: SubQuestions,
    parse_query: Query,
    parse_selection: Selection,
    parse_answer: Answer,
}
FRAGMENTS = (
    "<workflow>", "</workflow>", "QDS", "R,AG", "<q1>", "</q1>", "<q2>", "</q2>", "<q01>", "<query>", "</query>",
    "<id>", "</id>", "Document0", "Document2", "Document٣", "Document9999", ",", "<answer>", "</answer>", "Who?",
    "<think>", "</think>", "\n", " ", "\u2028", "\x00", "🦜", "Where was the author of Emma born?",
)  # fmt: skip
ANY_TEXT = st.text() | st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join)
WORD = st.text(st.characters(exclude_categories=["Z", "C"], exclude_characters="<>#"), min_size=1, max_size=8)
LINE = st.lists(WORD, min_size=1, max_size=6).map(" ".join)


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)
@given(text=ANY_TEXT | st.text(st.characters(categories=["Cs", "Co", "Cn", "L"])))
@example(text="<think>" * 500)
def test_a_parser_gives_its_action_or_a_reason_for_any_text(parse: Callable[..., Any], text: str) -> None:
    read = parse(text, SEEN)
    assert isinstance(read, (PARSERS[parse], Malformed))
    assert not isinstance(read, Malformed) or read.reason


@given(ANY_TEXT)
def test_a_salvaged_answer_is_one_short_line_of_the_output(text: str) -> None:
    salvaged = salvage_answer(text)
    assert len(salvaged.split()) <= MAX_ANSWER_WORDS
    assert salvaged == " ".join(salvaged.split())


@given(st.lists(LINE, min_size=2, max_size=5, unique_by=str.casefold))
def test_numbered_sub_questions_are_read_in_order(questions: list[str]) -> None:
    text = "\n".join(f"<q{number}> {question}\n</q{number}>" for number, question in enumerate(questions, start=1))
    assert parse_subquestions(text, SEEN) == SubQuestions(tuple(questions))


@given(LINE)
def test_a_query_and_an_answer_are_read_as_written(line: str) -> None:
    assert parse_query(f"<query>{line}</query>", SEEN) == Query(line)
    assert parse_answer(f"\n<answer> {line} </answer> ", SEEN) == Answer(line)


@given(st.permutations([0, 1, 2]), st.integers(0, 3))
def test_a_selection_keeps_the_order_in_which_documents_are_named(order: list[int], size: int) -> None:
    indices = tuple(order[:size])
    text = f"<id>{', '.join(f'Document{index}' for index in indices)}</id>"
    assert parse_selection(text, SEEN) == Selection(indices)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "fewer than two"),
        ("Who wrote Emma?", "no <q1>"),
        ("<q1>Who wrote Emma?</q1>", "fewer than two"),
        ("<q1>a</q1> then <q2>b</q2>", "outside"),
        ("<q1>a</q1><q3>b</q3>", "without gaps"),
        ("<q2>a</q2><q1>b</q1>", "without gaps"),
        ("<q01>a</q01><q2>b</q2>", "outside"),
        ("<q1>a</q1><q2> </q2>", "empty"),
        ("<q1>Who?</q1><q2>who?</q2>", "repeated"),
        ("<q1>a</q1><q2>where was the AUTHOR of Emma born?</q2>", "the question itself"),
        ("<q1>a <q2>b</q2></q1><q2>c</q2>", "a tag inside"),
    ],
)
def test_sub_questions_out_of_form_are_malformed(text: str, why: str) -> None:
    read = parse_subquestions(text, SEEN)
    assert isinstance(read, Malformed)
    assert why in read.reason


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Document0", "not of the form"),
        ("<id>0</id>", "not DocumentN"),
        ("<id>Document0,</id>", "not DocumentN"),
        ("<id>Document٣</id>", "not DocumentN"),
        ("<id>Document1, Document1</id>", "named twice"),
        ("<id>Document0,Document7</id>", "Document7 was not shown"),
        ("<id>Document3</id>", "Document3 was not shown"),
        ("<id>Document0</id><id>Document1</id>", "more than one <id>"),
    ],
)
def test_selections_out_of_form_are_malformed(text: str, why: str) -> None:
    read = parse_selection(text, SEEN)
    assert isinstance(read, Malformed)
    assert why in read.reason


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Jane Austen", "not of the form"),
        ("<answer>Jane Austen", "not of the form"),
        ("<answer></answer>", "nothing inside"),
        ("<answer>", "not of the form"),
        ("<answer>a</answer><answer>b</answer>", "more than one"),
        ("<answer>a<answer>b</answer>", "more than one"),
        ("<answer>a</answer>.", "not of the form"),
        (f"<answer>{'word ' * 41}</answer>", "an answer of 41 words"),
    ],
)
def test_answers_out_of_form_are_malformed(text: str, why: str) -> None:
    read = parse_answer(text, SEEN)
    assert isinstance(read, Malformed)
    assert why in read.reason


def test_an_answer_may_have_forty_words() -> None:
    assert parse_answer(f"<answer>{'word ' * 40}</answer>", SEEN) == Answer(" ".join(["word"] * 40))


def test_an_empty_selection_means_none_is_useful() -> None:
    assert parse_selection("<id></id>", SEEN) == parse_selection("<id> </id>", SEEN) == Selection(())


@pytest.mark.parametrize("parse", [parse_plan, parse_query, parse_selection, parse_answer])
def test_a_block_of_thought_before_the_output_is_passed_over(parse: Callable[..., Any]) -> None:
    bodies = {
        parse_plan: "<workflow>QDS</workflow>",
        parse_query: "<query>x</query>",
        parse_selection: "<id></id>",
        parse_answer: "<answer>x</answer>",
    }
    thought = "\n<think>It could be <answer>y</answer>\nor not.</think>\n"
    assert parse(thought + bodies[parse], SEEN) == parse(bodies[parse], SEEN)
    assert isinstance(parse(bodies[parse] + thought, SEEN), Malformed)


def test_an_unfinished_thought_is_the_output() -> None:
    assert visible("<think>and so on") == "<think>and so on"
    assert visible("It is so </think> that") == "It is so </think> that"


def test_salvage_takes_the_first_line_without_its_tags() -> None:
    assert salvage_answer("\n\n<answer>Jane  Austen\nbecause she wrote it") == "Jane Austen"
    assert salvage_answer("<answer></answer>") == ""

"""The oracle: right exactly when the retriever brought the evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evaluate_builders import COMPARISON, LIBRARY, ONE_HOP, TWO_HOPS, Shelf, make_crew

from jade.evaluate.oracle import gold_hops, solve_as_oracle
from jade.types import Malformed, Prompt, Question, Trace


def never(prompt: Prompt) -> str:
    raise AssertionError("the oracle has its own voice")


async def ask(question: Question, *, without: tuple[str, ...] = (), k: int = 3) -> Trace:
    shelf = Shelf([passage for passage in LIBRARY if passage.title not in without])
    return await solve_as_oracle(question, make_crew(never, k=k, retriever=shelf), 0)


@pytest.mark.parametrize(
    ("question", "workflow"), [(ONE_HOP, "R,DS,AG"), (TWO_HOPS, "QDS"), (COMPARISON, "QDP")], ids=lambda x: str(x)[:20]
)
async def test_with_the_evidence_in_reach_every_answer_is_gold(question: Question, workflow: str) -> None:
    trace = await ask(question)
    assert trace.answer == question.answers[0]
    assert trace.nodes[0].workflow == workflow
    assert not any(isinstance(step.action, Malformed) for step in trace.steps)


@pytest.mark.parametrize(
    ("question", "missing"),
    [(ONE_HOP, ("Emma", "Persuasion", "Jane Austen")), (TWO_HOPS, ("Jane Austen",)), (COMPARISON, ("Persuasion",))],
    ids=lambda x: str(x)[:20],
)
async def test_without_the_evidence_the_answer_is_unknown(question: Question, missing: tuple[str, ...]) -> None:
    assert (await ask(question, without=missing)).answer == "unknown"


async def test_where_the_gold_steps_do_not_lead_the_plain_way_is_tried() -> None:
    trace = await ask(TWO_HOPS, without=("Emma", "Persuasion"))
    assert trace.answer == "Steventon"
    assert trace.nodes[0].workflow == "R,DS,AG"


async def test_a_hop_is_asked_with_the_answer_before_it() -> None:
    trace = await ask(TWO_HOPS)
    assert [node.question for node in trace.nodes[1:]] == ["Who wrote the novel Emma?", "Where was Jane Austen born?"]
    assert [node.answer for node in trace.nodes[1:]] == ["Jane Austen", "Steventon"]


async def test_a_question_that_has_the_word_in_itself_is_split_like_any_other() -> None:
    trace = await ask(replace(TWO_HOPS, text=f"Question: {TWO_HOPS.text}"), k=1)
    assert (trace.answer, trace.nodes[0].workflow) == ("Steventon", "QDS")


async def test_without_titles_or_hops_the_answer_must_stand_in_a_passage() -> None:
    bare = replace(TWO_HOPS, metadata={})
    assert gold_hops(bare) == ()
    assert (await ask(bare, k=6)).answer == "Steventon"
    assert (await ask(bare, k=1, without=("Jane Austen",))).answer == "unknown"


async def test_pages_found_by_title_must_hold_the_answer_unless_the_question_offers_it() -> None:
    titles = {"supporting_titles": ["Emma", "Rain"]}
    absent = Question("x", "Which colour do both share?", ("blue",), metadata=titles)
    offered = Question("x", "Is Emma red or blue?", ("blue",), metadata=titles)
    assert (await ask(absent)).answer == "unknown"
    assert (await ask(offered)).answer == "blue"


async def test_of_several_golds_the_one_that_was_read_is_said() -> None:
    question = replace(ONE_HOP, answers=("J. A.", "Jane Austen"))
    assert (await ask(question)).answer == "Jane Austen"

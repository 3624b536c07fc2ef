"""Citations: what each answer rests on, and whether it stands there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_builders import (
    AUSTEN,
    EMMA,
    ROMANCE,
    ROOT_QUESTION,
    Library,
    answer,
    by_question,
    crew,
    plan,
    script,
)

from jade.engine.cite import holds, is_supported
from jade.engine.solve import solve
from jade.types import Citation, Passage

ROOT = ROOT_QUESTION.text


async def test_every_solved_node_cites_what_its_answerer_was_shown() -> None:
    voice = script(P=by_question({ROOT: plan("QDS")}, plan("R,DS,AG")), DS="<id>Document0,Document1</id>")
    trace = await solve(ROOT_QUESTION, crew(voice))
    assert [(c.number, c.node, c.passage, c.holds_answer) for c in trace.citations] == [
        (1, "0.1", EMMA, True),
        (2, "0.1", AUSTEN, True),
        (3, "0.2", EMMA, False),
        (4, "0.2", AUSTEN, True),
    ]
    assert trace.supported


async def test_an_answer_that_no_passage_holds_is_not_supported() -> None:
    trace = await solve(ROOT_QUESTION, crew(script(AG=answer("Paris"))))
    assert (trace.answer, trace.supported) == ("Paris", False)
    assert [citation.holds_answer for citation in trace.citations] == [False] * 3


async def test_an_answer_from_memory_cites_nothing() -> None:
    trace = await solve(ROOT_QUESTION, crew(script(P=plan("AG"))))
    assert (trace.citations, trace.supported) == ((), False)


async def test_a_selector_that_keeps_nothing_leaves_nothing_to_cite() -> None:
    trace = await solve(ROOT_QUESTION, crew(script(P=plan("R,DS,AG"), DS="<id></id>")))
    assert (trace.citations, trace.supported) == ((), False)


async def test_the_final_answer_may_stand_in_what_any_node_cites() -> None:
    voice = script(P=by_question({ROOT: plan("QDP")}, plan("R,AG")), AG=answer("Paris"), AS=answer("Hampshire"))
    trace = await solve(ROOT_QUESTION, crew(voice))
    assert not any(citation.holds_answer for citation in trace.citations)
    assert trace.supported


@pytest.mark.parametrize(("passages", "supported"), [((ROMANCE,), True), ((), False)])
async def test_yes_and_no_are_supported_by_whatever_is_cited(passages: tuple[Passage, ...], supported: bool) -> None:
    trace = await solve(ROOT_QUESTION, crew(script(AG=answer("Yes.")), library=Library(passages)))
    assert trace.supported == supported


@pytest.mark.parametrize(
    ("text", "wanted", "expected"),
    [
        ("born in Hampshire.", "the hampshire", True),
        ("born in Hampshire.", "shire", False),
        ("in November", "no", False),
        ("anything", "", False),
        ("anything", "the", False),
        ("O’Brien’s mill of 1939–45", "O'Brien's mill", True),
        ("O’Brien’s mill of 1939–45", "1939-45", True),
        ("O'Brien's mill", "O’Brien", False),
        ("O'Brien's mill", "O’Brien’s", True),
        ("the mill—Ada Lenn’s pride—burned", "Ada Lenn's", True),
        ("the o\ufb03ce in Cafe\u0301 Una", "Office in Café Una", True),
        ("14 October", "4 October", False),
    ],
)
def test_a_passage_holds_an_answer_as_whole_words(text: str, wanted: str, expected: bool) -> None:
    assert holds(replace(ROMANCE, text=text), wanted) == expected


@pytest.mark.parametrize(
    ("said", "supported"), [("Jane Austen; Hampshire", True), ("Jane Austen; Paris", False), (";", False)]
)
def test_an_answer_of_several_parts_is_supported_where_each_is(said: str, supported: bool) -> None:
    """So the engine itself writes the answers of independent sub-questions."""
    texts = ("by Jane Austen", "born in Hampshire")
    cited = [Citation(n, "0.1", replace(ROMANCE, title="", text=text), False) for n, text in enumerate(texts)]
    assert is_supported(said, cited) == supported


def test_a_title_holds_an_answer_too() -> None:
    assert is_supported("Jane Austen", [Citation(1, "0", replace(AUSTEN, text=""), False)])

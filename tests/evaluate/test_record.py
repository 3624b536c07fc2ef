"""Records, retrieval metrics and failure classes, from traces of a scripted team."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evaluate_builders import COMPARISON, ONE_HOP, TWO_HOPS, Shelf, make_crew

from jade.engine.solve import solve
from jade.errors import TraceUnreadable
from jade.evaluate.evidence import answer_rank, found_in, title_recall
from jade.evaluate.failures import Failure, classify_failure
from jade.evaluate.record import dump_record, is_of, parse_record, record_of
from jade.evaluate.store import read_timings
from jade.types import Passage, Prompt, Question, Trace


async def work(question: Question, k: int = 2, shelf: Shelf | None = None, **says: str) -> Trace:
    def script(prompt: Prompt) -> str:
        return says[prompt.role]

    return await solve(question, make_crew(script, k=k, retriever=shelf))


PLAN = "<workflow>R,DS,AG</workflow>"
SPLIT = {"P": "<workflow>QDP</workflow>", "QDP": "<q1>Emma</q1><q2>Jane Austen born</q2>"}


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ({"P": PLAN, "DS": "<id>Document0</id>", "AG": "<answer>Jane Austen</answer>"}, None),
        ({"P": PLAN, "DS": "<id>Document0</id>", "AG": "<answer>Woodhouse</answer>"}, Failure.MISREAD),
        ({"P": PLAN, "DS": "<id></id>", "AG": "<answer>Woodhouse</answer>"}, Failure.NOT_SELECTED),
        ({"P": "<workflow>AG</workflow>", "AG": "<answer>Woodhouse</answer>"}, Failure.NOT_RETRIEVED),
    ],
)
async def test_a_wrong_question_is_sorted_by_where_its_evidence_was_lost(
    says: dict[str, Any], expected: Failure | None
) -> None:
    trace = await work(ONE_HOP, **says)
    assert classify_failure(trace) == expected
    assert record_of(trace).failure == expected


async def test_a_right_part_with_a_wrong_whole_is_lost_in_synthesis() -> None:
    children = {"AG": "<answer>Steventon</answer>", "AS": "<answer>Rome</answer>"}

    def script(prompt: Prompt) -> str:
        if prompt.role == "P" and prompt.user.endswith("Question: " + TWO_HOPS.text):
            return SPLIT["P"]
        return {"P": "<workflow>R,AG</workflow>", "QDP": SPLIT["QDP"], **children}[prompt.role]

    trace = await solve(TWO_HOPS, make_crew(script))
    assert classify_failure(trace) == Failure.LOST
    assert record_of(trace).depth == 1


async def test_yes_and_no_have_their_evidence_in_the_supporting_pages() -> None:
    says: dict[str, Any] = {"P": "<workflow>R,AG</workflow>", "AG": "<answer>no</answer>"}
    assert classify_failure(await work(COMPARISON, k=3, **says)) == Failure.MISREAD
    assert classify_failure(await work(COMPARISON, k=1, **says)) == Failure.NOT_RETRIEVED


async def test_a_question_that_failed_scores_zero_and_says_why() -> None:
    trace = await work(ONE_HOP)
    record = record_of(trace)
    assert record.error is not None
    assert set(record.scores.values()) == {0.0}
    assert record.failure == "error"
    wrong = replace(trace, answer="Jane Austen")
    assert set(record_of(wrong).scores.values()) == {0.0}


@pytest.mark.parametrize(("budget", "fails", "failed"), [({"retrievals": 0}, False, 0), ({}, True, 1)])
async def test_a_search_that_a_budget_refused_did_not_fail(budget: dict[str, int], fails: bool, failed: int) -> None:
    says: dict[str, str] = {"P": "<workflow>R,AG</workflow>", "AG": "<answer>Jane Austen</answer>"}
    crew = make_crew(lambda prompt: says[prompt.role], retriever=Shelf(fails=fails), **budget)
    record = record_of(await solve(ONE_HOP, crew))
    assert (record.failed_steps, record.error) == (failed, None)


async def test_a_record_holds_scores_costs_and_the_plan() -> None:
    trace = await work(ONE_HOP, P="no plan", AG="<answer>Jane</answer>")
    record = record_of(trace)
    assert record.scores == pytest.approx(
        {"em": 0.0, "f1": 2 / 3, "precision": 1.0, "recall": 0.5, "accuracy": 0.0, "outcome": 2 / 3}
    )
    assert record.cost["calls"] == 2
    assert (record.cost["rounds"], record.cost["retrievals"]) == (1, 1)
    assert (record.workflow, record.depth, record.trace) == ("R,AG", 0, "one@0")
    assert record.malformed == {"AG": [0, 1], "P": [1, 1]}
    assert (record.answer_rank, record.title_recall) == (1, 1.0)


async def test_yes_and_no_are_reported_both_ways() -> None:
    says: dict[str, Any] = {"P": "<workflow>R,AG</workflow>", "AG": "<answer>yes they are</answer>"}
    scores = record_of(await work(COMPARISON, **says)).scores
    assert scores["f1"] == pytest.approx(0.5)
    assert scores["outcome"] == scores["em"] == 0.0


async def test_a_record_survives_being_written_and_knows_its_question() -> None:
    record = record_of(await work(ONE_HOP, P=PLAN, DS="<id></id>", AG="<answer>ünï [b] \u2028</answer>"))
    assert parse_record(dump_record(record), "here") == record
    assert "\n" not in dump_record(record)
    assert is_of(record, ONE_HOP)
    assert not is_of(record, replace(ONE_HOP, answers=("Austen",)))


@pytest.mark.parametrize("line", ["{", "[]", '{"id": "x"}', "null"])
def test_a_line_that_is_no_record_is_named(line: str) -> None:
    with pytest.raises(TraceUnreadable, match="file:3: not a record"):
        parse_record(line, "file:3")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"scores": {"f1": None}}, r"scores\.f1: Input should be a valid number"),
        ({"depth": "deep"}, "depth: Input should be a valid integer"),
        ({"malformed": {"P": 3}}, r"malformed\.P: Input should be a valid list"),
    ],
)
async def test_a_field_of_another_type_is_named(change: dict[str, Any], why: str) -> None:
    data = json.loads(dump_record(record_of(await work(ONE_HOP, P=PLAN)))) | {"of a newer version": 1}
    assert parse_record(json.dumps(data), "file:3").id == "one"
    with pytest.raises(TraceUnreadable, match=f"file:3: not a record of this version .{why}"):
        parse_record(json.dumps(data | change), "file:3")


def test_a_line_that_is_no_timing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "timings.jsonl"
    path.write_text('{"id": "a", "session": 0, "began": 0, "ended": "x", "seconds": 1}\n')
    with pytest.raises(
        TraceUnreadable, match=r"timings\.jsonl:1: not a timing \(ended: Input should be a valid number"
    ):
        list(read_timings(path))


async def test_retrieval_is_measured_over_all_searches_of_a_question() -> None:
    trace = await work(ONE_HOP, k=3, P="<workflow>R,AG</workflow>", AG="<answer>x</answer>")
    assert answer_rank(trace) == 1
    assert title_recall(found_in(trace.steps), ["emma", "The Rain"]) == 0.5
    assert title_recall(found_in(trace.steps), []) is None
    rain = Shelf([Passage("1", "Rain", "Who is it?")])
    lost = await work(ONE_HOP, shelf=rain, P="<workflow>R,AG</workflow>", AG="<answer>x</answer>")
    assert answer_rank(lost) is None


async def test_a_no_somewhere_in_a_passage_is_not_an_answer_found() -> None:
    shelf = Shelf([Passage("1", "Emma", "No novel by one author is like Emma and Persuasion; yes, no other.")])
    trace = await work(COMPARISON, shelf=shelf, P="<workflow>R,AG</workflow>", AG="<answer>yes</answer>")
    assert found_in(trace.steps) != []
    assert answer_rank(trace) is None

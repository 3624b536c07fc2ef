"""What selectors kept, counted from traces of a scripted team, and the table of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from evaluate_builders import COMPARISON, ONE_HOP, Shelf, make_crew
from report_fixture import SETTINGS, write_run

from jade.engine.solve import solve
from jade.evaluate.arms import read_arms
from jade.evaluate.board import read_board
from jade.evaluate.record import dump_record, parse_record, record_of
from jade.evaluate.store import Cell, CellFiles, Timing, open_run
from jade.evaluate.tables import selection_table
from jade.reward.selection import Kept, added_up
from jade.types import Passage, Question, Trace

SHELF = Shelf(
    [
        Passage("1", "Emma", "Who wrote it is not said here."),
        Passage("2", "Emma", "Jane Austen is who wrote it."),
        Passage("3", "Emma", "Who wrote it, again, is not said."),
    ]
)


async def select(ids: str, question: Question = ONE_HOP, plan: str = "R,DS,AG") -> Trace:
    says = {"P": f"<workflow>{plan}</workflow>", "DS": ids, "AG": "<answer>x</answer>"}
    return await solve(question, make_crew(lambda prompt: says[prompt.role], k=3, retriever=SHELF))


@pytest.mark.parametrize(
    ("ids", "kept", "kept_held", "first_held"),
    [
        ("<id>Document1</id>", 1, 1, 0),
        ("<id>Document2,Document0</id>", 2, 0, 1),
        ("<id></id>", 0, 0, 0),
        ("what cannot be read keeps all", 3, 1, 1),
    ],
)
async def test_a_selection_is_held_against_as_many_passages_from_the_top(
    ids: str, kept: int, kept_held: int, first_held: int
) -> None:
    record = record_of(await select(ids))
    assert record.selection == asdict(Kept(1, 3, kept, 1, kept_held, first_held))
    assert parse_record(dump_record(record), "here") == record


async def test_yes_and_no_stand_in_no_passage_and_who_does_not_select_has_no_selection() -> None:
    assert record_of(await select("<id>Document0</id>", COMPARISON)).selection == asdict(Kept(1, 3, 1))
    assert record_of(await select("", plan="R,AG")).selection is None


async def test_a_record_of_before_selections_were_counted_is_still_read() -> None:
    record = record_of(await select("<id></id>"))
    old = {name: value for name, value in json.loads(dump_record(record)).items() if name != "selection"}
    assert parse_record(json.dumps(old), "here").selection is None


def test_selections_add_up() -> None:
    assert added_up([Kept(1, 10, 2, 1, 1, 0), Kept(1, 5, 3, 0, 0, 0)]) == Kept(2, 15, 5, 1, 1, 0)
    assert added_up([]) == Kept()


async def test_a_report_tells_a_selector_from_the_order_of_the_search(tmp_path: Path) -> None:
    open_run(tmp_path / "run", SETTINGS, {"versions": {}})
    for method, ids in (("jade", "<id>Document1</id>"), ("bgm", "<id>Document0,Document2</id>")):
        files = CellFiles(tmp_path / "run", Cell("nq", method, 0))
        files.folder.mkdir(parents=True)
        trace = await select(ids)
        files.append(trace, Timing("one", 0, 0.0, 1.0, 1.0), record_of(trace))
    table = selection_table(read_board(read_arms([str(tmp_path / "run")])))
    assert table is not None
    cells = {row[0].text: (row[1].text, row[1].small) for row in table.rows}
    assert cells == {
        "BGM": ("2.0 of 3.0", ("answer kept 0.0", "from the top 100.0")),
        "JADE": ("1.0 of 3.0", ("answer kept 100.0", "from the top 0.0")),
    }


def test_a_report_without_selectors_has_no_table_of_them(tmp_path: Path) -> None:
    assert selection_table(read_board(read_arms([str(write_run(tmp_path / "run"))]))) is None

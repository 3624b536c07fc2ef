"""Arms: runs of one name are pooled question by question, and only where they were measured alike."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_fixture import HALF, RIGHT, WRONG, make_trace, write_answers

from jade.errors import ConfigError, TraceUnreadable
from jade.evaluate.arms import Arm, read_arms
from jade.evaluate.board import Board, read_board
from jade.evaluate.cell import CellResult
from jade.evaluate.content import compose
from jade.evaluate.effect import Doubt, difference_table, f1_table, runs_table
from jade.evaluate.remarks import remarks
from jade.evaluate.statistics import compare
from jade.evaluate.store import Cell, CellFiles
from jade.evaluate.tables import Table, cost_table, failure_table

DOUBT = Doubt(resamples=300, seed=0)


def board_of(*given: str) -> Board:
    return read_board(read_arms(given))


def texts(table: Table) -> dict[str, list[str]]:
    return {row[0].text: [entry.text for entry in row[1:]] for row in table.rows}


@pytest.fixture
def pooled(tmp_path: Path) -> Board:
    """Two seeds of "joint" against one of "warm", on the same four questions."""
    seeds = {
        "j0": [RIGHT, RIGHT, WRONG, WRONG],
        "j1": [RIGHT, WRONG, WRONG, RIGHT],
        "w0": [WRONG, WRONG, WRONG, RIGHT],
    }
    for seed, (name, answers) in enumerate(seeds.items()):
        write_answers(tmp_path / name, {"nq": answers}, seed=seed, weights={"shared": [name]})
    return board_of(f"joint={tmp_path}/j0", f"joint={tmp_path}/j1", f"warm={tmp_path}/w0")


def test_runs_of_one_name_are_one_arm_in_the_order_given() -> None:
    assert read_arms(["b=x/0", "plain", "a=y", "b=x/1"]) == [
        Arm("b", (Path("x/0"), Path("x/1"))),
        Arm("", (Path("plain"),)),
        Arm("a", (Path("y"),)),
    ]


def test_a_folder_with_an_equals_sign_in_its_name_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "lr=0.1").mkdir()
    assert read_arms([str(tmp_path / "lr=0.1")]) == [Arm("", (tmp_path / "lr=0.1",))]
    assert read_arms([f"low={tmp_path}/lr=0.1"]) == [Arm("low", (tmp_path / "lr=0.1",))]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["a=x", "a=x"], "a=x is given twice"),
        (["x", "x"], "x is given twice"),
        (["=x"], "'=x' is not of the form NAME=FOLDER"),
        (["a="], "'a=' is not of the form NAME=FOLDER"),
    ],
)
def test_arms_that_cannot_be_meant_are_refused_in_one_line(given: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_arms(given)
    assert str(caught.value).startswith(complaint)


def test_a_pooled_questions_score_is_its_mean_over_the_runs(pooled: Board) -> None:
    joint = pooled.column("joint")
    assert joint is not None
    assert joint.cells["nq"].scores("f1").tolist() == [1.0, 0.5, 0.0, 0.5]
    assert texts(f1_table(pooled, DOUBT)) == {"joint": ["50.0"], "warm": ["25.0"]}


def test_differences_are_paired_by_question_and_resample_questions_not_runs(pooled: Board) -> None:
    warm, joint = pooled.column("warm"), pooled.column("joint")
    assert warm is not None
    assert joint is not None
    (row,) = difference_table(pooled, warm, DOUBT).rows
    joint_f1, warm_f1 = np.array([1.0, 0.5, 0.0, 0.5]), np.array([0.0, 0.0, 0.0, 1.0])
    expected = compare({"nq": joint_f1}, {"nq": warm_f1}, 300)
    assert row[1].text == "+25.0"
    assert row[1].small[0] == f"{100 * expected.low:+.1f} to {100 * expected.high:+.1f}".replace("-", "−")
    assert row[1].small[1] == f"p = {expected.p_value:.3f}"


def test_every_pooled_run_is_also_shown_by_itself(pooled: Board) -> None:
    table = runs_table(pooled)
    assert table is not None
    assert texts(table) == {"joint: j0": ["50.0"], "joint: j1": ["50.0"]}
    assert runs_table(board_of(*(str(run) for run in pooled.runs))) is None


def test_the_prices_a_planner_was_told_are_among_the_facts(tmp_path: Path) -> None:
    write_answers(tmp_path / "low", {"nq": [RIGHT]}, prices={"alpha": 0.2, "beta": 0.1})
    facts = dict(compose(board_of(str(tmp_path / "low")), DOUBT).facts)
    assert ", prices 0.2 a turn and 0.1 a search" in facts["run “low”"]


def test_of_several_runs_each_says_only_how_it_differs(tmp_path: Path) -> None:
    start = {"model": "start"}
    write_answers(tmp_path / "a", {"nq": [RIGHT]}, backbone={"model": "one"}, roles={"P": start, "AS": start})
    write_answers(tmp_path / "b", {"nq": [RIGHT]}, backbone={"model": "other"})
    facts = dict(compose(board_of(str(tmp_path / "a"), str(tmp_path / "b")), DOUBT).facts)
    assert facts["run “a”"] == "model one, P AS by start"
    assert facts["run “b”"] == "model other"
    assert facts["all runs"] == "index an-index, k 2, split test, all questions, seed 0, temperature 0.0"


def test_an_arm_that_is_called_like_its_method_has_its_published_name(tmp_path: Path) -> None:
    write_answers(tmp_path / "a", {"nq": [RIGHT]})
    assert list(texts(f1_table(board_of(f"vanilla-rag={tmp_path}/a"), DOUBT))) == ["Vanilla RAG"]


def test_costs_failures_and_times_are_of_all_runs(pooled: Board) -> None:
    assert texts(cost_table(pooled))["joint"] == ["1.00", "1.00", "1.00", "100", "10.0", "1.00", "0.57"]
    assert texts(failure_table(pooled))["joint"][0] == "50.0"
    assert compose(pooled, DOUBT, baseline="warm").title == "2 arms on 1 benchmark"


def test_only_questions_that_all_runs_have_count(tmp_path: Path) -> None:
    write_answers(tmp_path / "a", {"nq": [WRONG, RIGHT, RIGHT]})
    write_answers(tmp_path / "b", {"nq": [RIGHT, HALF, WRONG]}, first=1)
    (column,) = board_of(f"x={tmp_path}/a", f"x={tmp_path}/b").columns
    cell = column.cells["nq"]
    assert cell.ids == ("nq-1", "nq-2")
    assert cell.scores("f1").tolist() == pytest.approx([1.0, (1 + 2 / 3) / 2])
    assert (cell.f1_of_run(0), cell.f1_of_run(1)) == pytest.approx((1.0, (1 + 2 / 3) / 2))
    assert len(cell.records) == 4


def test_other_questions_under_the_same_numbers_are_neither_pooled_nor_compared(tmp_path: Path) -> None:
    write_answers(tmp_path / "a", {"nq": [WRONG, RIGHT]})
    records = write_answers(tmp_path / "b", {"nq": [RIGHT, WRONG]}) / "nq/vanilla-rag/records.jsonl"
    records.write_text(records.read_text().replace("Who wrote number 1?", "Who drew number 1?"))
    (column,) = board_of(f"x={tmp_path}/a", f"x={tmp_path}/b").columns
    assert column.cells["nq"].ids == ("nq-0",)
    apart = board_of(f"x={tmp_path}/a", f"y={tmp_path}/b")
    assert texts(difference_table(apart, apart.columns[0], DOUBT)) == {"y": ["+100.0"]}
    records.write_text(records.read_text().replace("Who wrote number 0?", "Who drew number 0?"))
    apart = board_of(f"x={tmp_path}/a", f"y={tmp_path}/b")
    assert texts(difference_table(apart, apart.columns[0], DOUBT)) == {"y": ["–"]}
    with pytest.raises(TraceUnreadable, match="x: no question that all of"):
        board_of(f"x={tmp_path}/a", f"x={tmp_path}/b")


def test_a_benchmark_that_only_some_runs_have_is_left_out_and_named(tmp_path: Path) -> None:
    write_answers(tmp_path / "a", {"nq": [RIGHT], "hotpotqa": [RIGHT]})
    write_answers(tmp_path / "b", {"nq": [WRONG]})
    board = board_of(f"x={tmp_path}/a", f"x={tmp_path}/b")
    assert board.benchmarks == ("nq",)
    assert dict(compose(board, DOUBT).facts)["left out"] == "x hotpotqa/vanilla-rag (only in a)"


@pytest.mark.parametrize(
    ("settings", "difference"),
    [
        ({"limit": 7}, "limit (None, now 7)"),
        ({"index": "other"}, "index ('an-index', now 'other')"),
        ({"retrieval": {"k": 9}}, "retrieval.k (2, now 9)"),
    ],
)
def test_runs_that_were_not_measured_alike_are_not_pooled(
    tmp_path: Path, settings: dict[str, Any], difference: str
) -> None:
    write_answers(tmp_path / "a", {"nq": [RIGHT]}, seed=0)
    write_answers(tmp_path / "b", {"nq": [RIGHT]}, seed=1, **settings)
    with pytest.raises(ConfigError) as caught:
        board_of(f"x={tmp_path}/a", f"x={tmp_path}/b")
    assert str(caught.value).endswith(f"as 'x': it has another {difference}")


def test_a_retrieval_server_may_have_moved_between_runs(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_answers(tmp_path / str(seed), {"nq": [RIGHT]}, seed=seed, index=f"http://127.0.0.1:{8000 + seed}")
    assert [column.label for column in board_of(f"x={tmp_path}/0", f"x={tmp_path}/1").columns] == ["x"]


def test_an_arm_of_several_methods_is_named_with_each_of_them(tmp_path: Path) -> None:
    for name in ("old", "new"):
        write_answers(tmp_path / name, {"nq": [RIGHT]})
        write_answers(tmp_path / name, {"nq": [WRONG]}, method="jade")
    board = board_of(f"old={tmp_path}/old", f"new={tmp_path}/new")
    labels = ["vanilla-rag (old)", "vanilla-rag (new)", "jade (old)", "jade (new)"]
    assert [column.label for column in board.columns] == labels
    assert list(texts(f1_table(board, DOUBT))) == ["Vanilla RAG (old)", "Vanilla RAG (new)", "JADE (old)", "JADE (new)"]


def test_single_hop_and_multi_hop_have_means_of_their_own(tmp_path: Path) -> None:
    answers = {"nq": [RIGHT], "popqa": [WRONG], "hotpotqa": [RIGHT], "2wiki": [WRONG], "musique": [WRONG]}
    write_answers(tmp_path / "a", answers)
    board = board_of(str(tmp_path / "a"))
    table = f1_table(board, DOUBT)
    assert table.header[-3:] == ("single-hop", "multi-hop", "mean")
    assert texts(table)["Vanilla RAG"][-3:] == ["50.0", "33.3", "40.0"]
    assert [part.benchmarks for part in board.means] == [
        ("nq", "popqa"),
        ("hotpotqa", "2wiki", "musique"),
        tuple(answers),
    ]


@pytest.mark.parametrize(
    ("benchmarks", "means"),
    [
        (["nq"], []),
        (["nq", "popqa"], ["mean"]),
        (["nq", "hotpotqa"], ["mean"]),
        (["nq", "hotpotqa", "2wiki"], ["multi-hop", "mean"]),
        (["nq", "world"], ["mean"]),
    ],
)
def test_a_mean_that_would_say_nothing_new_is_left_out(tmp_path: Path, benchmarks: list[str], means: list[str]) -> None:
    write_answers(tmp_path / "a", {name: [RIGHT] for name in benchmarks})
    assert [part.title for part in board_of(str(tmp_path / "a")).means] == means


def test_a_mean_over_benchmarks_resamples_each_within_itself(tmp_path: Path) -> None:
    write_answers(tmp_path / "a", {"nq": [RIGHT] * 5, "popqa": [WRONG] * 5})
    write_answers(tmp_path / "b", {"nq": [WRONG] * 5, "popqa": [WRONG] * 5})
    board = board_of(f"a={tmp_path}/a", f"b={tmp_path}/b")
    baseline = board.column("b")
    assert baseline is not None
    (row,) = difference_table(board, baseline, DOUBT).rows
    assert (row[-1].text, row[-1].small) == ("+50.0", ("+50.0 to +50.0", "p = 0.003"))


def test_yes_and_no_do_not_count_in_answer_recall(tmp_path: Path) -> None:
    run = write_answers(tmp_path / "a", {"nq": [RIGHT] * 4})
    path = run / "nq/vanilla-rag/records.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["answer_rank"] for record in records] == [2, 1, 2, 1]
    records[0] |= {"golds": ["no"], "answer_rank": None}
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    cell = board_of(str(run)).columns[0].cells["nq"]
    assert (cell.answer_recall(1), cell.answer_recall(2)) == pytest.approx((2 / 3, 1.0))
    path.write_text(json.dumps(records[0]) + "\n")
    assert board_of(str(run)).columns[0].cells["nq"].answer_recall(2) is None


def test_a_cell_of_one_run_is_just_that_run(pooled: Board) -> None:
    warm = pooled.column("warm")
    assert warm is not None
    cell = warm.cells["nq"]
    assert isinstance(cell, CellResult)
    assert [record.id for record in cell.records] == list(cell.ids)
    lines = cell.runs[0].files.records.read_text().splitlines()
    assert [json.loads(line)["scores"]["f1"] for line in lines] == cell.scores("f1").tolist()


def test_a_method_that_could_search_and_did_not_is_pointed_out(tmp_path: Path) -> None:
    write_answers(tmp_path / "a", {"nq": [RIGHT] * 3}, method="no-retrieval")
    write_answers(tmp_path / "a", {"popqa": [RIGHT] * 3})
    os.renames(tmp_path / "a/nq/no-retrieval", tmp_path / "a/nq/search-r1")
    assert remarks(board_of(str(tmp_path / "a"))) == ["Search-R1 searched for 0 of 3 answers"]


def test_unreadable_roles_failures_and_rows_that_are_one_are_pointed_out(tmp_path: Path) -> None:
    run = write_answers(tmp_path / "a", {"nq": [RIGHT, WRONG, WRONG]}, method="jade")
    shutil.copytree(run / "nq/jade", run / "nq/mao-arag")
    path = run / "nq/jade/records.jsonl"
    assert remarks(board_of(str(run))) == [
        "malformed outputs of MAO-ARAG: P 33 %",
        "malformed outputs of JADE: P 33 %",
        "MAO-ARAG and JADE gave the same answers throughout",
    ]
    first, *others = path.read_text().splitlines(keepends=True)
    other = json.loads(first) | {"answer": "", "error": "gone", "malformed": {"P": [0, 1]}}
    path.write_text("".join([json.dumps(other) + "\n", *others]))
    noted = remarks(board_of(str(run)))
    assert noted[1:] == ["1 of 3 questions of JADE failed and score 0"]
    assert [text for name, text in compose(board_of(str(run)), DOUBT).facts if name == "mind"] == noted


def test_answers_that_the_clock_cut_short_are_pointed_out(tmp_path: Path) -> None:
    run = write_answers(tmp_path / "a", {"nq": [RIGHT] * 3})
    path = run / "nq/vanilla-rag/records.jsonl"
    first, second, third = path.read_text().splitlines(keepends=True)
    cut_short, out_of_calls = (
        json.loads(line) | {"stopped": by} for line, by in ((first, "seconds"), (second, "calls"))
    )
    path.write_text("".join([json.dumps(cut_short) + "\n", json.dumps(out_of_calls) + "\n", third]))
    (remark,) = remarks(board_of(str(run)))
    assert remark.startswith("1 of 3 questions of Vanilla RAG were cut short by the clock (budget.seconds)")


def test_a_run_that_was_stopped_is_not_taken_for_a_finished_one(tmp_path: Path) -> None:
    run = write_answers(tmp_path / "a", {"nq": [RIGHT] * 3})
    asked = [make_trace("nq", "vanilla-rag", place, answer=RIGHT).question for place in range(5)]
    files = CellFiles(run, Cell("nq", "vanilla-rag"))
    assert len(files.resume(asked)) == 3
    (remark,) = remarks(board_of(str(run)))
    assert remark.startswith("Vanilla RAG has 3 of 5 questions of NQ: its run is not finished")
    files.resume(asked[:3])
    assert remarks(board_of(str(run))) == []

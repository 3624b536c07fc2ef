"""The change of a difference: what one arm has over another, less what a third has over a fourth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from report_fixture import HALF, RIGHT, WRONG, make_trace, write_answers
from typer.testing import CliRunner

from jade.cli import report
from jade.errors import ConfigError
from jade.evaluate.arms import Arm, read_arms
from jade.evaluate.board import Board, Column, read_board
from jade.evaluate.cell import CellResult, Finished
from jade.evaluate.content import compose
from jade.evaluate.effect import Change, Doubt, change_table, difference_table
from jade.evaluate.record import record_of
from jade.evaluate.statistics import compare
from jade.evaluate.store import Cell, CellFiles
from jade.evaluate.tables import Entry, Table

DOUBT = Doubt(resamples=300, seed=0)
ARMS = {
    "select": {"nq": [RIGHT, RIGHT, RIGHT, WRONG], "hotpotqa": [RIGHT, RIGHT]},
    "whole": {"nq": [RIGHT, WRONG, WRONG, WRONG], "hotpotqa": [RIGHT, WRONG]},
    "select-before": {"nq": [WRONG, WRONG, RIGHT, WRONG], "hotpotqa": [WRONG, RIGHT]},
    "whole-before": {"nq": [RIGHT, WRONG, RIGHT, WRONG], "hotpotqa": [RIGHT, RIGHT]},
}
FOUR = ",".join(ARMS)


@pytest.fixture
def given_runs(tmp_path: Path) -> list[str]:
    """A run for each arm, as `jade report` takes them."""
    return [f"{name}={write_answers(tmp_path / name, answers)}" for name, answers in ARMS.items()]


def column_of(name: str, answers: dict[str, Sequence[str]]) -> Column:
    """A column of these answers, by benchmark, without files."""
    cells = {}
    for benchmark, texts in answers.items():
        cell = Cell(benchmark, "vanilla-rag")
        records = [record_of(make_trace(benchmark, cell.method, n, answer=text)) for n, text in enumerate(texts)]
        cells[benchmark] = CellResult(cell, [Finished(CellFiles(Path(), cell), records, ())])
    return Column(name, "vanilla-rag", 0, Arm(name, ()), cells)


def changed(runs: Sequence[str], *changes: str) -> Table:
    """The table of changes in the report of some runs."""
    content = compose(read_board(read_arms(runs)), DOUBT, changes=changes)
    (table,) = [table for table in content.verdict if table.title == "Change of a difference"]
    return table


def refusal(runs: Sequence[str], change: str) -> str:
    with pytest.raises(ConfigError) as caught:
        changed(runs, change)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_change_is_the_first_difference_less_the_second(given_runs: list[str]) -> None:
    table = changed(given_runs, FOUR)
    assert table.header == ("difference", "NQ", "HotpotQA", "mean")
    ((name, nq, hotpotqa, mean),) = table.rows
    assert astuple(name)[:2] == ("select over whole", ("less select-before over whole-before",))
    # By question: NQ 0, 1, 1, 0 less -1, 0, 0, 0, so 1, 1, 1, 0; HotpotQA 0, 1 less -1, 0, so 1, 1.
    assert (nq.text, nq.small[2]) == ("+75.0", "+50.0 less −25.0")
    # Of four draws none is that 0 once in 256 times, at most one is not 0 in 13 of 256: 2.5 % lies between.
    assert nq.small[0] == "+25.0 to +100.0"
    assert nq.small[1] == f"p = {compare({'nq': np.array([1.0, 1, 1, 0])}, {'nq': np.zeros(4)}, 300).p_value:.3f}"
    assert (hotpotqa.text, hotpotqa.small) == ("+100.0", ("+100.0 to +100.0", "p = 0.003", "+50.0 less −50.0"))
    assert (mean.text, mean.small[0], mean.small[2]) == ("+87.5", "+62.5 to +100.0", "+50.0 less −37.5")
    assert "on the questions that all four have" in table.note


def test_only_questions_that_all_four_have_count(tmp_path: Path, given_runs: list[str]) -> None:
    late = write_answers(tmp_path / "late", {"nq": [WRONG, RIGHT, WRONG, RIGHT]}, first=1)
    table = changed([*given_runs[:3], f"late={late}"], "select,whole,select-before,late")
    # NQ's questions 1 to 3: 1, 1, 0 less 0, 0, 0. HotpotQA the last has not.
    assert [entry.text for entry in table.rows[0][1:]] == ["+66.7", "–", "–"]
    assert table.rows[0][1].small[2] == "+66.7 less +0.0"


def test_a_plain_difference_is_the_change_against_an_arm_less_itself(given_runs: list[str]) -> None:
    board = read_board(read_arms(given_runs))
    select, whole, before, _ = board.columns
    (row,) = change_table(board, [Change((select, whole), (before, before))], DOUBT).rows
    plain = difference_table(board, whole, DOUBT).rows[0]
    assert [(entry.text, entry.small[:2]) for entry in row[1:]] == [(entry.text, entry.small) for entry in plain[1:]]


answers = st.sampled_from([RIGHT, HALF, WRONG])
four_answers = st.tuples(answers, answers, answers, answers)
sets_of_questions = st.lists(st.lists(four_answers, min_size=1, max_size=6), min_size=1, max_size=2)


@settings(max_examples=30)
@given(sets_of_questions)
def test_swapping_the_pairs_turns_the_sign_and_nothing_else(asked: list[list[tuple[str, ...]]]) -> None:
    sets = dict(zip(("nq", "hotpotqa"), asked, strict=False))
    a, b, c, d = (column_of(str(n), {name: [q[n] for q in each] for name, each in sets.items()}) for n in range(4))
    board = Board(tuple(sets), (a, b, c, d))
    there, back = change_table(board, [Change((a, b), (c, d)), Change((c, d), (a, b))], DOUBT).rows
    for one, other in zip(there[1:], back[1:], strict=True):
        (change, low, high, upper, lower), turned = points(one), points(other)
        assert turned == pytest.approx((-change, -high, -low, lower, upper), abs=0.11), "at most a last digit"
        assert one.small[1] == other.small[1], "the p-value"


def points(entry: Entry) -> tuple[float, ...]:
    """The change, the ends of its interval and the two differences."""
    interval, _, both = entry.small
    said = (entry.text, *interval.split(" to "), *both.split(" less "))
    return tuple(float(text.replace("−", "-")) for text in said)


def test_the_table_is_in_markdown_and_html_with_a_row_for_each_change(tmp_path: Path, given_runs: list[str]) -> None:
    app = typer.Typer()
    app.command()(report.command)
    back = "select-before, whole-before, select, whole"
    options = ["--out", str(tmp_path / "report"), "--resamples", "100", "--change", FOUR, "--change", back]
    done = CliRunner().invoke(app, [*given_runs, *options])
    assert done.exit_code == 0, done.output
    markdown, html = ((tmp_path / "report" / name).read_text() for name in ("report.md", "report.html"))
    assert "## Change of a difference" in markdown
    assert "| select over whole<br><sub>less select-before over whole-before</sub> | \\+75.0<br>" in markdown
    assert "| select-before over whole-before<br><sub>less select over whole</sub> | −75.0<br>" in markdown
    assert "<h2>Change of a difference</h2>" in html
    assert "<th scope=row>select over whole<small>less select-before over whole-before</small></th><td>+75.0" in html


def test_without_a_change_there_is_no_table_of_it(given_runs: list[str]) -> None:
    titles = [table.title for table in compose(read_board(read_arms(given_runs)), DOUBT).verdict]
    assert "Change of a difference" not in titles


def test_one_arm_may_stand_between_two_others(given_runs: list[str]) -> None:
    """What the second step adds less what the first did."""
    table = changed(given_runs, "select,whole,whole,whole-before")
    assert table.rows[0][1].small[2] == "+50.0 less −25.0"


@pytest.mark.parametrize("change", ["", "select", "select,whole", f"{FOUR},select", "select,whole,,whole-before"])
def test_other_than_four_names_are_refused(given_runs: list[str], change: str) -> None:
    assert refusal(given_runs, change).startswith(
        f"--change {change!r}: give four names, A,B,C,D for what A has over B"
    )


def test_a_name_that_is_not_there_is_refused_with_those_that_are(given_runs: list[str]) -> None:
    said = refusal(given_runs, "select,whole,selct,whole-before")
    assert said == f"--change 'selct': no such method in these runs; there are {', '.join(ARMS)}"


@pytest.mark.parametrize(
    ("change", "twice"),
    [
        ("select,select,select-before,whole-before", "select"),
        ("select,whole,whole-before,whole-before", "whole-before"),
        ("select,whole,select,whole-before", "select"),
        ("select,whole,select-before,whole", "whole"),
        ("select,whole,select,whole", "select"),
    ],
)
def test_a_name_that_cancels_itself_out_is_refused(given_runs: list[str], change: str, twice: str) -> None:
    remedy = "put another name in one of its places, or take --baseline for a plain difference"
    assert refusal(given_runs, change) == f"--change {change!r}: {twice!r} cancels itself out; {remedy}"


def test_four_without_a_question_in_common_are_refused(tmp_path: Path, given_runs: list[str]) -> None:
    other = write_answers(tmp_path / "other", {"nq": [RIGHT]}, first=9)
    said = refusal([*given_runs[:3], f"other={other}"], "select,whole,select-before,other")
    assert said.startswith("--change 'select,whole,select-before,other': no question that all four have; run jade eval")


def test_a_refused_change_leaves_no_report(tmp_path: Path, given_runs: list[str]) -> None:
    with pytest.raises(ConfigError, match="--change 'select'"):
        report.command(given_runs, tmp_path / "report", change=["select"])
    assert not (tmp_path / "report").exists()

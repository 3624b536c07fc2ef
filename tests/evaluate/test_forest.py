"""The picture that compares arms: it draws what the tables say, and a dot for every run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from report_fixture import HALF, RIGHT, WRONG, write_answers

from jade.evaluate.arms import read_arms
from jade.evaluate.board import Board, read_board
from jade.evaluate.effect import Doubt, f1_table, runs_table
from jade.evaluate.figures import pictures
from jade.evaluate.picture import LIGHT, Picture

DOUBT = Doubt(resamples=300, seed=0)
JOINT = ({"nq": [RIGHT, RIGHT, HALF], "hotpotqa": [RIGHT, WRONG, HALF]}, {"nq": [HALF] * 3, "hotpotqa": [WRONG] * 3})


@pytest.fixture
def board(tmp_path: Path) -> Board:
    """Two runs of one arm, and one of another."""
    runs = [f"joint={write_answers(tmp_path / f'joint-{seed}', answers)}" for seed, answers in enumerate(JOINT)]
    start = write_answers(tmp_path / "start", {"nq": [WRONG] * 3, "hotpotqa": [HALF] * 3})
    return read_board(read_arms([*runs, f"start={start}"]))


def forest_of(board: Board) -> Picture:
    (found,) = [picture for picture in pictures(board, DOUBT) if picture.name == "f1"]
    return found


def drawn(axes: Axes, size: float) -> list[list[float]]:
    """What stands at the marks of a size, left to right, row by row."""
    lines = [line for line in axes.lines if line.get_marker() == "o" and line.get_markersize() == size]
    return [np.round(np.asarray(line.get_xdata(), dtype=float), 1).tolist() for line in lines]


def test_every_arm_stands_where_its_table_says_with_a_ring_for_each_run(board: Board) -> None:
    (axes,) = forest_of(board).draw(LIGHT).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["joint", "start"]
    means = [row[-1] for row in f1_table(board, DOUBT).rows]
    assert drawn(axes, 7) == [[float(entry.text)] for entry in means]
    intervals = [
        np.round(np.asarray(line.get_xdata(), dtype=float), 1) for line in axes.lines if line.get_marker() == "None"
    ]
    assert [f"{low} to {high}" for low, high in intervals] == [entry.small[0] for entry in means]
    alone = runs_table(board)
    assert alone is not None
    assert drawn(axes, 4) == [[float(row[-1].text) for row in alone.rows]], "the arm of one run has no ring"


def test_kinds_of_questions_have_a_panel_each(tmp_path: Path) -> None:
    sets = {name: [RIGHT, WRONG] for name in ("nq", "popqa", "hotpotqa", "musique")}
    runs = [f"{name}={write_answers(tmp_path / name, sets)}" for name in ("one", "other")]
    picture = forest_of(read_board(read_arms(runs)))
    assert [axes.get_title() for axes in picture.draw(LIGHT).axes] == ["single-hop", "multi-hop", "mean"]
    assert "ring" not in picture.caption, "where nothing is pooled there is none"


def test_one_method_alone_is_compared_with_nothing(tmp_path: Path) -> None:
    board = read_board(read_arms([str(write_answers(tmp_path / "run", {"nq": [RIGHT, WRONG]}))]))
    assert "f1" not in {picture.name for picture in pictures(board, DOUBT)}

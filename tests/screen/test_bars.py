"""Bars are drawn where somebody looks, and nowhere else."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from jade.evaluate.run import Tally
from jade.evaluate.store import Cell
from jade.screen.bars import CellBars, stage_bars


@pytest.mark.parametrize("is_watched", [True, False])
def test_a_bar_for_a_stage_is_drawn_on_a_terminal(is_watched: bool) -> None:
    screen = StringIO()
    with stage_bars(Console(file=screen, force_terminal=is_watched, width=100)) as show:
        for done in range(1, 65):
            show("reading files", done, 64)
    assert ("reading files" in screen.getvalue()) == is_watched
    assert ("64/64" in screen.getvalue()) == is_watched


def test_on_a_terminal_a_bar_shows_the_running_f1_and_the_failures() -> None:
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    with CellBars(console) as bars:
        bars.hear(Cell("nq", "jade"), Tally(done=3, total=8, failed=1, f1=1.5))
    drawn = screen.getvalue()
    assert "nq/jade" in drawn
    assert "3/8" in drawn
    assert "F1  50.0  failed 1" in drawn


def test_elsewhere_a_cell_is_a_line_when_it_is_done() -> None:
    screen = StringIO()
    with CellBars(Console(file=screen, force_terminal=False, width=100)) as bars:
        for done in range(9):
            bars.hear(Cell("nq", "jade"), Tally(done=done, total=8, failed=0, f1=done / 2))
    assert screen.getvalue() == "nq/jade: 8 questions, F1 50.0, failed 0\n"

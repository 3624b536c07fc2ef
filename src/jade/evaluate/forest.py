"""The picture that compares arms: the F1 of each with its interval, and every run that is pooled in it as a dot.

The interval is over questions and the dots are seeds, so that what arms differ by is seen beside what chance moves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jade.evaluate.board import Board, Column, Slice
from jade.evaluate.effect import Doubt, f1_groups, f1_of_runs
from jade.evaluate.picture import SERIES, Picture, Theme
from jade.evaluate.statistics import Estimate, estimate
from jade.evaluate.tables import method_title

ROW_INCHES = 0.42
SEED_DROP = 0.26
"""How far below its row's interval a run's dot stands, in rows, so that neither hides the other."""
_CAPTION = "F1 in percent with 95 % intervals over questions."
_RINGS = "A ring is one of the runs that are pooled."


def forest_picture(columns: Sequence[Column], board: Board, doubt: Doubt) -> Picture:
    """A panel for each mean, or for the one benchmark there is; a row for each column."""
    parts = board.means or [board.whole]
    found = {
        part: [estimate(f1_groups(column, part) or {}, doubt.resamples, doubt.seed) for column in columns]
        for part in parts
    }
    pooled = any(len(column.arm.runs) > 1 for column in columns)
    caption = f"{_CAPTION} {_RINGS}" if pooled else _CAPTION
    return Picture("f1", "F1 with its interval", caption, lambda theme: _forest(columns, found, theme))


def _forest(columns: Sequence[Column], found: dict[Slice, list[Estimate]], theme: Theme) -> Figure:
    figure = Figure(figsize=(max(5.0, 2.6 * len(found)), 1.1 + ROW_INCHES * len(columns)), layout="constrained")
    panels = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for axes, (part, estimates) in zip(panels, found.items(), strict=True):
        for row, (column, f1) in enumerate(zip(columns, estimates, strict=True)):
            _draw_row(axes, row, column, part, f1, theme)
        axes.set_title(part.title, fontsize=10)
        axes.set_xlabel("F1 (%)")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.grid(axis="x", linewidth=0.6)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
    panels[0].set_yticks(np.arange(len(columns)), [method_title(column) for column in columns])
    panels[0].set_ylim(len(columns) - 0.4, -0.6)
    return figure


def _draw_row(axes: Axes, row: int, column: Column, part: Slice, f1: Estimate, theme: Theme) -> None:
    colour = SERIES[row % len(SERIES)]
    axes.plot([100 * f1.low, 100 * f1.high], [row, row], color=colour, linewidth=1.8, alpha=0.7)
    face = theme.paper if column.is_ceiling else colour
    axes.plot(100 * f1.mean, row, "o", markersize=7, markerfacecolor=face, markeredgecolor=colour, zorder=3)
    if len(column.arm.runs) > 1:
        runs = [100 * value for value in f1_of_runs(column, part)]
        axes.plot(
            runs, [row + SEED_DROP] * len(runs), "o", markersize=4, markerfacecolor="none", markeredgecolor=colour
        )

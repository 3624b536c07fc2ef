"""The pictures of a report: what methods score, what that costs, where questions fail, which workflows are chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from jade.evaluate.board import Board, Column, benchmark_title
from jade.evaluate.cell import CellResult
from jade.evaluate.effect import Doubt, f1_groups
from jade.evaluate.failures import Failure
from jade.evaluate.forest import forest_picture
from jade.evaluate.picture import SERIES, Picture, Theme
from jade.evaluate.statistics import Estimate, estimate
from jade.evaluate.tables import listed, method_title

WORKFLOWS = {
    "QDS": "#D55E00",
    "QDP": "#E69F00",
    "AG": "#8A93A0",
    "R,AG": "#8CCBF0",
    "QR,R,AG": "#2F8FD0",
    "R,DS,AG": "#6CC5A4",
    "QR,R,DS,AG": "#009E73",
    "S1": "#CC79A7",
}
OTHER = "other"
OUTCOMES = {
    "none": "#009E73",
    Failure.NOT_RETRIEVED: "#0072B2",
    Failure.NOT_SELECTED: "#56B4E9",
    Failure.MISREAD: "#E69F00",
    Failure.LOST: "#D55E00",
    Failure.ERROR: "#8A93A0",
}
LABEL_INCHES = 0.28
"""Height that the name of a point needs in the margin."""
LABELLED_FROM = 0.07
"""Share of a bar from which its number fits inside."""


def pictures(board: Board, doubt: Doubt) -> list[Picture]:
    """The pictures for which there is something to show."""
    complete = [column for column in board.columns if column.over(board.benchmarks)]
    found = []
    if complete:
        points = {column: _point(column, board, doubt) for column in complete}
        # The oracle is no model: what it would read and write says nothing.
        read = {column: point for column, point in points.items() if not column.is_ceiling}
        if len(complete) > 1:
            found.append(forest_picture(complete, board, doubt))
        found += [
            Picture(
                "f1-retrievals", "F1 against retrievals", _FRONT, lambda theme: _scatter(points, theme, "retrievals")
            ),
            Picture("f1-tokens", "F1 against tokens", _FRONT, lambda theme: _scatter(read or points, theme, "tokens")),
            Picture("failures", "Where questions fail", _LOST, lambda theme: _failure_bars(complete, board)),
        ]
    return [*found, *_told_apart([_workflow_picture(columns, board) for columns in _of_one_mix(board)])]


_FRONT = "Mean over the benchmarks with 95 % intervals; the line joins the methods that none beats at their cost."
_MIX = (
    "What the planner chose for the question itself: QDS splits it into sub-questions that build on each other, QDP "
    "into independent ones; QR rewrites the query, R searches, DS selects documents, AG answers."
)
_LOST = "Questions by the first place where their evidence was lost, mean over the benchmarks."


@dataclass(frozen=True, slots=True)
class Point:
    f1: Estimate
    cost: Mapping[str, float]


def _point(column: Column, board: Board, doubt: Doubt) -> Point:
    cells = column.over(board.benchmarks) or []
    found = estimate(f1_groups(column, board.whole) or {}, doubt.resamples, doubt.seed)
    cost = {
        "retrievals": float(np.mean([cell.cost("retrievals") for cell in cells])),
        "tokens": float(np.mean([cell.tokens for cell in cells])),
    }
    return Point(found, cost)


def _scatter(points: Mapping[Column, Point], theme: Theme, cost: str) -> Figure:
    figure = Figure(figsize=(5.0, _height(len(points))), layout="constrained")
    axes = figure.add_subplot()
    _draw_front(axes, [(p.cost[cost], 100 * p.f1.mean) for c, p in points.items() if not c.is_ceiling], theme)
    for place, (column, point) in enumerate(points.items()):
        colour = SERIES[place % len(SERIES)]
        x, y = point.cost[cost], 100 * point.f1.mean
        axes.plot([x, x], [100 * point.f1.low, 100 * point.f1.high], color=colour, linewidth=1.4, alpha=0.7)
        face = theme.paper if column.is_ceiling else colour
        axes.plot(x, y, "o", markersize=7, markerfacecolor=face, markeredgecolor=colour, markeredgewidth=1.6, zorder=3)
    _label_points(axes, points, cost, theme)
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))
    axes.set_xlabel(f"{cost} a question")
    axes.set_ylabel("F1 (%)")
    axes.grid(axis="both", linewidth=0.6)
    return figure


def _height(num_points: int) -> float:
    """In inches: enough for the names of all points, one above the other."""
    return max(3.9, 0.8 + LABEL_INCHES * num_points)


def _draw_front(axes: Axes, points: Sequence[tuple[float, float]], theme: Theme) -> None:
    """The methods that are not beaten in F1 by a cheaper one."""
    front: list[tuple[float, float]] = []
    for cost, f1 in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or f1 > front[-1][1]:
            front.append((cost, f1))
    axes.plot([x for x, _ in front], [y for _, y in front], color=theme.muted, linewidth=1.0, linestyle=(0, (4, 3)))


def _label_points(axes: Axes, points: Mapping[Column, Point], cost: str, theme: Theme) -> None:
    """Names in the right margin, evenly apart, each with a thin line to its point: they never overlap."""
    low, high = axes.get_ylim()
    ordered = sorted(points.items(), key=lambda item: item[1].f1.mean)
    gap, last = LABEL_INCHES / _height(len(points)), len(points) - 1
    places = [(100 * point.f1.mean - low) / (high - low) for _, point in ordered]
    # Room is left below and above for those that come before and after.
    wanted = [min(max(place, n * gap), 1 - (last - n) * gap) for n, place in enumerate(places)]
    for (column, point), height in zip(ordered, spread_apart(wanted, gap), strict=True):
        axes.annotate(
            f"{method_title(column)}  {100 * point.f1.mean:.1f}",
            xy=(point.cost[cost], 100 * point.f1.mean),
            xytext=(1.03, height),
            textcoords="axes fraction",
            va="center",
            fontsize=9,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": theme.muted,
                "linewidth": 0.5,
                "alpha": 0.7,
                "shrinkB": 5,
                "relpos": (0, 0.5),
            },
        )


def spread_apart(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights moved as little as possible (least squares) so that they lie at least `gap` apart.

    Pool adjacent violators: whatever would overlap forms one block around the mean of its wishes.
    """
    blocks: list[list[float]] = []
    for place, height in enumerate(heights):
        blocks.append([height - place * gap])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    levels = [float(np.mean(block)) for block in blocks for _ in block]
    return [level + place * gap for place, level in enumerate(levels)]


def _of_one_mix(board: Board) -> list[list[Column]]:
    """The columns in which somebody chose between workflows, those that chose alike together."""
    alike: dict[tuple[object, ...], list[Column]] = {}
    for column in filter(_plans, board.columns):
        mix = tuple((name, tuple(cell.shares("workflow").items())) for name, cell in column.cells.items())
        alike.setdefault(mix, []).append(column)
    return list(alike.values())


def _plans(column: Column) -> bool:
    """Whether somebody chose between workflows; the oracle does not choose."""
    chosen = {name for cell in column.cells.values() for name in cell.shares("workflow")} - {"none"}
    return len(chosen) > 1 and not column.is_ceiling


def _told_apart(pictures: Sequence[Picture]) -> Iterator[Picture]:
    """Numbered where they have the same name: a file's name has fewer characters to choose from than a label."""
    times: Counter[str] = Counter()
    for picture in pictures:
        name = picture.name.casefold()  # some disks do not tell `A` from `a`
        times[name] += 1
        yield picture if times[name] == 1 else replace(picture, name=f"{picture.name}--{times[name]}")


def _workflow_picture(columns: Sequence[Column], board: Board) -> Picture:
    column = columns[0]
    names = [name for name in board.benchmarks if name in column.cells]
    shares = [_named(column.cells[name].shares("workflow")) for name in names]
    labels = [benchmark_title(name) for name in names]
    slug = "".join(letter if letter.isalnum() else "-" for letter in column.label).strip("-")
    return Picture(
        f"workflows-{slug}",
        f"Workflow mix of {listed(list(map(method_title, columns)))}",
        _MIX,
        lambda theme: _stacked(labels, shares, {**WORKFLOWS, OTHER: theme.muted}),
    )


def _named(shares: Mapping[str, float]) -> dict[str, float]:
    """The common workflows by name, the rest together."""
    named = {name: share for name, share in shares.items() if name in WORKFLOWS}
    rest = 1.0 - sum(named.values())
    return named | ({OTHER: rest} if rest > 1e-9 else {})


def _failure_bars(columns: Sequence[Column], board: Board) -> Figure:
    shares = [_mean_shares(column.over(board.benchmarks) or []) for column in columns]
    colours = {("right" if name == "none" else name): colour for name, colour in OUTCOMES.items()}
    return _stacked([method_title(column) for column in columns], shares, colours)


def _mean_shares(cells: Sequence[CellResult]) -> dict[str, float]:
    names = {"none": "right"}
    return {
        names.get(each, each): float(np.mean([cell.shares("failure").get(each, 0.0) for cell in cells]))
        for each in OUTCOMES
    }


def _stacked(labels: Sequence[str], shares: Sequence[Mapping[str, float]], colours: Mapping[str, str]) -> Figure:
    figure = Figure(figsize=(5.0, 1.2 + 0.3 * len(labels)), layout="constrained")
    axes = figure.add_subplot()
    rows = np.arange(len(labels))[::-1]
    left = np.zeros(len(labels))
    for name in (name for name in colours if any(share.get(name) for share in shares)):
        widths = np.array([share.get(name, 0.0) for share in shares])
        axes.barh(rows, 100 * widths, left=100 * left, color=colours[name], height=0.72, label=name)
        _label_bars(axes, rows, left, widths, _readable_on(colours[name]))
        left += widths
    axes.set_yticks(rows, labels)
    axes.set_xlim(0, 100)
    axes.set_ylim(-0.6, len(labels) - 0.4)
    axes.set_xlabel("% of questions")
    axes.tick_params(axis="y", length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    figure.legend(loc="outside upper left", ncols=3, fontsize=9, frameon=False, handlelength=1.0, columnspacing=1.2)
    return figure


def _label_bars(axes: Axes, rows: Iterable[Any], left: Iterable[float], widths: Iterable[float], ink: str) -> None:
    for row, start, width in zip(rows, left, widths, strict=True):
        if width >= LABELLED_FROM:
            middle = 100 * (start + width / 2)
            axes.text(middle, row, f"{100 * width:.0f}", ha="center", va="center", fontsize=8.5, color=ink)


def _readable_on(colour: str) -> str:
    """Dark ink on light colours, light ink on dark ones."""
    red, green, blue = to_rgb(colour)
    return "#10151c" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.45 else "#ffffff"

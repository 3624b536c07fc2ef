"""How good each method is, how sure that is, and what one has over another: the tables with statistics in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jade.evaluate.board import Board, Column, Slice
from jade.evaluate.cell import CellResult
from jade.evaluate.statistics import Floats, Groups, compare, estimate, mean_of_means, minus
from jade.evaluate.tables import MISSING, Entry, Table, method_title


@dataclass(frozen=True, slots=True)
class Doubt:
    """How intervals and p-values are drawn."""

    resamples: int
    seed: int


@dataclass(frozen=True, slots=True)
class Change:
    """What one column has over another, less what a third has over a fourth."""

    upper: tuple[Column, Column]
    lower: tuple[Column, Column]

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.upper, *self.lower)


def f1_table(board: Board, doubt: Doubt) -> Table:
    """Datasets × methods, each with its 95 % interval."""
    values = [[f1_groups(column, part) for part in board.slices] for column in board.columns]
    best = [_best(board.columns, [row[place] for row in values]) for place in range(len(board.slices))]
    rows = tuple(
        (Entry(method_title(column)), *(_estimated(v, doubt, row in best[p]) for p, v in enumerate(values[row])))
        for row, column in enumerate(board.columns)
    )
    return Table("Effectiveness", " ".join(_f1_notes(board)), _header(board), rows, len(board.means))


def difference_table(board: Board, baseline: Column, doubt: Doubt) -> Table:
    """What each method has over the baseline on the same questions, and how likely chance alone gives that."""
    rows = tuple(
        (Entry(method_title(column)), *(_difference(column, baseline, part, doubt) for part in board.slices))
        for column in board.columns
        if column is not baseline
    )
    note = f"F1 points over {method_title(baseline)} on the questions that both have, {_doubt_note(doubt)}"
    return Table(f"Against {method_title(baseline)}", note, _header(board), rows, len(board.means))


def change_table(board: Board, changes: Sequence[Change], doubt: Doubt) -> Table:
    """How much more one difference is than another, on the same questions, and how likely chance alone gives that."""
    rows = tuple(
        (_change_title(change), *(_change(change, part, doubt) for part in board.slices)) for change in changes
    )
    note = (
        "The first difference less the second, in F1 points on the questions that all four have, "
        f"{_doubt_note(doubt)} The last line gives the two differences."
    )
    return Table("Change of a difference", note, _header(board, "difference"), rows, len(board.means))


def runs_table(board: Board) -> Table | None:
    """The runs of each pooled arm by themselves: how much of a difference another seed alone can make."""
    pooled = [column for column in board.columns if len(column.arm.runs) > 1]
    if not pooled:
        return None
    rows = [row for column in pooled for row in _run_rows(column, board.slices)]
    note = (
        "F1 in percent of every run that is pooled above. The intervals above are over questions: how far other seeds "
        "would lie apart has to be judged from these rows."
    )
    return Table("Runs one by one", note, _header(board), tuple(rows), len(board.means))


def _header(board: Board, first: str = "method") -> tuple[str, ...]:
    return (first, *(part.title for part in board.slices))


def _doubt_note(doubt: Doubt) -> str:
    return (
        f"with 95 % paired bootstrap intervals and two-sided p-values ({doubt.resamples} resamples); "
        "not corrected for the number of comparisons."
    )


def _f1_notes(board: Board) -> list[str]:
    notes = ["F1 in percent with 95 % bootstrap intervals over questions; the best of each column in bold."]
    if len(board.means) > 1:
        notes.append("Every mean weighs its benchmarks the same.")
    if any(len(column.arm.runs) > 1 for column in board.columns):
        notes.append("Where runs are pooled, a question's F1 is its mean over them.")
    if any(column.is_ceiling for column in board.columns):
        notes.append("The oracle is the retriever's ceiling, not a competitor.")
    return notes


def f1_groups(column: Column, part: Slice) -> Groups | None:
    """F1 by question of every benchmark of a slice; None where one is missing."""
    cells = column.over(part.benchmarks)
    return {cell.cell.benchmark: np.array(list(cell.f1.values())) for cell in cells} if cells else None


def f1_of_runs(column: Column, part: Slice) -> list[float]:
    """Mean F1 over a slice of each run that is pooled in a column; none where a benchmark is missing."""
    cells = column.over(part.benchmarks)
    places = range(len(column.arm.runs)) if cells else ()
    return [float(np.mean([cell.f1_of_run(place) for cell in cells or ()])) for place in places]


def shared_f1(columns: Sequence[Column], part: Slice) -> list[Groups] | None:
    """F1 of each column on the questions that all of them have; None where a benchmark has no such question."""
    found = [cells for column in columns if (cells := column.over(part.benchmarks))]
    if len(found) < len(columns):
        return None
    shared = {cells[0].cell.benchmark: _shared(cells) for cells in zip(*found, strict=True)}
    if not all(len(scores[0]) for scores in shared.values()):
        return None
    return [{name: scores[place] for name, scores in shared.items()} for place in range(len(columns))]


def _best(columns: Sequence[Column], values: Sequence[Groups | None]) -> set[int]:
    """The rows with the highest mean among those that compete; none where there is no competition."""
    means = {
        row: mean_of_means(groups)
        for row, groups in enumerate(values)
        if groups is not None and not columns[row].is_ceiling
    }
    highest = max(means.values(), default=0.0)
    return {row for row, mean in means.items() if mean == highest} if len(means) > 1 else set()


def _estimated(groups: Groups | None, doubt: Doubt, best: bool) -> Entry:
    if groups is None:
        return Entry(MISSING)
    found = estimate(groups, doubt.resamples, doubt.seed)
    return Entry(f"{100 * found.mean:.1f}", (f"{100 * found.low:.1f} to {100 * found.high:.1f}",), best)


def _difference(column: Column, baseline: Column, part: Slice, doubt: Doubt) -> Entry:
    shared = shared_f1((column, baseline), part)
    if shared is None:
        return Entry(MISSING)
    mine, other = shared
    return _compared(mine, other, doubt)


def _change(change: Change, part: Slice, doubt: Doubt) -> Entry:
    shared = shared_f1(change.columns, part)
    if shared is None:
        return Entry(MISSING)
    a, b, c, d = shared
    upper, lower = minus(a, b), minus(c, d)
    both = f"{_signed(mean_of_means(upper))} less {_signed(mean_of_means(lower))}"
    found = _compared(upper, lower, doubt)
    return Entry(found.text, (*found.small, both))


def _change_title(change: Change) -> Entry:
    upper, lower = (" over ".join(map(method_title, pair)) for pair in (change.upper, change.lower))
    return Entry(upper, (f"less {lower}",))


def _compared(mine: Groups, other: Groups, doubt: Doubt) -> Entry:
    found = compare(mine, other, doubt.resamples, doubt.seed)
    interval = f"{_signed(found.low)} to {_signed(found.high)}"
    return Entry(_signed(found.mean), (interval, _p_text(found.p_value)))


def _signed(share: float) -> str:
    """Points with their sign, the true minus."""
    return f"{100 * share:+.1f}".replace("-", "−")


def _shared(cells: Sequence[CellResult]) -> list[Floats]:
    first, *others = cells
    shared = [question for question in first.f1 if all(question in other.f1 for other in others)]
    return [np.array([cell.f1[question] for question in shared]) for cell in cells]


def _p_text(p_value: float) -> str:
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def _run_rows(column: Column, slices: Sequence[Slice]) -> list[tuple[Entry, ...]]:
    """A row for each run, by the folder's name."""
    found = [f1_of_runs(column, part) for part in slices]
    return [
        (
            Entry(f"{method_title(column)}: {run.name}"),
            *(Entry(f"{100 * values[place]:.1f}" if values else MISSING) for values in found),
        )
        for place, run in enumerate(column.arm.runs)
    ]

"""What a table is, and the tables of plain numbers: costs, scores, retrieval, plans, failures, wordings.

A table holds texts, which the Markdown and the HTML writer each print in their own way. Means over benchmarks weigh
every benchmark the same and are given only where a method has run on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from jade.config import ROLE_CODES
from jade.evaluate.board import Board, Column, Slice, benchmark_title
from jade.evaluate.cell import CellResult
from jade.evaluate.failures import RIGHT_FROM, Failure
from jade.evaluate.methods import METHODS, Method
from jade.team.roles import MEMBERS

MISSING = "–"
NUM_PLANS = 3
"""Plans of a method that are named, the commonest ones."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One cell of a table: its value, finer lines below it, and whether it is the best of its column."""

    text: str
    small: tuple[str, ...] = ()
    best: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    note: str
    header: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    num_means: int = 0
    """Columns at the end that sum up the others."""
    in_words: bool = False
    """Whether its cells are texts to be read rather than numbers to be compared."""


def method_title(column: Column) -> str:
    """The arm's name where that is all, else the published name, and which arm it is where several have it."""
    known = METHODS.get(column.method)
    if known is None or column.label == column.arm.name != column.method:
        return column.label
    return known.title + column.label.removeprefix(column.method)


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them: `A, B and C`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def methods_table(board: Board) -> Table | None:
    """What the names stand for."""
    known = [METHODS[name] for name in dict.fromkeys(c.method for c in board.columns) if name in METHODS]
    rows = tuple((Entry(row.title), Entry(row.note), Entry(_legal(row)), Entry(_learners(row))) for row in known)
    codes = ", ".join(f"{member.code} {member.title}" for member in MEMBERS)
    note = f"Rows that differ only in what learns are the same as long as they share their weights. Codes: {codes}."
    header = ("method", "what it does", "workflows it may choose from", "what learns")
    return Table("What the methods are", note, header, rows, in_words=True) if rows else None


def _legal(method: Method) -> str:
    if not method.needs_model:
        return "gold ones"
    parts = f" (parts: {' or '.join(method.child_workflows)})" if method.child_workflows else ""
    return " or ".join(method.workflows) + parts or "all"


def _learners(method: Method) -> str:
    left = [code for code in ROLE_CODES if code not in method.train_roles]
    if len(left) <= 1:
        return f"all but {left[0]}" if left else "all roles"
    return ", ".join(method.train_roles) or "nothing"


def scores_table(board: Board) -> Table:
    """All metrics, as means over the benchmarks."""
    numbers = (
        _score("F1", "f1"),
        _score("exact match", "em"),
        _score("precision", "precision"),
        _score("recall", "recall"),
        _score("gold contained", "accuracy"),
        _score("F1, yes/no by exact match", "outcome"),
        Number("failed", lambda cell: 100 * cell.failed, ".1f"),
    )
    note = "Percent, mean over the benchmarks. A question that failed scores 0 everywhere; the last column counts them."
    return _number_table("All scores", note, numbers, board)


def cost_table(board: Board) -> Table:
    numbers = (
        Number("calls", lambda cell: cell.cost("calls"), ".2f", of_a_model=True),
        Number("rounds", lambda cell: cell.cost("rounds"), ".2f"),
        Number("retrievals", lambda cell: cell.cost("retrievals"), ".2f"),
        Number("tokens read", lambda cell: cell.cost("prompt_tokens"), ".0f", of_a_model=True),
        Number("tokens written", lambda cell: cell.cost("completion_tokens"), ".1f", of_a_model=True),
        Number("seconds", lambda cell: cell.seconds, ".2f", of_a_model=True),
        Number("questions/s", lambda cell: cell.questions_per_second, ".2f", of_a_model=True),
    )
    note = (
        "Per question, mean over the benchmarks. Seconds are from question to answer while others are in flight; "
        "questions/s is what came out of it."
    )
    return _number_table("Cost", note, numbers, board)


def retrieval_table(board: Board) -> Table:
    """What the searches brought."""
    header = ("method", *map(benchmark_title, board.benchmarks))
    rows = tuple(
        (Entry(method_title(column)), *(_retrieved(column.cells.get(name), board.k) for name in board.benchmarks))
        for column in board.columns
    )
    note = (
        f"Percent of questions with a gold answer in the first / the first {board.k} passages of a search (questions "
        "for yes or no left out); below it the share of supporting pages found, where the benchmark names them."
    )
    return Table("Retrieval", note, header, rows)


def selection_table(board: Board) -> Table | None:
    """Whether selectors do better than the order of the search."""
    rows = tuple(
        (Entry(method_title(column)), *(_selected(column.cells.get(name)) for name in board.benchmarks))
        for column in board.columns
        if any(cell.selection.selections for cell in column.cells.values())
    )
    note = (
        "Passages that a selection keeps of those shown; below, of the selections that were shown a gold answer, the "
        "percent that kept one, and the percent that would have by keeping as many from the top: a selector that is "
        "no better has learned the order of the search."
    )
    return Table("Selection", note, ("method", *map(benchmark_title, board.benchmarks)), rows) if rows else None


def plan_table(board: Board) -> Table:
    """Depth, early stops and malformed outputs of each role."""
    written = {role for column in board.columns for cell in column.cells.values() for role in cell.malformed()}
    roles = sorted(written, key=lambda role: (ROLE_CODES.index(role) if role in ROLE_CODES else len(ROLE_CODES), role))
    numbers = (
        Number("depth", lambda cell: cell.depth, ".2f"),
        Number("stopped early", lambda cell: 100 * cell.stopped, ".1f"),
    )
    plain = _number_table("Plans", "", numbers, board)
    rows = tuple(
        (*row, *(Entry(_malformed(column, role)) for role in roles))
        for row, column in zip(plain.rows, board.columns, strict=True)
    )
    note = (
        "Mean depth of the tree; percent of questions stopped by a budget; under each role's code the percent of its "
        "outputs that were malformed."
    )
    return Table("Plans", note, (*plain.header, *roles), rows)


def workflow_table(board: Board) -> Table:
    """The commonest plans for the question itself."""
    header = ("method", *map(benchmark_title, board.benchmarks))
    rows = tuple(
        (Entry(method_title(column)), *(_workflows(column.cells.get(name)) for name in board.benchmarks))
        for column in board.columns
    )
    return Table("Workflows", f"The {NUM_PLANS} commonest plans for the question itself, in percent.", header, rows)


def failure_table(board: Board) -> Table:
    """Where questions fail, in the order of the pipeline."""
    rows = tuple((Entry(method_title(column)), *_failures(column, board)) for column in board.columns)
    note = (
        f"Percent of questions, mean over the benchmarks; an answer of F1 {RIGHT_FROM} or more counts as right. "
        "A passage counts as evidence when it holds a gold answer; for yes/no, when every supporting page is there."
    )
    return Table("Where questions fail", note, ("method", "right", *Failure), rows)


def robustness_table(board: Board) -> Table | None:
    """The same team under paraphrased prompts."""
    varied = [column for column in board.columns if len(board.wordings(column)) > 1]
    if not varied:
        return None
    rows = tuple(
        (Entry(method_title(column)), Entry(part.title), *map(Entry, (*_spread(means), _unread(board, column, part))))
        for column in varied
        for part in board.slices
        if len(means := _wording_means(board, column, part)) > 1
    )
    header = ("method", "benchmark", "wordings", "shipped", "mean", "worst", "best", "spread", "malformed")
    note = (
        "F1 in percent under the shipped prompts and their paraphrases; spread is the standard deviation. Malformed is "
        "the percent of outputs that could not be read, under the shipped prompts / under the worst wording in this."
    )
    return Table("Robustness to the prompts' wording", note, header, rows)


@dataclass(frozen=True, slots=True)
class Number:
    """A column of plain numbers: its name, its value for one cell, and how it is printed."""

    name: str
    of: Callable[[CellResult], float]
    form: str
    of_a_model: bool = False
    """Whether it says nothing of the oracle, which is none."""

    def text(self, column: Column, cells: Sequence[CellResult] | None) -> str:
        if not cells or (self.of_a_model and column.is_ceiling):
            return MISSING
        return format(np.mean([self.of(cell) for cell in cells]), self.form)


def _number_table(title: str, note: str, numbers: Sequence[Number], board: Board) -> Table:
    rows = []
    for column in board.columns:
        cells = column.over(board.benchmarks)
        texts = (number.text(column, cells) for number in numbers)
        rows.append((Entry(method_title(column)), *map(Entry, texts)))
    return Table(title, note, ("method", *(number.name for number in numbers)), tuple(rows))


def _score(title: str, name: str) -> Number:
    return Number(title, lambda cell: 100 * float(cell.scores(name).mean()), ".1f")


def _retrieved(cell: CellResult | None, k: int) -> Entry:
    if cell is None or not cell.cost("retrievals"):
        return Entry(MISSING)
    recalls = [cell.answer_recall(1), cell.answer_recall(k)]
    titles = () if cell.title_recall is None else (f"pages {100 * cell.title_recall:.1f}",)
    return Entry(" / ".join(MISSING if each is None else f"{100 * each:.1f}" for each in recalls), titles)


def _selected(cell: CellResult | None) -> Entry:
    if cell is None or not (done := cell.selection).selections:
        return Entry(MISSING)
    kept = f"{done.kept / done.selections:.1f} of {done.shown / done.selections:.1f}"
    if not done.held:
        return Entry(kept)
    shares = (100 * done.kept_held / done.held, 100 * done.first_held / done.held)
    return Entry(kept, (f"answer kept {shares[0]:.1f}", f"from the top {shares[1]:.1f}"))


def _malformed(column: Column, role: str) -> str:
    broken, written = column.malformed(role)
    return f"{100 * broken / written:.1f}" if written else MISSING


def _workflows(cell: CellResult | None) -> Entry:
    if cell is None:
        return Entry(MISSING)
    first, *others = (f"{name} {100 * share:.0f}" for name, share in list(cell.shares("workflow").items())[:NUM_PLANS])
    return Entry(first, tuple(others))


def _failures(column: Column, board: Board) -> list[Entry]:
    cells = column.over(board.benchmarks)
    if not cells:
        return [Entry(MISSING)] * (1 + len(Failure))
    classes = ("none", *Failure)
    return [
        Entry(f"{100 * np.mean([cell.shares('failure').get(each, 0.0) for cell in cells]):.1f}") for each in classes
    ]


def _wording_means(board: Board, column: Column, part: Slice) -> list[float]:
    """The mean F1 under each wording that has run on all of a slice, the shipped one first."""
    runs = [wording.over(part.benchmarks) for wording in board.wordings(column)]
    return [float(np.mean([cell.scores("f1").mean() for cell in cells])) for cells in runs if cells]


def _unread(board: Board, column: Column, part: Slice) -> str:
    runs = [wording.over(part.benchmarks) for wording in board.wordings(column)]
    counts = [[pair for cell in cells for pair in cell.malformed().values()] for cells in runs if cells]
    shares = [sum(bad for bad, _ in each) / max(1, sum(count for _, count in each)) for each in counts]
    return f"{100 * shares[0]:.1f} / {100 * max(shares):.1f}"


def _spread(means: Sequence[float]) -> list[str]:
    values = (means[0], np.mean(means), min(means), max(means), np.std(means))
    return [str(len(means)), *(f"{100 * value:.1f}" for value in values)]

"""What a reader should know before believing a table: rows that are not what their name promises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jade.evaluate.board import Board, Column, benchmark_title
from jade.evaluate.methods import METHODS
from jade.evaluate.tables import listed, method_title

SELDOM = 0.05
"""Share of questions below which a method that could search hardly ever did."""
OFTEN_MALFORMED = 0.2
"""Share of a role's outputs from which the role is said not to have learned its format."""


def remarks(board: Board) -> list[str]:
    return [
        *(line for column in board.columns for line in _about(column)),
        *_same_answers([column for column in board.columns if not column.is_ceiling]),
    ]


def _about(column: Column) -> Iterator[str]:
    title, cells = method_title(column), list(column.cells.values())
    for cell in cells:
        for run in cell.runs:
            if (asked := run.files.num_asked() or 0) > len(run.records):
                done = f"{len(run.records)} of {asked} questions of {benchmark_title(cell.cell.benchmark)}"
                yield f"{title} has {done}: its run is not finished, and the first ones need not be like the others"
    searched = [record.cost["retrievals"] > 0 for cell in cells for record in cell.records]
    if column.method in METHODS and METHODS[column.method].needs_index and sum(searched) < SELDOM * len(searched):
        yield f"{title} searched for {sum(searched)} of {len(searched)} answers"
    if unread := list(_unread(column)):
        yield f"malformed outputs of {title}: {', '.join(unread)}"
    hurried = sum(record.stopped == "seconds" for cell in cells for record in cell.records)
    if hurried:
        yield (
            f"{hurried} of {len(searched)} questions of {title} were cut short by the clock (budget.seconds): another "
            "machine would answer them otherwise"
        )
    failed = sum(record.error is not None for cell in cells for record in cell.records)
    if failed:
        yield f"{failed} of {len(searched)} questions of {title} failed and score 0"


def _unread(column: Column) -> Iterator[str]:
    """The roles that have not learned their format, each with its share of malformed outputs."""
    for role in sorted({role for cell in column.cells.values() for role in cell.malformed()}):
        broken, written = column.malformed(role)
        if broken > OFTEN_MALFORMED * written:
            yield f"{role} {100 * broken / written:.0f} %"


def _same_answers(columns: Sequence[Column]) -> Iterator[str]:
    """Rows that are one and the same: so it is when methods that differ in training only share their weights."""
    alike: dict[tuple[object, ...], list[str]] = {}
    for column in columns:
        alike.setdefault(_answers(column), []).append(method_title(column))
    for titles in alike.values():
        if len(titles) > 1:
            yield f"{listed(titles)} gave the same answers throughout"


def _answers(column: Column) -> tuple[object, ...]:
    cells = column.cells.items()
    return tuple((name, record.id, record.answer, record.workflow) for name, cell in cells for record in cell.records)

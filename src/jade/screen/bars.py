"""Bars for long work; they are drawn where somebody looks, and nothing is printed elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from jade.evaluate.run import Tally
    from jade.evaluate.store import Cell
    from jade.retrieval.build import Progress as Hear


@contextmanager
def stage_bars(console: Console) -> Iterator[Hear]:
    """A bar for every stage, on a terminal; nothing elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            if done == total or done % 64 == 0:  # drawing costs more than most of what is counted
                bars.update(tasks[stage], completed=done)

        yield show


class CellBars:
    """A bar for each cell with its running F1; where nobody watches, a line when a cell is done."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = console
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("F1 {task.fields[f1]:5.1f}  failed {task.fields[failed]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: dict[Cell, TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def hear(self, cell: Cell, tally: Tally) -> None:
        if cell not in self._tasks:
            self._tasks[cell] = self._bars.add_task(str(cell), total=tally.total, f1=0.0, failed=0)
        f1 = 100 * tally.mean_f1
        self._bars.update(self._tasks[cell], completed=tally.done, f1=f1, failed=tally.failed)
        if tally.done == tally.total and not self._console.is_terminal:
            line = f"{cell}: {tally.total} questions, F1 {f1:.1f}, failed {tally.failed}"
            self._console.print(line, markup=False, highlight=False)

"""Finished runs as a board: a column for each method of each arm, and in it a cell for each benchmark.

Reads only what runs have written. Methods of the same name from several arms are told apart by the arm's name, or by
their run's folder where none was given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jade.errors import TraceUnreadable
from jade.evaluate.arms import Arm, check_alike
from jade.evaluate.benchmarks import BENCHMARKS
from jade.evaluate.cell import CellResult, Finished, read_finished
from jade.evaluate.methods import METHODS
from jade.evaluate.store import Cell, CellFiles, find_cells, read_run


@dataclass(frozen=True, eq=False)
class Column:
    """One method, under one wording of the prompts, from one arm."""

    label: str
    method: str
    variant: int
    arm: Arm
    cells: Mapping[str, CellResult]

    @property
    def is_ceiling(self) -> bool:
        """The oracle is no competitor."""
        return self.method in METHODS and not METHODS[self.method].needs_model

    def malformed(self, role: str) -> tuple[int, int]:
        """Over all benchmarks: a role's outputs that could not be read, and all of its outputs."""
        counts = [cell.malformed().get(role, (0, 0)) for cell in self.cells.values()]
        return sum(broken for broken, _ in counts), sum(written for _, written in counts)

    def over(self, benchmarks: Sequence[str]) -> list[CellResult] | None:
        """The cells of all these benchmarks, or None where one is missing."""
        found = [self.cells[name] for name in benchmarks if name in self.cells]
        return found if len(found) == len(benchmarks) else None


@dataclass(frozen=True, slots=True)
class Slice:
    """Benchmarks that a table gives one number for: one of them, or several of a kind."""

    title: str
    benchmarks: tuple[str, ...]


@dataclass(frozen=True)
class Board:
    benchmarks: tuple[str, ...]
    columns: tuple[Column, ...]
    """The shipped wording of the prompts."""
    variants: tuple[Column, ...] = ()
    """Paraphrased prompts."""
    runs: Mapping[Path, Mapping[str, Any]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    """Cells that only some runs of an arm have; pooling them would compare unlike things."""

    def column(self, label: str) -> Column | None:
        return next((column for column in self.columns if column.label == label), None)

    def wordings(self, column: Column) -> list[Column]:
        """The same method from the same arm under every wording, the shipped one first."""
        return [column, *(v for v in self.variants if (v.arm, v.method) == (column.arm, column.method))]

    @property
    def slices(self) -> list[Slice]:
        """Every benchmark by itself, then those of one hop, of several, and all together."""
        return [*(Slice(benchmark_title(name), (name,)) for name in self.benchmarks), *self.means]

    @property
    def means(self) -> list[Slice]:
        """The mean over all benchmarks, and before it those over single-hop and over multi-hop ones where there are
        both. A mean over one benchmark is left out: that benchmark's own column says the same."""
        kinds = [_of_kind(self.benchmarks, several) for several in (False, True)]
        titles = ("single-hop", "multi-hop")
        both = all(kinds) and sum(map(len, kinds)) > 2
        parts = [Slice(title, names) for title, names in zip(titles, kinds, strict=True) if both and len(names) > 1]
        return [*parts, self.whole] if len(self.benchmarks) > 1 else []

    @property
    def whole(self) -> Slice:
        return Slice("mean", self.benchmarks)

    @property
    def k(self) -> int:
        """Passages a search brings; the smallest where runs differ."""
        return min(int(run["settings"]["retrieval"]["k"]) for run in self.runs.values())


def read_board(arms: Sequence[Arm]) -> Board:
    """All finished questions of some arms; methods and benchmarks in the order of the published table."""
    described = {run: read_run(run) for arm in arms for run in arm.runs}
    for arm in arms:
        check_alike(arm, described)
    cells = [(arm, result) for arm in arms for result in _results(arm)]
    cells.sort(key=lambda item: _place(item[1].cell.benchmark, list(BENCHMARKS)))
    benchmarks = dict.fromkeys(result.cell.benchmark for _, result in cells)
    columns = sorted(_columns(arms, cells), key=lambda column: (_place(column.method, list(METHODS)), column.variant))
    return Board(
        tuple(benchmarks),
        tuple(column for column in columns if not column.variant),
        tuple(column for column in columns if column.variant),
        described,
        tuple(cell for arm in arms for cell in _left_out(arm)),
    )


def benchmark_title(name: str) -> str:
    return BENCHMARKS[name].title if name in BENCHMARKS else name


def _of_kind(benchmarks: Sequence[str], multi_hop: bool) -> tuple[str, ...]:
    return tuple(name for name in benchmarks if name in BENCHMARKS and BENCHMARKS[name].multi_hop is multi_hop)


def _results(arm: Arm) -> list[CellResult]:
    """The cells in which all runs of an arm have finished the same questions, one at least: an arm that a report was
    asked for is in it."""
    found: dict[Cell, list[Finished]] = {}
    for run in arm.runs:
        finished = {cell: read_finished(CellFiles(run, cell)) for cell in find_cells(run)}
        if not any(each.records for each in finished.values()):
            raise TraceUnreadable(f"no finished questions in {run}: run jade eval first")
        for cell, each in finished.items():
            found.setdefault(cell, []).append(each)
    shared = [CellResult(cell, runs) for cell, runs in found.items() if len(runs) == len(arm.runs)]
    results = [result for result in shared if result.records]
    if not results:
        runs = ", ".join(map(str, arm.runs))
        raise TraceUnreadable(f"{arm.name}: no question that all of {runs} have finished; runs of one name are pooled")
    return results


def _left_out(arm: Arm) -> Iterator[str]:
    has = {run: set(find_cells(run)) for run in arm.runs}
    for cell in sorted({cell for cells in has.values() for cell in cells}, key=str):
        owners = [run.name for run in arm.runs if cell in has[run]]
        if len(owners) < len(arm.runs):
            yield f"{arm.name} {cell} (only in {', '.join(owners)})"


def _columns(arms: Sequence[Arm], cells: Sequence[tuple[Arm, CellResult]]) -> list[Column]:
    """In the order of the arms. An arm of one method needs no other name than its own."""
    grouped: dict[tuple[Arm, str, int], dict[str, CellResult]] = {}
    for arm, result in cells:
        grouped.setdefault((arm, result.cell.method, result.cell.variant), {})[result.cell.benchmark] = result
    methods_of = {arm: {method for owner, method, _ in grouped if owner == arm} for arm in arms}
    owners = Counter(method for _, method, variant in grouped if variant == 0)
    called = _call(list(arms))

    def label(arm: Arm, method: str) -> str:
        if arm.name and len(methods_of[arm]) == 1:
            return arm.name
        return f"{method} ({called[arm]})" if arm.name or owners[method] > 1 else method

    ordered = sorted(grouped.items(), key=lambda item: arms.index(item[0][0]))
    return [Column(label(arm, method), method, variant, arm, found) for (arm, method, variant), found in ordered]


def _call(arms: Sequence[Arm]) -> dict[Arm, str]:
    """What to call each arm: its name, or its run's folder, in full where two have the same."""
    names = Counter(arm.runs[0].name for arm in arms if not arm.name)
    return {arm: arm.name or _short(arm.runs[0], names) for arm in arms}


def _short(run: Path, names: Mapping[str, int]) -> str:
    return run.name if names[run.name] == 1 else str(run)


def _place(name: str, order: Sequence[str]) -> tuple[int, str]:
    return (order.index(name) if name in order else len(order), name)
